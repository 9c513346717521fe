"""Earlier outputs: what --skip_existing names in, outputs of the same kind of vectors out."""

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from bert.result_files import METADATA_KEY
from pipeline.options import EmbedOptions, UsageError
from transforms.earlier import EarlierOutput, key_files, sizes_digest
from transforms.earlier_table import table_facts, table_name
from transforms.examples import SETTINGS_FILE
from transforms.files import absolute, is_remote, join, list_files, names_in, open_raw, read_bytes

_BUCKET_KEYS = 1_000_000  # some 50 MB of hashes, compared in one worker's memory
_MOST_BUCKETS = 1 << 16
_ROW_BYTES = 256  # at least about that much a document's vector takes
_GLOB = frozenset("*?[")
# What may differ between outputs whose vectors can be used side by side.
_FREE = ("model_source", "tokens_with_ids", "compression")
# What follows from other settings, and is named only if none of those differs.
_DERIVED = ("shape", "token_shape", "num_hidden_layers", "normalize_tokens")
_READABLE = ("text", "jsonl", "csv", "parquet")


def check_increments(options: EmbedOptions) -> None:
    """Refuses flags that cannot go together.

    Raises:
        UsageError: Naming both.
    """
    if options.list_vanished and not options.skip_existing:
        raise UsageError("--list_vanished compares with --skip_existing, give that, too")
    if options.list_vanished and options.limit is not None:
        raise UsageError("--list_vanished would list all that --limit leaves out, give only one")


def check_formats(options: EmbedOptions, formats: set[str]) -> None:
    """Refuses input whose ids and texts cannot be looked at before the work begins."""
    others = sorted(formats - set(_READABLE))
    if others and (options.skip_existing or options.check_ids):
        flag = "skip_existing" if options.skip_existing else "check_ids"
        raise UsageError(f"--{flag} cannot go with {others[0]} input yet")


def earlier_outputs(
    options: EmbedOptions, output: str, vectors: Mapping[str, Any]
) -> tuple[EarlierOutput, ...]:
    """The outputs that --skip_existing names, in that order, each once.

    Args:
        options: As asked.
        output: Folder of this run, which a glob may match; it is left out.
        vectors: What the vectors of this run are.

    Raises:
        UsageError: One is no output, or its vectors are not such as this run makes.
    """
    folders: dict[str, None] = {}
    for named in options.skip_existing:
        for place in _places(named, output):
            folders.pop(place, None)  # named again: it counts where it was named last
            folders[place] = None
    return tuple(_earlier(number, place, vectors) for number, place in enumerate(folders))


def _places(named: str, output: str) -> Iterator[str]:
    """Folders of runs, or the one table."""
    path = absolute(named).rstrip("/")
    if path == output.rstrip("/"):
        raise UsageError(f"--skip_existing {named} is the --output of this very run")
    table = table_name(named)
    if table is not None and (is_remote(named) or not os.path.exists(path)):
        yield table
        return
    if _is_output(path):
        yield path
        return
    pattern = path if _GLOB & set(path) else join(path, "*")
    found = [each.path.rpartition("/")[0] for each in list_files(join(pattern, "run.json"))]
    if not found:
        raise UsageError(
            f"--skip_existing {named} names no output of a run: no run.json there or a folder below"
        )
    yield from (each for each in found if each != output.rstrip("/") and not _holds_examples(each))


def _holds_examples(folder: str) -> bool:
    """Whether `tokenize` wrote there, which is no output to compare with."""
    return read_bytes(join(folder, SETTINGS_FILE)) is not None


def _is_output(folder: str) -> bool:
    if _GLOB & set(folder):
        return False
    return "run.json" in names_in(folder) or key_files(folder)[0] is not None


