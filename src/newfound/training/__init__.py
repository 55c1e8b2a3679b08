"""One training: what it is told, the loop, and the pieces that methods share."""
