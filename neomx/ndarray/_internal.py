"""Ops whose names begin with an underscore: what operators and old scripts call."""
