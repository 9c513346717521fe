"""Importers: one source format a file, each gives a bundle."""
