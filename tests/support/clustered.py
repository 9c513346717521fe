"""Outputs of runs with vectors made by hand, to cluster and to search for duplicates."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bert_embed.results.names import stored
from tests.support.records import whole_record


def write_output(
    folder: Path,
    vectors: np.ndarray,
    ids: list[Any] | None = None,
    files: int = 3,
    dtype: str = "float32",
) -> Path:
    """Writes float32 `[rows, width]` as the complete output of a run; returns the folder."""
    ids = [f"doc-{row}" for row in range(len(vectors))] if ids is None else ids
    (folder / "embeddings").mkdir(parents=True)
    size = 0
    for number, rows in enumerate(np.array_split(np.arange(len(vectors)), files)):
        kept = stored(vectors[rows], dtype)
        width = kept.values.shape[1]
        columns = {"id": pa.array([ids[row] for row in rows])}
        columns["embedding"] = pa.FixedSizeListArray.from_arrays(kept.values.ravel(), width)
        if kept.scale is not None:
            columns["scale"] = pa.array(kept.scale)
        path = folder / "embeddings" / f"part-{number:07d}-00000.parquet"
        pq.write_table(pa.table(columns), path, write_page_checksum=True)
        size += path.stat().st_size
    vectors_are = {
        "shape": [vectors.shape[1]],
        "output_dtype": dtype,
        "id_type": "string" if not ids or isinstance(ids[0], str) else "int64",
    }
    written = {"embeddings": {"files": files, "bytes": size, "rows": len(vectors)}}
    record = whole_record(vectors_are, len(vectors), run="made-by-hand", written=written)
    (folder / "run.json").write_text(json.dumps(record))
    return folder


def clustered_vectors(rows: int, width: int = 32, groups: int = 40, seed: int = 0) -> np.ndarray:
    """float32 `[rows, width]` around some centres; a tenth nearly repeat others, some exactly."""
    generator = np.random.default_rng(seed)
    centres = generator.normal(size=(groups, width))
    vectors = centres[generator.integers(0, groups, rows)]
    vectors = vectors + 0.6 * generator.normal(size=vectors.shape)
    some = rows // 10
    target, source = generator.integers(0, rows, (2, some))
    vectors[target] = vectors[source] + 0.05 * generator.normal(size=(some, width))
    target = generator.integers(0, rows, rows // 50)
    vectors[target] = vectors[0]
    return vectors.astype(np.float32)
