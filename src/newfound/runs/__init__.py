"""What a run writes, and reads back."""
