"""The native API, one file a noun."""
