"""Writes vectors of one kind, or finds the ten nearest of queries.

`write FOLDER KIND DOCUMENTS`, or `find FOLDER KIND QUERIES`. Of the kind `bits`, ubinary vectors,
`find` takes a hundred candidates by their signs; of `numbers` it compares all of the same files.
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
BITS = 384
_QUERY_ENTRIES = 30
_CANDIDATES = 100
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
    if kind in ("bits", "numbers"):
        _find_bits(folder, random, queries, by_signs=kind == "bits")
        return
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


def _find_bits(folder: str, random: np.random.Generator, queries: int, by_signs: bool) -> None:
    settings = {"output_dtype": "ubinary", "shape": [BITS]}
    vectors = random.standard_normal((queries, BITS), np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = nearest(folder, settings, vectors, _CANDIDATES if by_signs else 10, by_signs=by_signs)
    for hits in found:
        best = max(hits, key=lambda hit: hit.by_whole_vector.score)
        print(best.id, best.by_whole_vector.score)


def _write(output: Path, kind: str, documents: int) -> None:
    make, name, rows_of_file = _MADE[kind]
    (output / name).mkdir(parents=True)
    random = np.random.default_rng(31)
    for number, first in enumerate(range(0, documents, rows_of_file)):
        rows = min(rows_of_file, documents - first)
        columns = {"id": pa.array([f"d{row}" for row in range(first, first + rows)])}
        columns |= make(random, rows)
        path = output / name / f"part-{number:07d}-00000.parquet"
        # As a run writes them: bytes have a dictionary, and vectors are not compressed.
        packed = "embedding.list.element" if kind == "bits" else None
        table = pa.table(columns)
        if packed is None:
            pq.write_table(table, path, compression="zstd", use_dictionary=False)
        else:
            coded = {"compression": {"id": "zstd", packed: "none"}, "use_dictionary": [packed]}
            pq.write_table(table, path, write_page_checksum=True, row_group_size=rows, **coded)


def _bits(random: np.random.Generator, rows: int) -> dict[str, pa.Array]:
    packed = random.integers(0, 256, (rows * BITS // 8,), np.uint8)
    return {"embedding": pa.FixedSizeListArray.from_arrays(pa.array(packed), BITS // 8)}


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


# What makes the columns, the folder, and rows of a file
_MADE = {
    "sparse": (_sparse, "sparse", _FILE_ROWS),
    "multi": (_multi, "multi", _FILE_ROWS),
    "bits": (_bits, "embeddings", 1 << 16),
}


if __name__ == "__main__":
    main()
