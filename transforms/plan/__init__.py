"""Listing the input and cutting it into blocks."""
