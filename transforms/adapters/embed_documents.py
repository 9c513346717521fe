"""Adds the vectors of their texts to the records of any pipeline."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields as fields_of
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Unpack, cast

import apache_beam as beam
from apache_beam.pvalue import DoOutputsTuple, PCollection, Row, TaggedOutput
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints.decorators import IOTypeHints, get_type_hints
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.typehints.typehints import TupleHint
from apache_beam.utils.windowed_value import WindowedValue

from bert_embed.base.arguments import missing, switch
from bert_embed.base.errors import InputError, SettingError, required
from bert_embed.transforms.adapters.text_model import (
    Document,
    ModelSettings,
    Rejection,
    run_inference,
    text_model_settings,
    text_rejection,
)

Record = dict[str, Any]
_MOST_NAMES = 20  # of the columns that a message lists
# Of the kinds of vectors in Rows that are no list of numbers.
_ROW_TYPES: dict[str, Any] = {
    "sparse": RowTypeConstraint.from_fields(
        [("indices", Sequence[int]), ("values", Sequence[float])]
    ),
    "multi": Sequence[Sequence[float]],
    "scores": Mapping[str, float],
}

if TYPE_CHECKING:

    class Embedded(NamedTuple):
        """What EmbedDocuments gives: two collections, of which neither stands for both."""

        embedded: PCollection[Any]
        rejected: PCollection[Any]

else:

    class Embedded(dict):
        """What EmbedDocuments gives: a pair of collections, in a dict as Beam YAML wants names."""

        def __init__(self, embedded: Any, rejected: Any = None) -> None:
            # Of a list of elements, `["a text"] | EmbedDocuments()`, Beam gives a dict of lists.
            is_dict = rejected is None
            super().__init__(embedded if is_dict else {"embedded": embedded, "rejected": rejected})
            self.embedded, self.rejected = self.values()

        def __iter__(self) -> Iterator[PCollection[Any]]:
            return iter(self.values())

        def __getitem__(self, place: str | int) -> PCollection[Any]:
            return tuple(self)[place] if isinstance(place, int) else super().__getitem__(place)

        def __or__(self, transform: Any) -> Any:
            raise TypeError(
                "EmbedDocuments gives two collections, apply a transform to one of them: "
                "`embedded, rejected = texts | EmbedDocuments()`, or `(texts | "
                "EmbedDocuments()).embedded | …`"
            )


class EmbedDocuments(beam.PTransform):
    """Gives every record the vector of its text; for other people's pipelines.

    Elements are dicts, Rows, named tuples, data classes, or strings; each gives a dict of all its
    fields, unchanged, and the vector. It keeps its timestamp and its window. A pair of a key and
    such an element gives a pair with the same key.

    Gives two collections: `embedded`, and `rejected` with a dict for each element without a
    vector: `stage` and `reason`, as in the files of rejected records, and the element as
    `record`.

        embedded, rejected = records | EmbedDocuments(model="minilm", column="text")

    Args:
        model: "minilm", a folder, an archive or an address, as `bert_embed.load` takes it. It is
            found and everything is checked when the transform is created, without TensorFlow.
        column: The field with the text; a string gets this name.
        output_column: The field for the vector; an existing value is replaced. Of `vectors`, dense
            is a list of float, sparse a dict of `indices` and `values`, multi a list for each
            token, scores a dict of float by label; several kinds are a dict by their names.
        text_b_column: The field with the second text of a pair; None: no pairs. A record
            without a second text is embedded alone.
        as_numpy: Whether vectors are float32 arrays rather than lists of float.
        as_rows: Whether results are Rows with a schema rather than dicts; the elements must be
            Rows, named tuples, data classes or strings, with their type known to Beam.
        **settings: `prompt`, `max_seq_length`, `long_text` and the like, as
            `bert_embed.transforms.adapters.text_model.ModelSettings` has them.

    Raises:
        ValueError: There is no such model, it cannot give such vectors, or column names conflict.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = "minilm",
        column: str = "text",
        output_column: str = "embedding",
        text_b_column: str | None = None,
        *,
        as_numpy: bool = False,
        as_rows: bool = False,
        **settings: Unpack[ModelSettings],
    ) -> None:
        super().__init__()
        check_columns(
            settings, column=column, output_column=output_column, text_b_column=text_b_column
        )
        self._columns = column, text_b_column, output_column
        self._as_numpy, self._as_rows = switch("as_numpy", as_numpy), switch("as_rows", as_rows)
        if as_numpy and as_rows:
            raise SettingError("as_numpy", "conflicts with as_rows: a schema has no arrays")
        self._settings = text_model_settings(model, text_b_column is not None, **settings)

    def expand(self, input_or_inputs: PCollection[Any]) -> Embedded:
        elements = input_or_inputs
        column, text_b_column, output_column = self._columns
        if elements.is_bounded:
            lacking = elements | "Look for column" >> beam.Map(_lacking, column)
            least = lacking | "Global window" >> beam.WindowInto(GlobalWindows())
            least |= "Least" >> beam.CombineGlobally(_least)
            _ = least | "Check column" >> beam.Map(_check_column, column)
        picked = elements | "Pick" >> beam.Map(_picked, column, text_b_column)
        windowing = elements.windowing
        # A vector does not depend on a window, and a batch of one window may be a single text.
        if not windowing.is_default():
            picked |= "Leave windows" >> beam.WindowInto(GlobalWindows())
        place = beam.ParDo(_Place(column, output_column, self._as_numpy))
        placed = cast(
            DoOutputsTuple,
            picked
            | "Embed" >> run_inference(self._settings).with_output_types(Document)
            | "Place" >> place.with_outputs("rejected", main="embedded"),
        )
        embedded, rejected = placed.embedded, placed.rejected
        for output in (embedded, rejected):
            output._windowing = windowing  # as Beam's Reshuffle does: `_Place` gives it back
        if not self._as_rows:
            return Embedded(embedded, rejected)
        types = self._row_types(elements.element_type)
        row = beam.Map(_row, output_column, self._settings.text_spec.vectors)
        rows = embedded | "Rows" >> row.with_output_types(types[0])
        rejected_rows = rejected | "Rejected rows" >> beam.Map(_row).with_output_types(types[1])
        return Embedded(cast(PCollection[Any], rows), cast(PCollection[Any], rejected_rows))

    def _row_types(self, element: Any) -> tuple[RowTypeConstraint, RowTypeConstraint]:
        """The schemas of both collections for elements of a type."""
        column, _, output_column = self._columns
        row: Any = element
        if element is not str and not isinstance(element, RowTypeConstraint):
            row = RowTypeConstraint.from_user_type(element)
        if row is None:
            is_pair = isinstance(element, TupleHint.TupleConstraint)
            cure = "give only the values" if is_pair else "declare it with with_output_types"
            raise SettingError(
                "as_rows",
                "requires elements with a schema, Rows, named tuples, data classes or strings, "
                f"got {element}: {cure}",
            )
        fields: dict[str, Any] = {column: str} if row is str else dict(row._fields)
        kinds = {
            kind: _ROW_TYPES.get(kind, Sequence[float]) for kind in self._settings.text_spec.vectors
        }
        vector = next(iter(kinds.values()))
        if len(kinds) > 1:
            vector = RowTypeConstraint.from_fields(list(kinds.items()))
        fields[output_column] = vector
        rejected: list[tuple[str, Any]] = [("stage", str), ("reason", str), ("record", row)]
        types = RowTypeConstraint.from_fields(list(fields.items()))
        return types, RowTypeConstraint.from_fields(rejected)

    def default_type_hints(self) -> IOTypeHints:
        """Leaves out the types of `expand`: Beam has none for two collections, and would warn."""
        return get_type_hints(type(self))


