"""The `neomx` command: one script as many processes, here or on several machines."""
