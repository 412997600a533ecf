"""What a supervisor does in each pass."""
