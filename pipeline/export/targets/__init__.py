"""Writes rows as each target expects them."""
