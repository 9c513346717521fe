"""Copies the vectors of a run to where other programs search and show them."""
