"""A directory for PYTHONPATH; see sitecustomize.py."""
