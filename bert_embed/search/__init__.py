"""Nearest vectors, rankings and k-means."""