def _earlier(number: int, place: str, vectors: Mapping[str, Any]) -> EarlierOutput:
    if table_name(place) == place:
        return _earlier_table(number, place, vectors)
    record = _record(place)
    if record is not None and record["files"]["format"] == "tfrecord":
        raise UsageError(
            f"--skip_existing {place} holds TFRecord files, which are not compared: name an output "
            "in Parquet or JSON lines, or a table"
        )
    files, sizes = key_files(place)
    settings = _settings(place, sizes) if record is None else record["vectors"]
    _check_same(place, settings, vectors)
    if files is None and settings["granularity"] == ["token"]:
        raise UsageError(
            f"--skip_existing {place} holds JSON lines of tokens, which tell no text_hash; only an "
            "output with other vectors, too, or in Parquet can be compared"
        )
    known = (record or {}).get("counts", {}).get("embedded")
    return EarlierOutput(
        number=number,
        place=place,
        files=files or "",
        digest=sizes_digest(sizes),
        documents=sum(sizes.values()) // _ROW_BYTES if known is None else known,
        complete=record is not None and record["status"] == "done",
        run=None if record is None else record["run"],
    )


def _earlier_table(number: int, place: str, vectors: Mapping[str, Any]) -> EarlierOutput:
    facts = table_facts(place)
    if facts.settings is None:
        raise UsageError(
            f"--skip_existing {place} does not tell what its vectors are: its description must "
            f"hold the key {METADATA_KEY}; name the output folder of the run that filled it"
        )
    _check_same(place, facts.settings, vectors)
    # Of a table that this very run fills the rows change; the table stays the same.
    digest = f"{facts.name} {facts.created}"
    return EarlierOutput(number, place, None, digest, facts.rows)


def _record(folder: str) -> dict[str, Any] | None:
    data = read_bytes(join(folder, "run.json"))
    if data is None:
        return None
    try:
        record = orjson.loads(data)
        if {"run", "status", "vectors", "files"} <= record.keys():
            return record
        if "examples" in record:
            raise UsageError(f"--skip_existing {folder} holds examples of `tokenize`, no vectors")
    except (orjson.JSONDecodeError, AttributeError):
        pass
    raise UsageError(f"--skip_existing {folder}: its run.json is not the record of a run")


def _settings(folder: str, sizes: Mapping[str, int]) -> dict[str, Any]:
    """What the vectors of a folder without a record are, by the footer of a file."""
    name = next(iter(sizes), "")
    if name.endswith(".parquet"):
        import pyarrow.parquet as pq

        with open_raw(join(folder, name)) as file:
            kept = (pq.read_metadata(file).metadata or {}).get(METADATA_KEY.encode())
        if kept is not None:
            return orjson.loads(kept)
    raise UsageError(
        f"--skip_existing {folder} does not tell what its vectors are: it has no run.json"
    )


def _check_same(place: str, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Refuses an output whose vectors cannot stand beside those of this run."""
    names = [name for name in (*ours, *sorted(theirs.keys() - ours.keys())) if name not in _FREE]
    differ = [name for name in names if theirs.get(name) != ours.get(name)]
    if differ:
        told = [
            f"{name} is {json.dumps(theirs.get(name))} there and {json.dumps(ours.get(name))} here"
            for name in [each for each in differ if each not in _DERIVED] or differ
        ]
        raise UsageError(
            f"--skip_existing {place} holds other vectors than this run would make: "
            f"{', '.join(told)}; ask for the same, or leave it out"
        )


def key_buckets(documents: int, earlier: tuple[EarlierOutput, ...]) -> int:
    """How many groups of ids are compared each by itself.

    >>> key_buckets(1_000, ()), key_buckets(2_500_000, ())
    (1, 3)
    """
    keys = documents + sum(each.documents for each in earlier)
    return min(keys // _BUCKET_KEYS + 1, _MOST_BUCKETS)


def earlier_lines(earlier: tuple[EarlierOutput, ...]) -> list[str]:
    """What is skipped, for the plan: a line an output."""
    return [
        f"without what {each.place} has with the same text"
        + ("" if each.complete else " (not a complete run: what is there counts)")
        for each in earlier
    ]


def increment_lines(record: Mapping[str, Any]) -> list[str]:
    """What a run's record says of ids, for the summary."""
    lines = []
    found = record.get("duplicate_ids")
    if found is not None and found["ids"]:
        lines.append(
            f"warning: {found['ids']:,} ids occur more than once, {found['surplus']:,} documents "
            f"too many: {', '.join(found['examples'])}"
        )
    elif found is not None:
        lines.append("no id occurs twice")
    if "vanished" in record:
        lines.append(f"{record['vanished']:,} documents vanished from the input (vanished-….jsonl)")
    return lines
