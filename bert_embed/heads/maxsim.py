"""Scores multi-vectors by MaxSim, as late interaction does."""

import numpy as np

from bert_embed.heads.vectors import MultiVectors

_BLOCK = 1 << 16  # vectors that are compared at a time: 8 MB of products for 32 query tokens


def maxsim(query: np.ndarray, documents: MultiVectors) -> np.ndarray:
    """Returns float32 `[rows]`: for each vector of the query the largest product, summed.

    `query` is float32 `[tokens, dim]`. A document without a vector scores minus infinity.

    >>> rows = MultiVectors(np.array([0, 2, 2]), np.array([[1, 0], [0, 2]], np.float32))
    >>> maxsim(np.array([[1, 0], [1, 1]], np.float32), rows).tolist()
    [3.0, -inf]
    """
    lengths = np.diff(documents.splits)
    scores = np.full(len(lengths), -np.inf, np.float32)
    filled = np.flatnonzero(lengths)
    begins = documents.splits[filled]
    ends = documents.splits[filled + 1]
    start = 0
    while start < len(filled):  # whole documents, and at least one
        stop = max(start + 1, int(np.searchsorted(ends, begins[start] + _BLOCK, side="right")))
        products = documents.vectors[begins[start] : ends[stop - 1]] @ query.T
        best = np.maximum.reduceat(products, begins[start:stop] - begins[start])
        scores[filled[start:stop]] = best.sum(axis=1)
        start = stop
    return scores
