"""Results: a run's output folder in, its ids and vectors out."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

_SUFFIXES = (".parquet", ".jsonl")


def read(folder: str | os.PathLike[str]) -> tuple[list[str], np.ndarray]:
    """Reads what a run wrote, in the input's order.

    Args:
        folder: Output folder of a run.

    Returns:
        The ids, and float32 `[documents, dim]`, or `[documents, layers, dim]` for a stack.

    Raises:
        ValueError: The folder holds no vectors.
    """
    ids: list[str] = []
    vectors: list[np.ndarray] = []
    for path in vector_files(folder):
        found, rows = read_file(path)
        ids += found
        vectors.append(rows)
    settings = vector_settings(folder)
    joined = np.concatenate(vectors) if vectors else np.empty((0, settings["shape"][-1]), "f4")
    return ids, joined.reshape(-1, *settings["shape"])


def vector_files(folder: str | os.PathLike[str]) -> list[Path]:
    """The files of vectors of a run, sorted, which is the input's order."""
    found = Path(folder).glob("embeddings-*")
    return sorted(path for path in found if path.suffix in _SUFFIXES)


def read_file(path: Path) -> tuple[list[str], np.ndarray]:
    """Ids and float32 `[documents, width]` of one file; a stack lies flat."""
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        try:
            table = pq.read_table(path, columns=["id", "embedding"])
        except (ValueError, OSError) as error:
            raise ValueError(
                f"{path} is damaged: remove it and run the command that wrote it again"
            ) from error
        column = table["embedding"].combine_chunks()
        width = column.type.list_size
        return table["id"].to_pylist(), column.flatten().to_numpy().reshape(-1, width)
    rows = list(_lines(path))
    return [row["id"] for row in rows], np.array([row["embedding"] for row in rows], np.float32)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def vector_settings(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """What the vectors of a run are: model fingerprint, layers, pooling, shape and so on.

    Read from `run.json`, or from a Parquet file's own metadata where that was not kept.

    Raises:
        ValueError: The folder tells nothing of the kind.
    """
    record = read_run(folder)
    if record is not None:
        return record["vectors"]
    for path in vector_files(folder):
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            kept = pq.read_metadata(path).metadata.get(b"bert_embed")
            if kept is not None:
                return json.loads(kept)
    raise ValueError(f"{os.fspath(folder)} is not the output of a run: no run.json, no vectors")


def read_run(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The run's record, `run.json`, or None if it is not there."""
    try:
        return json.loads(Path(folder, "run.json").read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (NotADirectoryError, ValueError) as error:
        raise ValueError(f"{os.fspath(folder)}/run.json cannot be read: {error}") from error
