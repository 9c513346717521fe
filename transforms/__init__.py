"""Beam transforms of this pipeline; `bert_embed` offers those for other pipelines."""
