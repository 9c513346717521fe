"""Finds the earlier outputs that --skip_existing names, and checks that their vectors match."""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow.parquet as pq

from bert_embed.formats.result_files import METADATA_KEY
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options import Options
from bert_embed.run_record import RunRecord, check_settings, read_record, run_folders
from bert_embed.storage.errors import InputError
from bert_embed.storage.files import absolute, join, open_raw, read_bytes
from bert_embed.storage.globs import is_glob
from bert_embed.transforms.bigquery.earlier_table import table_facts, table_name
from bert_embed.transforms.examples.settings import are_settings
from bert_embed.transforms.increments.earlier import EarlierOutput, key_files, sizes_digest
from bert_embed.transforms.output_folder import SETTINGS_FILE
from bert_embed.transforms.records.same_vectors import difference
from bert_embed.typed_json import json_object

_ROW_BYTES = 256  # about the least that a document's vector takes


def earlier_outputs(
    options: Options, output: str, vectors: Mapping[str, Any]
) -> tuple[EarlierOutput, ...]:
    """The outputs that --skip_existing names, in order, each once; not the run's own `output`."""
    folders: dict[str, None] = {}
    for named in options.skip_existing:
        for place in _places(named, output):
            folders.pop(place, None)  # of a place named twice, the last position counts
            folders[place] = None
    return tuple(_earlier(number, place, vectors) for number, place in enumerate(folders))


def _places(named: str, output: str) -> Iterator[str]:
    """Folders of runs, or the one table."""
    if (table := table_name(named)) is not None:
        yield table
        return
    path = absolute(named).rstrip("/")
    if path == output.rstrip("/"):
        raise UsageError(f"--skip_existing {named} is the --output of this run")
    folders = run_folders(path)
    if not folders and not is_glob(path) and key_files(path)[0] is not None:
        folders = [path]
    if not folders:
        raise UsageError(
            f"--skip_existing {named} names no output of a run: no run.json in it or a folder below"
        )
    for folder in folders:
        # What `tokenize` wrote holds no vectors to compare with.
        holds_examples = are_settings(read_bytes(join(folder, SETTINGS_FILE)))
        if folder == path or (folder != output.rstrip("/") and not holds_examples):
            yield folder


def _earlier(number: int, place: str, vectors: Mapping[str, Any]) -> EarlierOutput:
    if table_name(place) == place:
        rows, created, described = table_facts(place)
        if described is None:
            raise UsageError(
                f"--skip_existing {place} does not describe its vectors: its description must "
                f"hold the key {METADATA_KEY}; name the output folder of the run that filled it"
            )
        _check_same(place, described, vectors)
        # This run may add rows to the table, which stays the same table.
        return EarlierOutput(number, place, None, digest=f"{place} {created}", documents=rows)
    record = _record(place)
    files, sizes = key_files(place)
    settings = _settings(place, sizes) if record is None else record.settings
    _check_same(place, settings, vectors)
    if files is None and settings["granularity"] == ["token"]:
        raise UsageError(
            f"--skip_existing {place} holds JSON lines of tokens, which have no text_hash; only "
            "outputs that also have other vectors, or Parquet, can be compared"
        )
    result = None if record is None else record.result
    return EarlierOutput(
        number=number,
        place=place,
        files=files or ("", ""),
        digest=sizes_digest(sizes),
        documents=sum(sizes.values()) // _ROW_BYTES if result is None else result.counts.embedded,
        complete=record is not None and record.is_done,
        run=None if record is None else record.run,
    )


def _record(folder: str) -> RunRecord | None:
    """The record of a folder, None if there is none; it must be one that can be compared."""
    try:
        record = read_record(folder)
    except InputError as error:
        raise UsageError(f"--skip_existing {folder} cannot be compared: {error}") from error
    if record is None:
        return None
    if record.vectors is None:
        raise UsageError(f"--skip_existing {folder} holds examples of `tokenize`, not vectors")
    if record.files.format == "tfrecord":
        raise UsageError(
            f"--skip_existing {folder} holds TFRecord files, which are not compared: name an "
            "output in Parquet or JSON lines, or a table"
        )
    return record


def _settings(folder: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """The description of the vectors in a folder without a record, from a file's footer."""
    path = join(folder, next(iter(sizes), ""))
    if path.endswith(".parquet"):
        with open_raw(path) as file:
            stored = (pq.read_metadata(file).metadata or {}).get(METADATA_KEY.encode())
        if stored is not None:
            settings = json_object(stored, f"{path}: {METADATA_KEY}")
            check_settings(settings, path)
            return settings
    raise UsageError(f"--skip_existing {folder} does not describe its vectors: it has no run.json")


def _check_same(place: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Refuses an output whose vectors are not comparable with those of this run."""
    differs = difference(theirs, ours)
    if differs is not None:
        raise UsageError(
            f"--skip_existing {place} holds other vectors than this run computes: {differs}; "
            "request the same, or leave it out"
        )
