"""Clusters and near-duplicates of the vectors of a run, as Beam transforms."""
