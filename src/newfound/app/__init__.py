"""What a person types and sees."""
