"""Manages the folder of a run: its record, its examples, its progress."""
