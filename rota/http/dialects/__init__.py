"""Other programs' paths, words and shapes over the same core."""
