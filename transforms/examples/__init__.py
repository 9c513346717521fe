"""Tokenized examples in TFRecord files."""
