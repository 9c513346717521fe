"""Encoders and heads: sizes, operations, weights, one file a family."""