def _lacking(element: Any, column: str) -> str:
    """The fields of an element without the column; "" of any other."""
    fields = record_fields(value_of(element))
    if fields is None or column in fields:
        return ""
    return ", ".join(map(str, list(fields)[:_MOST_NAMES])) or "no fields"


def _least(names: Iterable[str]) -> str:
    return min(names, default="")


def _check_column(names: str, column: str) -> None:
    """Fails a job that would reject every element: nobody may look at the rejected ones."""
    if names:
        raise NoColumnError(f"no element has the column {column}, all are rejected: it has {names}")


def _picked(
    element: Any,
    column: str,
    text_b_column: str | None,
    at: Any = beam.DoFn.TimestampParam,
    window: Any = beam.DoFn.WindowParam,
    pane: Any = beam.DoFn.PaneInfoParam,
) -> Document:
    picked = document(value_of(element), at, column, text_b_column)
    return replace(picked, element=element, window=window, pane=pane)


class _Place(beam.DoFn):
    def __init__(self, column: str, output_column: str, as_numpy: bool) -> None:
        self._column, self._output_column, self._as_numpy = column, output_column, as_numpy

    def process(
        self, embedded: Document
    ) -> Iterator[Any | TaggedOutput[Literal["rejected"], Record]]:
        tag, row = placed(embedded, self._column, self._output_column, self._as_numpy)
        # A TimestampedValue would get a new window, which splits merged sessions.
        value = WindowedValue(row, embedded.timestamp, (embedded.window,), embedded.pane)
        yield value if tag == "embedded" else TaggedOutput(tag, value)


def value_of(element: Any) -> Any:
    """The element that has the text; of a pair with a key its value."""
    is_pair = isinstance(element, tuple) and len(element) == 2
    return element[1] if is_pair and not hasattr(element, "_fields") else element


def _row(record: Record, output_column: str | None = None, kinds: Sequence[str] = ()) -> Any:
    """A record as a Row, with its vector of these kinds as `_ROW_TYPES` has them."""
    if output_column is None:
        return Row(**record)
    return Row(**{**record, output_column: _row_vector(kinds, record[output_column])})


def _row_vector(kinds: Sequence[str], vector: Any) -> Any:
    if len(kinds) > 1:
        return Row(**{kind: _row_vector([kind], vector[kind]) for kind in kinds})
    return Row(**vector) if kinds[0] == "sparse" else vector


