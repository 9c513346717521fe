"""Find documents of an output whose vectors are nearly the same, and say which of them to keep.

Usage, from the clone's folder: python -m examples.near_duplicates OUTPUT FILE.parquet [COSINE]
It needs `pip install faiss-cpu`, and the vectors must fit into memory. Each document that is near
an earlier one that is kept, by default of a cosine of 0.95 or more, gets a row: `id`, `kept_id`,
`cosine`. For corpora of web pages text-dedup and NeMo Curator compare the texts themselves.
"""

import math
import sys
from collections.abc import Iterator
from itertools import pairwise

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import bert_embed

EXACT = 100_000  # rows up to which each is compared with all; beyond, with those of near lists
ROWS = 4096  # that are compared at a time


def near_earlier(vectors: np.ndarray, least: float) -> Iterator[tuple[int, int, float]]:
    """Yields each row that is near a kept one before it, with the nearest of these."""
    lists = f"IVF{4 * math.isqrt(len(vectors))}," if len(vectors) > EXACT else ""
    index = faiss.index_factory(vectors.shape[1], f"{lists}Flat", faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    if lists:
        index.nprobe = 16
    is_kept = np.ones(len(vectors), bool)
    for start in range(0, len(vectors), ROWS):
        limits, cosines, others = index.range_search(vectors[start : start + ROWS], least)
        for row, (begin, end) in enumerate(pairwise(limits), start):
            near, of_near = others[begin:end], cosines[begin:end]
            of_near = np.where((near < row) & is_kept[near], of_near, -1)
            if len(near) and of_near.max() >= least:
                is_kept[row] = False
                yield row, int(near[of_near.argmax()]), float(of_near.max())


def main(output: str, file: str, least: str = "0.95") -> None:
    """Writes the rows, and prints how many there are."""
    ids, vectors = bert_embed.read(output)
    faiss.normalize_L2(vectors)
    found = list(near_earlier(vectors, float(least)))
    columns = {
        "id": [ids[row] for row, _, _ in found],
        "kept_id": [ids[other] for _, other, _ in found],
        "cosine": [cosine for _, _, cosine in found],
    }
    pq.write_table(pa.table(columns), file)
    print(f"{len(found)} of {len(ids)} documents are near one that is kept: {file}")


if __name__ == "__main__":
    main(*sys.argv[1:])
