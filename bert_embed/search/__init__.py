"""Nearest vectors and clusters of them."""
