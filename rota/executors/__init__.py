"""Ways to run an attempt, and to deliver a callback."""
