"""The `neomx` command: runs a script as several processes, on one or several machines."""
