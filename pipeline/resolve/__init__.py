"""Resolves options to checked facts: columns, specs, sizes, earlier outputs, tables."""
