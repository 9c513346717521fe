"""Documents: what lines give, file by file and joined to the columns of a part."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from transforms.dead_letter import Rejected
from transforms.sources.columns import Columns


@dataclass(frozen=True)
class Documents:
    """Documents as columns, and the lines that are none.

    Attributes:
        ids: Arrow strings `[documents]`.
        texts: The texts, none of them blank.
        sources: Arrow strings `[documents]`, file and position of each.
        line_numbers: int64 `[documents]`, number of each one's line in its file, from 0; of no use
            where the lines do not know the number of their first.
        rejected: The lines refused, in their order.
        texts_b: The second texts, "" for a document without; None where no line can have one.
        words: The words of a text that came as a list of words, None for any other; None where no
            text came so.
        spans: Code points `[start, stop)` in the text; None where no line can have any.
        extra: The columns to pass through; None where no line can have any.
    """

    ids: pa.StringArray
    texts: list[str]
    sources: pa.StringArray
    line_numbers: np.ndarray
    rejected: list[Rejected]
    texts_b: list[str] | None = None
    words: list[list[str] | None] | None = None
    spans: list[list[tuple[int, int]]] | None = None
    extra: pa.Table | None = None


def join_documents(found: Sequence[Documents], columns: Columns) -> Documents:
    """The documents of several files end to end.

    Args:
        found: What each file gave.
        columns: What the run asks for; of what a file cannot have its documents get "" for a
            second text, no span, and null in the columns to pass through.
    """
    listed = any(each.words is not None for each in found)
    return Documents(
        ids=_end_to_end([each.ids for each in found]),
        texts=list(chain.from_iterable(each.texts for each in found)),
        sources=_end_to_end([each.sources for each in found]),
        line_numbers=np.concatenate([np.empty(0, np.int64), *(e.line_numbers for e in found)]),
        rejected=list(chain.from_iterable(each.rejected for each in found)),
        texts_b=list(chain.from_iterable(map(_texts_b, found))) if columns.has_pairs else None,
        words=list(chain.from_iterable(map(_words, found))) if listed else None,
        spans=list(chain.from_iterable(map(_spans, found))) if columns.spans else None,
        extra=_extra(found, columns.extra) if columns.extra else None,
    )


def _end_to_end(arrays: list[pa.StringArray]) -> pa.StringArray:
    return pa.concat_arrays(arrays) if arrays else pa.array([], pa.string())


def _texts_b(found: Documents) -> list[str]:
    return [""] * len(found.texts) if found.texts_b is None else found.texts_b


def _words(found: Documents) -> list[list[str] | None]:
    return [None] * len(found.texts) if found.words is None else found.words


def _spans(found: Documents) -> list[list[tuple[int, int]]]:
    return [[] for _ in found.texts] if found.spans is None else found.spans


def _extra(found: Sequence[Documents], schema: pa.Schema) -> pa.Table:
    tables = [schema.empty_table()]
    for each in found:
        if each.extra is not None:
            tables.append(each.extra)
        elif each.texts:
            nulls = [pa.nulls(len(each.texts), field.type) for field in schema]
            tables.append(pa.Table.from_arrays(nulls, schema=schema))
    return pa.concat_tables(tables)
