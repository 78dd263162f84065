"""The log: a port, its implementations, and the thread that writes."""
