"""Reads the keys of the documents of an earlier output, file by file."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

import numpy as np
import orjson
import pyarrow as pa

from bert_embed.formats.kinds import KINDS
from bert_embed.storage.errors import InputError, SettingError, StorageError
from bert_embed.storage.files import open_raw
from bert_embed.transforms.bigquery.earlier_table import table_columns, table_streams
from bert_embed.transforms.increments.keys import EarlierKeys
from bert_embed.transforms.output_folder import OutputFolder, parse_name
from bert_embed.transforms.records.documents import id_hashes

_ROWS = 1 << 16  # read at a time
_KEY_COLUMNS = ["id", "text_hash"]


@dataclass(frozen=True)
class EarlierOutput:
    """An output whose documents are skipped, by its `number` among those that were named."""

    number: int
    place: str  # folder, or `project.dataset.table`
    files: tuple[str, str] | None  # kind and ending of those with its documents; None: a table
    digest: str  # of its listing, when the command line listed it
    documents: int
    complete: bool = True
    run: str | None = None


@dataclass(frozen=True)
class EarlierFile:
    """A file of an earlier output; without a path a stream of rows of a table."""

    output: int
    number: int
    folder: str
    path: str | None
    stream: str = ""


def key_files(folder: str) -> tuple[tuple[str, str] | None, dict[str, int]]:
    """Kind and ending of the smallest files with ids and hashes of texts; and their sizes."""
    sizes = OutputFolder(folder).data_files()
    for kind in sorted(KINDS.values(), key=lambda kind: kind.size):
        for place in kind.places:
            for ending in (".parquet", ".jsonl"):
                of_kind = _of_kind(sizes, place, ending)
                if of_kind and (kind.name, ending) != ("token", ".jsonl"):
                    return (place, ending), of_kind
    return None, {}


def _of_kind(sizes: dict[str, int], kind: str, ending: str) -> dict[str, int]:
    parsed = {name: parse_name(name) for name in sizes}
    return {
        name: sizes[name]
        for name, parsed_name in parsed.items()
        if parsed_name is not None and (parsed_name.kind, parsed_name.ending) == (kind, ending)
    }


def sizes_digest(sizes: dict[str, int]) -> str:
    """A hash of names and sizes; not of times, so that a copy of an output counts as the same."""
    return hashlib.sha256(repr(sorted(sizes.items())).encode()).hexdigest()


def earlier_files(output: EarlierOutput) -> list[EarlierFile]:
    """The files of an output, listed again; SettingError if they are others than before."""
    if output.files is None:
        return [
            EarlierFile(output.number, number, output.place, None, stream)
            for number, stream in enumerate(table_streams(output.place))
        ]
    folder = OutputFolder(output.place)
    sizes = _of_kind(folder.data_files(), *output.files)
    if sizes_digest(sizes) != output.digest:
        raise SettingError(
            "skip_existing",
            f"{output.place} changed while the job was being started; run it again",
        )
    return [
        EarlierFile(output.number, number, output.place, folder.path_of(name))
        for number, name in enumerate(sorted(sizes))
    ]


def earlier_keys(file: EarlierFile) -> Iterator[EarlierKeys]:
    """The keys of a file, some rows at a time; neighbouring windows of a document give one key."""
    for ids, text_hash in id_columns(file):
        hashes = id_hashes(ids)
        again = (hashes[1:] == hashes[:-1]) & (text_hash[1:] == text_hash[:-1])
        first = np.append(True, ~again)[: len(hashes)]
        output = np.full(len(hashes), file.output, np.int32)
        yield EarlierKeys(hashes, text_hash, output).take(first)


def id_columns(file: EarlierFile) -> Iterator[tuple[pa.StringArray, np.ndarray]]:
    """Ids, and int64 hashes of the texts, some rows at a time; InputError if damaged."""
    if file.path is None:
        yield from table_columns(file.folder, file.stream)
        return
    read = _parquet_columns if PurePosixPath(file.path).suffix == ".parquet" else _line_columns
    try:
        yield from read(file.path)
    except StorageError:
        raise
    except (pa.ArrowException, OSError, KeyError, TypeError, orjson.JSONDecodeError) as error:
        if getattr(error, "errno", None) is not None:  # of the file system, not of Arrow
            raise
        raise InputError(
            f"--skip_existing: {file.path} is damaged; remove it and its documents are embedded "
            "again"
        ) from error


def _parquet_columns(path: str) -> Iterator[tuple[pa.StringArray, np.ndarray]]:
    from bert_embed.formats.parquet_file import open_parquet

    with open_raw(path) as raw, open_parquet(raw) as file:
        for batch in file.iter_batches(_ROWS, columns=_KEY_COLUMNS):
            yield batch["id"].cast(pa.string()), batch["text_hash"].to_numpy()


def _line_columns(path: str) -> Iterator[tuple[pa.StringArray, np.ndarray]]:
    ids: list[str] = []
    hashes: list[int] = []
    with open_raw(path) as file:
        for line in file:
            row = orjson.loads(line)
            ids.append(str(row["id"]))
            hashes.append(row["text_hash"])
            if len(ids) == _ROWS:
                yield pa.array(ids, pa.string()), np.array(hashes, np.int64)
                ids, hashes = [], []
    yield pa.array(ids, pa.string()), np.array(hashes, np.int64)
