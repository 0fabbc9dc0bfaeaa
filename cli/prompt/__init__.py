"""The input line and the keyboard."""
