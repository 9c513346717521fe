"""Writes rows as files of JSON lines, for the targets that take them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import orjson

from bert_embed.formats.output_files import PIECES
from bert_embed.formats.result_files import POSITION, Rows
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.journal import rows_of_files, write_files
from bert_embed.pipeline.export.source import Source
from bert_embed.storage.files import write_whole
from bert_embed.storage.plurals import counted
from bert_embed.transforms.write import json_values

_MEGABYTES = 16  # of the numbers of a file, which are about three times as many in JSON
_NUMBERS = 512  # that stand for the sparse vector of a row: some 200 pairs
_TOKENS = 128  # that stand for the multi-vector of a row
_JSON = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE
PARTS = (*PIECES, POSITION)  # columns that number the rows of a document

# Of rows, their columns as JSON has them, and the number of one of them: its lines
Lines = Callable[[Rows, dict[str, Any], int], Iterable[dict[str, Any]]]


def write_lines(source: Source, name: str, lines: Lines, journal: str | None = None) -> bool:
    """Writes files `NAME_0000.jsonl`; False if they are there. `journal`: see `write_files`."""

    def write(paths: Sequence[str], rows: int, batches: Iterator[Rows]) -> None:
        written = (line for batch in batches for line in _encoded(batch, lines))
        write_whole(paths[0], lambda file: file.writelines(written))

    rows = rows_of_files(numbers_of_row(source), _MEGABYTES)
    return write_files(
        source, rows, lambda number, _: (f"{name}_{number:04d}.jsonl",), write, journal
    )


def numbers_of_row(source: Source) -> int:
    """About how many float32 numbers the vectors of a row take."""
    numbers = {"dense": source.width, "sparse": _NUMBERS, "multi": _TOKENS * source.width}
    return sum(numbers[kind] for kind in source.kinds)


def _encoded(batch: Rows, lines: Lines) -> Iterator[bytes]:
    columns = {name: json_values(batch.columns[name]) for name in batch.columns.column_names}
    for row in range(len(batch)):
        values = {name: column[row] for name, column in columns.items()}
        for line in lines(batch, values, row):
            yield orjson.dumps(line, option=_JSON)


def row_id(values: dict[str, Any]) -> str:
    """The id of a document, or `DOCUMENT#NUMBER` of one of its windows, chunks or words."""
    part = next((name for name in PARTS if name in values), None)
    return str(values["id"]) if part is None else f"{values['id']}#{values[part]}"


def refuse_equal_ids(source: Source, program: str) -> None:
    """Refuses an output in which an id stands twice: the program would keep one of the two."""
    for folder, record in zip(source.options.source, source.records, strict=True):
        equal = record.numbers.equal_ids
        if equal is not None and equal.exact and equal.surplus:
            raise UsageError(
                f"{folder} has {counted(equal.surplus, 'document')} whose id another one has, "
                f"{program} takes each id once: embed with another --id_column"
            )
