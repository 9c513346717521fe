"""Writes numbered files into a folder whose journal says of which export they are."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any, BinaryIO

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from bert_embed.base.errors import SettingError, StorageError, counted
from bert_embed.base.json import json_bytes
from bert_embed.bundle.find import resolve_model
from bert_embed.models.heads.vectors import SparseVectors
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.source import Cutter, Source, row_names
from bert_embed.pipeline.run.output import check_model
from bert_embed.results.files import Rows
from bert_embed.results.json_lines import json_values
from bert_embed.storage.files import (
    create_exclusive,
    is_remote,
    join,
    list_files,
    make_folder,
    read_bytes,
    sweep_temporary,
    write_bytes,
    write_whole,
)
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms.output_folder import lock_held

JOURNAL = "export.json"
_FORMAT = 1
_MOST_ROWS = 100_000


def rows_of_files(width: int, megabytes: int) -> int:
    """Returns how many vectors a file gets for a size of float32 numbers.

    >>> rows_of_files(384, 128), rows_of_files(3, 128)
    (87381, 100000)
    """
    return max(1, min(_MOST_ROWS, (megabytes << 20) // (4 * width)))


def write_parquet(file: BinaryIO, tables: Iterable[pa.Table], schema: pa.Schema) -> None:
    """Writes tables as they come, a row group each; equal tables give equal bytes."""
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)


@contextmanager
def alone_in(dest: str) -> Iterator[None]:
    """Refuses a second export that changes what is in DEST, where it is local."""
    if is_remote(dest):
        yield
        return
    with lock_held(join(dest, ".export.lock"), alone=True) as taken:
        if not taken:
            raise StorageError(f"another export writes to {dest} at this moment: wait for it")
        yield


def write_files(
    source: Source,
    rows: int,
    names: Callable[[int, int], tuple[str, ...]],
    write: Callable[[Sequence[str], int, Iterator[Rows]], None],
    journal: str | None = None,
    others: Mapping[str, bytes] | None = None,
) -> bool:
    """Writes the numbered files that are not there yet; False if the export was complete.

    `names` takes a number and the count of numbers; `write` takes paths and the count of their
    rows, and writes each whole or not at all. `journal`, by default `export.json` in DEST, says
    which export this is. `others` are further files by name.
    """
    dest = source.options.dest
    journal = journal or join(dest, JOURNAL)
    count = -(-source.rows // rows)
    numbered = [names(number, count) for number in range(count)]
    others = others or {}
    wanted = {name for names_of_number in (*numbered, others) for name in names_of_number}
    present = _files_below(dest)
    is_claimed = _is_claimed(dest, journal, source, wanted, present)
    if is_claimed and wanted <= present:
        return False
    make_folder(dest)
    if not is_remote(dest):
        sweep_temporary(dest)
    # An export that began at the same moment may have been first.
    if not is_claimed and not create_exclusive(journal, _journal(source)):
        _names_export(journal, source)
    for name in others.keys() - present:
        path = join(dest, name)
        make_folder(path.rpartition("/")[0])
        write_bytes(path, others[name])
    cutter = Cutter(source)
    for number, names_of_number in enumerate(numbered):
        in_files = min(rows, source.rows - number * rows)
        batches = cutter.take(in_files)
        if not present.issuperset(names_of_number):
            write([join(dest, name) for name in names_of_number], in_files, batches)
        for _ in batches:  # of files that are there: read, not written
            pass
    return True


_DELETED_ROWS = 100_000  # of a file


def deleted_names(source: Source) -> list[str]:
    """What an increment deletes, as `row_names` names it; UsageError where nothing names it."""
    if not source.continued:
        return []
    if source.options.granularity != "sentence":
        raise UsageError(
            f"--granularity {source.options.granularity} takes all outputs together: "
            f"{source.place} continues {source.continued[0].output}, and does not say how many "
            "rows a document had there"
        )
    names = [name for batch in source.deleted() for name in row_names(batch)]
    if any(name.endswith("#None") for name in names):
        raise UsageError(
            f"{source.place} deletes documents of a table, which does not say how many chunks they "
            "have: export to pgvector, or all outputs together"
        )
    return names


def deleted_files(
    names: Sequence[str], pattern: str, line: Callable[[str], bytes]
) -> dict[str, bytes]:
    """The files that tell a program what to delete, a line each; `pattern` takes their number."""
    starts = range(0, len(names), _DELETED_ROWS)
    return {
        pattern.format(number): b"".join(map(line, names[start : start + _DELETED_ROWS]))
        for number, start in enumerate(starts)
    }


def earlier_export(source: Source) -> dict[str, Any] | None:
    """What DEST holds, as `Source.identity`, if the outputs continue it or are in it; else None."""
    try:
        export = orjson.loads(read_bytes(join(source.options.dest, JOURNAL)) or b"{}")["export"]
        ours = _export(source)
        if any(export.get(name) != ours[name] for name in ours.keys() - {"source"}):
            return None
        held = export["source"]
        return held if source.continues(held, source.options.dest) else None
    except (AttributeError, KeyError, TypeError, orjson.JSONDecodeError):
        return None  # `write_files` says what is wrong


def write_journal(source: Source, journal: str, identity: Mapping[str, Any]) -> None:
    """Writes which export this is: of another `identity` than the source's, with its options."""
    write_bytes(journal, _journal(source, identity))