def document(
    element: Any, timestamp: Any, column: str, text_b_column: str | None = None
) -> Document:
    """Takes the text, or both texts, from an element, or says why there is none.

    >>> document({"text": "one"}, 0, "text").texts
    ('one',)
    >>> document({"text": 1}, 0, "text").rejection
    Rejection(stage='input', reason='text is not a string', place=0)
    >>> document({"text": "one", 2: "two"}, 0, "text").rejection
    Rejection(stage='input', reason="a field's name is not a string", place=0)
    """

    def rejected(reason: str) -> Document:
        return Document(element, timestamp, rejection=Rejection("input", reason))

    fields = {column: element} if isinstance(element, str) else record_fields(element)
    if fields is None:
        return rejected("not a string or a record" if missing(element) is None else "missing text")
    if not all(isinstance(name, str) for name in fields):
        return rejected("a field's name is not a string")  # nor could Beam's coder write it
    text: Any = fields.get(column)
    reason = text_rejection(text)
    if reason is not None:
        return rejected(reason)
    if text_b_column is None:
        return Document(element, timestamp, (text,))
    text_b: Any = fields.get(text_b_column)
    reason = text_rejection(text_b)
    if reason in ("missing text", "empty text"):
        reason, text_b = None, ""
    if reason is not None:
        return rejected(f"second {reason}")
    return Document(element, timestamp, (text,), (text_b,))


class NoTextError(InputError, TypeError):
    """A value that should be a text is none; a TypeError, as those of Beam's embeddings are."""


class NoColumnError(InputError, RuntimeError):
    """A record lacks a column; a RuntimeError, as those of Beam's embeddings are."""


def text_error(element: Any, column: str, reason: str) -> InputError:
    """The error for an element that is rejected, without its text.

    >>> text_error({"text": 1, "id": "a"}, "body", "missing text")
    NoColumnError('body: missing text. Data does not contain the following columns: body. \
It has text, id')
    >>> text_error({"text": 1}, "text", "text is not a string")
    NoTextError('text: text is not a string. Embeddings can only be generated on str, not on int')
    """
    fields = record_fields(element)
    if fields is not None and column not in fields:
        names = ", ".join(map(str, list(fields)[:_MOST_NAMES])) or "none"
        return NoColumnError(
            f"{column}: {reason}. Data does not contain the following columns: {column}. "
            f"It has {names}"
        )
    value = element if fields is None else fields[column]
    if isinstance(value, str):
        return InputError(f"{column}: {reason}")
    kind = type(value).__name__
    return NoTextError(
        f"{column}: {reason}. Embeddings can only be generated on str, not on {kind}"
    )


def record_fields(element: Any) -> Mapping[str, Any] | None:
    """The fields of a dict, a Row, a named tuple or a data class; None if an element has none."""
    if isinstance(element, Mapping):
        return element
    if isinstance(element, type):
        return None
    if is_dataclass(element):
        names = (one.name for one in fields_of(element))
        return {name: getattr(element, name) for name in names if hasattr(element, name)}
    return element._asdict() if hasattr(element, "_asdict") else None


def placed(
    embedded: Document, column: str, output_column: str, as_numpy: bool = False
) -> tuple[Literal["embedded", "rejected"], Any]:
    """The output record of an embedded document, and the collection it goes to.

    >>> placed(document(" ", 0, "text"), "text", "embedding")
    ('rejected', {'stage': 'input', 'reason': 'empty text', 'record': ' '})
    """
    element, rejection = embedded.element, embedded.rejection
    if rejection is not None:
        row = {"stage": rejection.stage, "reason": rejection.reason, "record": element}
        return "rejected", row
    value = plain_vectors(required(embedded.vectors, "vector")[0], as_numpy)
    record = value_of(element)
    fields = {column: record} if isinstance(record, str) else record_fields(record) or {}
    row = {**fields, output_column: value}
    return "embedded", row if record is element else (element[0], row)


def plain_vectors(kinds: Mapping[str, Any], as_numpy: bool) -> Any:
    """The vector of a text as others take it; several kinds are a dict by their names."""
    values = {kind: _value(vector, as_numpy) for kind, vector in kinds.items()}
    return values if len(values) > 1 else next(iter(values.values()))


def _value(vector: Any, as_numpy: bool) -> Any:
    if isinstance(vector, tuple):
        pair = zip(("indices", "values"), vector, strict=True)
        return {name: _value(numbers, as_numpy) for name, numbers in pair}
    if isinstance(vector, dict):
        return vector
    return vector.copy() if as_numpy else vector.tolist()


def check_columns(settings: Mapping[str, Any], **columns: str | None) -> None:
    """Checks the names of columns, of which `text_b_column` may be None."""
    if columns["text_b_column"] is None:
        del columns["text_b_column"]
    elif settings.get("long_text") == "window":
        raise SettingError("long_text", "window is for single texts, text_b_column makes pairs")
    for argument, name in columns.items():
        if not isinstance(name, str) or not name:
            raise SettingError(argument, f"must be the name of a field, got {name!r}")
    if len(set(columns.values())) < len(columns):
        listed = ", ".join(f"{argument}={name!r}" for argument, name in columns.items())
        raise SettingError("columns", f"must differ from each other, got {listed}")
