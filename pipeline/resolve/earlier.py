"""Finds the earlier outputs that --skip_existing names, and checks that their vectors match."""

from collections.abc import Iterator, Mapping
from typing import Any

from bert_embed.formats.result_files import METADATA_KEY
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options import Options
from bert_embed.run_record import RunRecord, check_settings, read_record
from bert_embed.storage.errors import InputError
from bert_embed.storage.files import absolute, join, list_files, names_in, open_raw, read_bytes
from bert_embed.transforms.bigquery.earlier_table import table_facts, table_name
from bert_embed.transforms.examples.settings import are_settings
from bert_embed.transforms.increments.earlier import EarlierOutput, key_files, sizes_digest
from bert_embed.transforms.output_folder import RUN_FILE, SETTINGS_FILE
from bert_embed.transforms.records.same_vectors import difference
from bert_embed.typed_json import json_object

_ROW_BYTES = 256  # about the least that a document's vector takes
_GLOB = frozenset("*?[")


def check_formats(options: Options, formats: set[str]) -> None:
    """Refuses input whose ids and texts cannot be read before the work begins."""
    if "bigquery" in formats and options.check_ids:
        raise UsageError("--check_ids is not available for BigQuery: count the ids with a query")


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
    if _is_output(path):
        yield path
        return
    pattern = path if _GLOB & set(path) else join(path, "*")
    found = [each.path.rpartition("/")[0] for each in list_files(join(pattern, RUN_FILE))]
    if not found:
        raise UsageError(
            f"--skip_existing {named} names no output of a run: no run.json in it or a folder below"
        )
    yield from (each for each in found if each != output.rstrip("/") and not _holds_examples(each))


def _holds_examples(folder: str) -> bool:
    """Whether `tokenize` wrote the folder, which holds no vectors to compare with."""
    return are_settings(read_bytes(join(folder, SETTINGS_FILE)))


def _is_output(folder: str) -> bool:
    if _GLOB & set(folder):
        return False
    return RUN_FILE in names_in(folder) or key_files(folder)[0] is not None


def _earlier(number: int, place: str, vectors: Mapping[str, Any]) -> EarlierOutput:
    if table_name(place) == place:
        return _earlier_table(number, place, vectors)
    record = _record(place)
    if record is not None and record.files.format == "tfrecord":
        raise UsageError(
            f"--skip_existing {place} holds TFRecord files, which are not compared: name an output "
            "in Parquet or JSON lines, or a table"
        )
    if record is not None and "table_schema" in record.settings:
        raise UsageError(
            f"--skip_existing {place} was written with --table_schema "
            f"{record.settings['table_schema']}, which has no column text_hash to compare"
        )
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


def _earlier_table(number: int, place: str, vectors: Mapping[str, Any]) -> EarlierOutput:
    rows, created, settings = table_facts(place)
    if settings is None:
        raise UsageError(
            f"--skip_existing {place} does not describe its vectors: its description must "
            f"hold the key {METADATA_KEY}; name the output folder of the run that filled it"
        )
    _check_same(place, settings, vectors)
    # This run may add rows to the table, which stays the same table.
    return EarlierOutput(number, place, None, digest=f"{place} {created}", documents=rows)


def _record(folder: str) -> RunRecord | None:
    try:
        record = read_record(folder)
    except InputError as error:
        raise UsageError(f"--skip_existing {folder} cannot be compared: {error}") from error
    if record is not None and record.vectors is None:
        raise UsageError(f"--skip_existing {folder} holds examples of `tokenize`, not vectors")
    return record


def _settings(folder: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """The description of the vectors in a folder without a record, from a file's footer."""
    name = next(iter(sizes), "")
    if name.endswith(".parquet"):
        import pyarrow.parquet as pq

        with open_raw(join(folder, name)) as file:
            kept = (pq.read_metadata(file).metadata or {}).get(METADATA_KEY.encode())
        if kept is not None:
            settings = json_object(kept, f"{join(folder, name)}: {METADATA_KEY}")
            check_settings(settings, join(folder, name))
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