def _journal(source: Source, identity: Mapping[str, Any] | None = None) -> bytes:
    export = _export(source) | ({} if identity is None else {"source": identity})
    return json_bytes({"format": _FORMAT, "export": export})


def _is_claimed(
    dest: str, journal: str, source: Source, names: set[str], present: set[str]
) -> bool:
    """Whether a folder is of this export already; UsageError if it holds something else."""
    strange = sorted(present - names - {JOURNAL})
    if strange:
        raise UsageError(
            f"{dest} holds {strange[0]}, which is not of this export; choose another DEST"
        )
    is_claimed = _names_export(journal, source)
    if not is_claimed and present:
        raise UsageError(
            f"{dest} holds {min(present)} of an unknown export, as {journal} is missing; choose "
            "another DEST"
        )
    return is_claimed


def _files_below(dest: str) -> set[str]:
    """Names of all files below a folder, but for hidden ones."""
    above = join(dest, "")
    try:
        return {file.path.removeprefix(above) for file in list_files(above)}
    except SettingError as error:  # which is worded for inputs
        raise UsageError(f"DEST: {str(error).removeprefix('input ')}") from error


def _names_export(path: str, source: Source) -> bool:
    """Whether there is a journal; UsageError if it is another export's."""
    data = read_bytes(path)
    if data is None:
        return False
    try:
        is_same = orjson.loads(data)["export"] == _export(source)
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{path} is not the journal of an export; choose another DEST") from error
    if not is_same:
        raise UsageError(
            f"{source.options.dest} holds another export, as {path} says: choose another DEST, or "
            "remove both"
        )
    return True


def _export(source: Source) -> dict[str, Any]:
    """What an export continues only if it is the same."""
    options = source.options
    return {
        "target": options.to,
        "source": source.identity,
        "index": options.kind_of_index,
        "table": options.table,
        "restricts": list(options.restricts),
        "numeric_restricts": list(options.numeric_restricts),
        "embedding_metadata": list(options.embedding_metadata),
    }


_MEGABYTES = 16  # of the numbers of a file, which are about three times as many in JSON
_NUMBERS = 512  # that stand for the sparse vector of a row: some 200 pairs
_TOKENS = 128  # that stand for the multi-vector of a row
_JSON = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
# Of rows, the number of one of them, its name and its columns as JSON has them: its lines
Lines = Callable[[Rows, int, str, dict[str, Any]], Iterable[dict[str, Any]]]


