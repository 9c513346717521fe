"""Names the entries of sparse vectors, by the vocabulary of the model that made them."""

from collections.abc import Sequence
from itertools import repeat

import numpy as np

from bert_embed.bundle.find import resolve_model
from bert_embed.heads.vectors import SparseVectors
from bert_embed.pipeline.export.source import Source
from bert_embed.pipeline.outputs.places import check_model
from bert_embed.tokenization.tokenizer import load_tokenizer


def entry_names(source: Source) -> list[str]:
    """The text of each entry; `[NUMBER]` where it is empty or has white space, or there is none."""
    options, settings = source.options, source.outputs[0].settings
    bundle = resolve_model(options.model or source.records[0].model.name, lambda bundle: ())
    check_model(bundle, settings, source.place)
    vocabulary = load_tokenizer(bundle).vocab
    texts = (*vocabulary, *repeat("", source.entries - len(vocabulary)))
    # Anserini cuts tokens at white space: such a name would be two tokens to it, or none.
    return [text if [text] == text.split() else f"[{entry}]" for entry, text in enumerate(texts)]


def named_weights(vectors: SparseVectors, row: int, names: Sequence[str]) -> dict[str, np.float32]:
    """The weights of one row by name; of entries with one name the largest."""
    entries = slice(*vectors.splits[row : row + 2])
    weights: dict[str, np.float32] = {}
    for entry, weight in zip(
        vectors.indices[entries].tolist(), vectors.values[entries], strict=True
    ):
        name = names[entry]
        weights[name] = max(weight, weights.get(name, weight))
    return weights
