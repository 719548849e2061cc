"""File formats: read and write, never execute."""
