"""Transforms for other people's pipelines."""

from bert_embed.transforms.steps import mend_cell_labels

mend_cell_labels()  # a notebook's first step may come before any of our transforms is created
