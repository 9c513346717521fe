"""Results: a run's output folder in, ids and vectors out, of texts, tokens, words or spans."""

import json
import os
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from bert.remote import SCHEME, read_remote, remote_files
from bert.result_files import FILE_STEMS, METADATA_KEY, DocumentUnits, read_sentences, read_units

_ENDINGS = (".parquet", ".jsonl", ".tfrecord", ".tfrecord.gz")
_PART = re.compile(r"[a-z]+-\d{7,}-\d{5,}(\.[a-z]+){1,2}")


def read(folder: str | os.PathLike[str]) -> tuple[list[str], np.ndarray]:
    """Reads the vectors of whole texts that a run wrote, in the input's order.

    Args:
        folder: Output folder of a run, local or gs://.

    Returns:
        The ids, and float32 `[documents, dim]`, or `[documents, layers, dim]` for a stack, decoded
        whatever type they were stored as. Where windows were kept a row is a window and its
        document's id is repeated.

    Raises:
        ValueError: The folder holds no such vectors, or a file is damaged.
    """
    settings = granular_settings(folder, "sentence")
    ids: list[str] = []
    vectors: list[np.ndarray] = []
    for path in vector_files(folder):
        found = read_sentences(path, settings)
        ids += found.ids
        vectors.append(found.vectors)
    joined = np.concatenate(vectors) if vectors else np.empty((0, settings["shape"][-1]), "f4")
    return ids, joined.reshape(-1, *settings["shape"])


def read_tokens(folder: str | os.PathLike[str]) -> Iterator[DocumentUnits]:
    """Reads the vectors of every document's tokens, in the input's order, a file at a time.

    Args:
        folder: Output folder of a run.

    Yields:
        A document's id, its tokens, where they stand, and their vectors.

    Raises:
        ValueError: The folder holds no such vectors, or a file is damaged.
    """
    return _read_units(folder, "token")


def read_words(folder: str | os.PathLike[str]) -> Iterator[DocumentUnits]:
    """Reads the vectors of every document's words; otherwise as `read_tokens`."""
    return _read_units(folder, "word")


def read_spans(folder: str | os.PathLike[str]) -> Iterator[DocumentUnits]:
    """Reads the vectors of every document's spans; otherwise as `read_tokens`."""
    return _read_units(folder, "span")


def is_remote(folder: str | os.PathLike[str]) -> bool:
    """Whether a run's folder lies in Cloud Storage."""
    return isinstance(folder, str) and folder.startswith(SCHEME)


def _read_units(folder: str | os.PathLike[str], granularity: str) -> Iterator[DocumentUnits]:
    settings = granular_settings(folder, granularity)
    files = vector_files(folder, granularity)
    return chain.from_iterable(read_units(path, granularity, settings) for path in files)


def vector_files(folder: str | os.PathLike[str], granularity: str = "sentence") -> Iterator[Path]:
    """The files of one kind of vectors of a run, sorted, which is the input's order.

    Of a folder in Cloud Storage each is a copy, which lies there until the next is asked for.
    """
    stem = f"{FILE_STEMS[granularity]}-"

    def is_ours(name: str) -> bool:
        return name.endswith(_ENDINGS) and _PART.fullmatch(name) is not None

    if is_remote(folder):
        yield from remote_files(os.fspath(folder), stem, is_ours)
        return
    yield from sorted(path for path in Path(folder).glob(f"{stem}*") if is_ours(path.name))


def granular_settings(folder: str | os.PathLike[str], granularity: str) -> dict[str, Any]:
    """What `vector_settings` gives, of a run that made this kind of vectors.

    Raises:
        ValueError: It made others; they are named.
    """
    settings = vector_settings(folder)
    made = settings.get("granularity", ["sentence"])
    if granularity not in made:
        raise ValueError(
            f"{os.fspath(folder)} holds vectors of {' and '.join(made)}, none of {granularity}: "
            f"embed with --granularity {granularity} into a folder of its own"
        )
    return settings


def vector_settings(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """What the vectors of a run are: model fingerprint, layers, pooling, shape and so on.

    Read from `run.json`, or from a Parquet file's own metadata where that was not kept.

    Raises:
        ValueError: The folder tells nothing of the kind.
    """
    record = read_run(folder)
    if record is not None:
        if "vectors" not in record:
            raise ValueError(
                f"{os.fspath(folder)} holds examples, no vectors: make them with `embed --input "
                f"{os.fspath(folder)}`"
            )
        return record["vectors"]
    for path in (path for name in FILE_STEMS for path in vector_files(folder, name)):
        if path.suffix == ".parquet":
            import pyarrow.parquet as pq

            kept = pq.read_metadata(path).metadata.get(METADATA_KEY.encode())
            if kept is not None:
                return json.loads(kept)
    raise ValueError(f"{os.fspath(folder)} is not the output of a run: no run.json, no vectors")


def read_run(folder: str | os.PathLike[str]) -> dict[str, Any] | None:
    """The run's record, `run.json`, or None if it is not there."""
    try:
        if is_remote(folder):
            data = read_remote(f"{os.fspath(folder).rstrip('/')}/run.json")
            if data is None:
                return None
            record = json.loads(data)
        else:
            record = json.loads(Path(folder, "run.json").read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (NotADirectoryError, ValueError, RecursionError) as error:
        raise ValueError(f"{os.fspath(folder)}/run.json cannot be read: {error}") from error
    made = record.get("vectors", record.get("examples")) if isinstance(record, dict) else None
    if not isinstance(made, dict):
        raise ValueError(f"{os.fspath(folder)}/run.json is not the record of a run")
    return record
