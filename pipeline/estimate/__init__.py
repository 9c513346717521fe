"""Estimates what a run would take, from a sample of its input."""
