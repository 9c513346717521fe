"""Compares two outputs of the same documents: neighbours, relevance, drift, cost."""
