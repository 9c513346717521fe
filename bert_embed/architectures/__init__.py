"""Encoders, each of which reads its config.json, names its tensors and writes its graph once."""