def write_lines(
    source: Source,
    pattern: str,
    lines: Lines,
    journal: str | None = None,
    others: Mapping[str, bytes] | None = None,
    *,
    columns: Collection[str] | None = None,
    rows: int | None = None,
) -> bool:
    """Writes files of lines; False if they are there; the rest is as of `write_files`.

    `pattern` takes the number of a file, `lines` the `columns`, None for all; a file has so many
    `rows`, None for some 16 MiB of numbers.
    """

    def write(paths: Sequence[str], rows: int, batches: Iterator[Rows]) -> None:
        written = (
            line for batch in batches for line in _encoded(batch, lines, columns, source.parts)
        )
        write_whole(paths[0], lambda file: file.writelines(written))

    rows = rows or rows_of_files(numbers_of_row(source), _MEGABYTES)
    return write_files(
        source, rows, lambda number, _: (pattern.format(number),), write, journal, others
    )


def numbers_of_row(source: Source) -> int:
    """About how many float32 numbers the vectors of a row take."""
    numbers = {"dense": source.width, "sparse": _NUMBERS, "multi": _TOKENS * source.width}
    return sum(numbers[kind] for kind in source.kinds)


def _encoded(
    batch: Rows, lines: Lines, columns: Collection[str] | None, parts: Collection[str]
) -> Iterator[bytes]:
    names = batch.columns.column_names if columns is None else columns
    converted = {name: json_values(batch.columns[name]) for name in names}
    for row, row_name in enumerate(row_names(batch.columns, parts)):
        values = {name: column[row] for name, column in converted.items()}
        for line in lines(batch, row, row_name, values):
            yield orjson.dumps(line, option=_JSON)


def refuse_equal_ids(source: Source, program: str) -> None:
    """Refuses an output in which an id stands twice: the program would keep one of the two."""
    has_counted_all = True
    for folder, record in zip(source.options.source, source.records, strict=True):
        equal = record.numbers.equal_ids
        if not record.is_done or (equal is not None and not equal.exact):
            has_counted_all = False
        elif equal is not None and equal.surplus:
            raise UsageError(
                f"{folder} has {counted(equal.surplus, 'document')} whose id another one has, "
                f"{program} takes each id once: embed with another --id_column"
            )
    if shared := source.newest.shared():
        raise UsageError(
            f"{counted(shared, 'id')} of {source.place} {'is' if shared == 1 else 'are'} in "
            f"several outputs, none of which continues the other, but {program} takes each id "
            "once: export one of them, or embed with --skip_existing"
        )
    if not has_counted_all and (equal_names := source.equal_names()):
        raise UsageError(
            f"{source.place} has {counted(equal_names, 'row')} whose document's id another one "
            f"has, {program} takes each id once: embed with another --id_column"
        )


def entry_names(source: Source) -> list[str]:
    """The text of each entry; `[NUMBER]` where it is empty or has white space, or there is none."""
    options, settings = source.options, source.outputs[0].settings
    bundle = resolve_model(options.model or source.records[0].model.name, lambda bundle: ())
    check_model(bundle, settings, source.place)
    vocabulary = load_tokenizer(bundle).vocab
    texts = (*vocabulary, *repeat("", source.entries - len(vocabulary)))
    # Anserini cuts tokens at white space: such a name would be two tokens to it, or none.
    return [text if [text] == text.split() else f"[{entry}]" for entry, text in enumerate(texts)]


def named_weights(vectors: SparseVectors, row: int, names: Sequence[str]) -> dict[str, np.float32]:
    """The weights of one row by name; of entries with one name the largest."""
    entries = slice(*vectors.splits[row : row + 2])
    weights: dict[str, np.float32] = {}
    for entry, weight in zip(
        vectors.indices[entries].tolist(), vectors.values[entries], strict=True
    ):
        name = names[entry]
        weights[name] = max(weight, weights.get(name, weight))
    return weights
