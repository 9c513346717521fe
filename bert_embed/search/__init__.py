"""Nearest vectors, and how rankings compare."""
