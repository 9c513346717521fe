"""Engines: a model's numbers on a processor, a GPU or a TPU."""
