"""Data that the tasks make, so that they need no download."""
