"""Transforms for other people's pipelines."""
