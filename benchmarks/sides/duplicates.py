"""Which of vectors the peers remove as near-duplicates: bool `[rows]`, written to a file.

"faiss": an inverted file, a range search of every row, and a greedy choice of what is kept: a row
is removed if it is near a kept one before it. "communities": sentence-transformers'
`community_detection`, which keeps the first of each.
"""

import argparse
import math

import numpy as np

_ROWS = 10_000  # queries of a search, whose results are held
_PER_CLUSTER = 64  # rows that train a centroid, as many as ours


def main() -> None:
    """Writes which rows are removed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=[*_SIDES])
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--threshold", type=float, required=True)
    parser.add_argument("--probes", type=int)
    args = parser.parse_args()
    removed = _SIDES[args.side](np.load(args.vectors), args.threshold, args.probes)
    np.save(args.output, removed)


def _faiss(vectors: np.ndarray, threshold: float, probes: int) -> np.ndarray:
    import faiss

    faiss.normalize_L2(vectors)
    clusters = math.isqrt(len(vectors) - 1) + 1
    width = vectors.shape[1]
    quantizer = faiss.IndexFlatIP(width)
    index = faiss.IndexIVFFlat(quantizer, width, clusters, faiss.METRIC_INNER_PRODUCT)
    index.cp.max_points_per_centroid = _PER_CLUSTER
    index.train(vectors)
    index.add(vectors)
    index.nprobe = probes
    removed = np.zeros(len(vectors), bool)
    for at in range(0, len(vectors), _ROWS):
        splits, _, near = index.range_search(vectors[at : at + _ROWS], threshold)
        for row in range(len(splits) - 1):
            neighbours = near[splits[row] : splits[row + 1]]
            earlier = neighbours[neighbours < at + row]
            removed[at + row] = len(earlier) > 0 and not removed[earlier].all()
    return removed


def _communities(vectors: np.ndarray, threshold: float, _: int | None) -> np.ndarray:
    from sentence_transformers.util import community_detection

    removed = np.zeros(len(vectors), bool)
    for community in community_detection(vectors, threshold, min_community_size=2):
        removed[community[1:]] = True
    return removed


_SIDES = {"faiss": _faiss, "communities": _communities}


if __name__ == "__main__":
    main()
