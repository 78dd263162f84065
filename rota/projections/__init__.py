"""What is known: read models, folded from the log."""
