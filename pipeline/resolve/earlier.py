"""Finds the earlier outputs that --skip_existing names, and checks that their vectors match."""

from collections.abc import Iterator, Mapping
from typing import Any

from bert_embed.fingerprints import difference
from bert_embed.formats.output_files import kinds_of
from bert_embed.formats.result_files import METADATA_KEY
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options import Options
from bert_embed.run_record import RunRecord, read_record, run_folders
from bert_embed.storage.errors import InputError
from bert_embed.storage.files import absolute, join, read_bytes
from bert_embed.transforms.bigquery.read import earlier_table_name, table_facts
from bert_embed.transforms.examples.write import are_settings
from bert_embed.transforms.increments import EarlierOutput, key_files, sizes_digest
from bert_embed.transforms.output_folder import SETTINGS_FILE

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
    if (table := earlier_table_name(named)) is not None:
        yield table
        return
    path = absolute(named).rstrip("/")
    if path == output.rstrip("/"):
        raise UsageError(f"--skip_existing {named} is the --output of this run")
    folders = run_folders(path)
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
    if earlier_table_name(place) == place:
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
    _check_same(place, record.settings, vectors)
    if files is None and kinds_of(record.settings) == ("token",):
        raise UsageError(
            f"--skip_existing {place} holds JSON lines of tokens, which have no text_hash; only "
            "outputs that also have other vectors, or Parquet, can be compared"
        )
    result = record.result
    return EarlierOutput(
        number=number,
        place=place,
        files=files or ("", ""),
        digest=sizes_digest(sizes),
        documents=sum(sizes.values()) // _ROW_BYTES if result is None else result.counts.embedded,
        complete=record.is_done,
        run=record.run,
    )


def _record(folder: str) -> RunRecord:
    """The record of a folder whose vectors can be compared."""
    try:
        record = read_record(folder)
    except InputError as error:
        raise UsageError(f"--skip_existing {folder} cannot be compared: {error}") from error
    if record is None or record.vectors is None:
        raise UsageError(f"--skip_existing {folder} holds examples of `tokenize`, not vectors")
    if record.files.format == "tfrecord":
        raise UsageError(
            f"--skip_existing {folder} holds TFRecord files, which are not compared: name an "
            "output in Parquet or JSON lines, or a table"
        )
    return record


def _check_same(place: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Refuses an output whose vectors are not comparable with those of this run."""
    differs = difference(theirs, ours)
    if differs is not None:
        raise UsageError(
            f"--skip_existing {place} holds other vectors than this run computes: {differs}; "
            "request the same, or leave it out"
        )
