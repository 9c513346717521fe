"""Implements the commands."""
