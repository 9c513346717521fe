"""Makes rows of token vectors with the features of google-research/bert's extract_features.py."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from bert_embed.formats.number_types import output_dtype, restored, stored
from bert_embed.storage.errors import required
from bert_embed.transforms.records.vectors import EmbeddingBlock

_DECIMALS = 6


def token_rows(block: EmbeddingBlock, metadata: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Rows of `features`, tokens with layers (index and rounded numbers), and `id`.

    A stack gives each layer its entry; layers that were combined share one, whose index is the list
    of them, or the one layer that was taken.
    """
    tokens = required(block.tokens, "tokens")
    indexes = layer_indexes(metadata)
    width = tokens.vectors.shape[1] // len(indexes)
    texts, splits = tokens.tokens.to_pylist(), tokens.splits.tolist()
    for name, (start, stop) in zip(block.ids.to_pylist(), pairwise(splits), strict=True):
        vectors = _rounded(tokens.vectors[start:stop], output_dtype(metadata))
        by_layer = vectors.reshape(stop - start, len(indexes), width)
        features = [
            {
                "token": token,
                "layers": [
                    {"index": index, "values": values}
                    for index, values in zip(indexes, layers, strict=True)
                ],
            }
            for token, layers in zip(texts[start:stop], by_layer, strict=True)
        ]
        yield {"features": features, "id": name}


def layer_indexes(metadata: dict[str, Any]) -> list[int | list[int]]:
    """The names of a token's layers, as they were requested.

    >>> layer_indexes({"layers": [-1, -2], "layer_combine": "stack"})
    [-1, -2]
    >>> layer_indexes({"layers": [-1, -2], "layer_combine": "sum"})
    [[-1, -2]]
    >>> layer_indexes({"layers": [-2, 5], "layer_combine": "last", "num_hidden_layers": 6})
    [-2]
    """
    layers = metadata["layers"]
    if metadata["layer_combine"] == "stack":
        return list(layers)
    if len(layers) == 1:
        return [layers[0]]
    if metadata["layer_combine"] == "last":
        states = metadata["num_hidden_layers"] + 1
        return [max(layers, key=lambda layer: layer % states)]
    return [list(layers)]


def _rounded(vectors: np.ndarray, dtype: str) -> np.ndarray:
    """float64 of the same shape, each as Python's `round` gives it."""
    coded = stored(vectors, dtype)
    numbers = restored(coded.values, coded.scale, dtype, vectors.shape[1])
    return np.round(numbers.astype(np.float64), _DECIMALS)
