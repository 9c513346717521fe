"""Bundles: models as they run, on disk."""
