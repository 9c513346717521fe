"""Engines: what computes the vectors of rows."""
