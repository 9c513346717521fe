"""Clusters and near-duplicates of vectors, on arrays alone."""
