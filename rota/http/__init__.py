"""The HTTP surface: the native API, the dialects, the server process."""
