"""faiss: an inverted file, a range search of every row, and a greedy choice of what is kept."""

import argparse
import math

import faiss
import numpy as np

_ROWS = 10_000  # queries of a search, whose results are held
_PER_CLUSTER = 64  # rows that train a centroid, as many as ours


def main() -> None:
    """Writes bool `[rows]`, whether a row is removed: it is near a kept one before it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectors", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--threshold", type=float, required=True)
    parser.add_argument("--probes", type=int, required=True)
    args = parser.parse_args()
    vectors = np.load(args.vectors)
    faiss.normalize_L2(vectors)
    clusters = math.isqrt(len(vectors) - 1) + 1
    width = vectors.shape[1]
    quantizer = faiss.IndexFlatIP(width)
    index = faiss.IndexIVFFlat(quantizer, width, clusters, faiss.METRIC_INNER_PRODUCT)
    index.cp.max_points_per_centroid = _PER_CLUSTER
    index.train(vectors)
    index.add(vectors)
    index.nprobe = args.probes
    removed = np.zeros(len(vectors), bool)
    for at in range(0, len(vectors), _ROWS):
        splits, _, near = index.range_search(vectors[at : at + _ROWS], args.threshold)
        for row in range(len(splits) - 1):
            neighbours = near[splits[row] : splits[row + 1]]
            earlier = neighbours[neighbours < at + row]
            removed[at + row] = len(earlier) > 0 and not removed[earlier].all()
    np.save(args.output, removed)


if __name__ == "__main__":
    main()
