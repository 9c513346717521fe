"""Writes vectors of one kind, or finds the ten nearest of queries.

`write FOLDER KIND DOCUMENTS`, or `find FOLDER KIND QUERIES`.
"""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bert_embed.models.heads.vectors import MultiVectors, SparseVectors
from bert_embed.search.nearest import nearest

VOCABULARY, ENTRIES = 30_522, 200  # of documents
TOKENS, DIM = 32, 128
_QUERY_ENTRIES = 30
_FILE_ROWS = 20_000


def entries(random: np.random.Generator, count: int) -> np.ndarray:
    """int32 `[count]`, ascending: entries of the vocabulary, of which the first are common."""
    drawn = np.unique((random.random(3 * count) ** 3 * VOCABULARY).astype(np.int32))
    return np.sort(random.permutation(drawn)[:count])


def main() -> None:
    """Does what the command line says."""
    task, folder, kind, count = sys.argv[1:]
    if task == "write":
        _write(Path(folder), kind, int(count))
    else:
        _find(folder, kind, int(count))


def _find(folder: str, kind: str, queries: int) -> None:
    """Prints the best hit of each query."""
    random = np.random.default_rng(7)
    settings = {"output_dtype": "float16", "heads": {"multi": {"dim": DIM}}}
    if kind == "sparse":
        indices = np.concatenate([entries(random, _QUERY_ENTRIES) for _ in range(queries)])
        values = random.random(len(indices), np.float32)
        vectors = SparseVectors(np.arange(queries + 1) * _QUERY_ENTRIES, indices, values)
        found = nearest(folder, settings, vectors, 10, kind)
    else:
        tokens = random.standard_normal((queries * TOKENS, DIM), np.float32)
        tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
        multi = MultiVectors(np.arange(queries + 1) * TOKENS, tokens)
        found = nearest(folder, settings, multi, 10, kind)
    for hits in found:
        print(hits[0].id, hits[0].score)


def _write(output: Path, kind: str, documents: int) -> None:
    make = {"sparse": _sparse, "multi": _multi}[kind]
    (output / kind).mkdir(parents=True)
    random = np.random.default_rng(31)
    for number, first in enumerate(range(0, documents, _FILE_ROWS)):
        rows = min(_FILE_ROWS, documents - first)
        columns = {"id": pa.array([f"d{row}" for row in range(first, first + rows)])}
        columns |= make(random, rows)
        path = output / kind / f"part-{number:07d}-00000.parquet"
        pq.write_table(pa.table(columns), path, compression="zstd", use_dictionary=False)


def _sparse(random: np.random.Generator, rows: int) -> dict[str, pa.Array]:
    indices = np.stack([entries(random, ENTRIES) for _ in range(rows)])
    splits = pa.array(np.arange(rows + 1, dtype=np.int32) * ENTRIES)
    values = random.gamma(2, 0.3, indices.size).astype(np.float32)
    return {
        "indices": pa.ListArray.from_arrays(splits, pa.array(indices.ravel())),
        "values": pa.ListArray.from_arrays(splits, pa.array(values)),
    }


def _multi(random: np.random.Generator, rows: int) -> dict[str, pa.Array]:
    vectors = random.standard_normal((rows * TOKENS, DIM), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    tokens = pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float16).ravel()), DIM)
    splits = pa.array(np.arange(rows + 1, dtype=np.int32) * TOKENS)
    return {"embedding": pa.ListArray.from_arrays(splits, tokens)}


if __name__ == "__main__":
    main()
