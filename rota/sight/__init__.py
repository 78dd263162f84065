"""The one way to read: of the present, of what was recorded, and of the past."""
