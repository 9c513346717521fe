"""Checks and runs jobs on each kind of Beam runner."""
