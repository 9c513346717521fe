"""Adds the vectors of their texts to the records of any pipeline."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple, Unpack

import apache_beam as beam
from apache_beam.pvalue import PCollection
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints.decorators import IOTypeHints, get_type_hints
from apache_beam.utils.windowed_value import WindowedValue

from bert_embed.arguments import switch
from bert_embed.storage.errors import InputError, SettingError
from bert_embed.transforms.adapters.text_model import (
    Document,
    EmbedTexts,
    Rejection,
    is_unicode,
    text_rejection,
)
from bert_embed.transforms.adapters.text_settings import ModelSettings, text_model_settings

Record = dict[str, Any]
_MOST_NAMES = 20  # of the columns that a message lists


class Embedded(NamedTuple):
    """What EmbedDocuments gives: two collections, of which neither stands for both."""

    embedded: PCollection[Record]
    rejected: PCollection[Record]

    def __or__(self, transform: Any) -> Any:
        raise TypeError(
            "EmbedDocuments gives two collections, apply a transform to one of them: "
            "`embedded, rejected = texts | EmbedDocuments()`, or `(texts | "
            "EmbedDocuments()).embedded | …`"
        )


class EmbedDocuments(beam.PTransform):
    """Gives every record the vector of its text; for other people's pipelines.

    Elements are dicts, Rows, named tuples, or strings; each gives a dict of all its
    fields, unchanged, and the vector. It keeps its timestamp and its window.

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
        max_batch_seconds: How long an element may wait for others of its window; for streaming,
            whose bundles are often one element. None: a batch ends with its bundle.
        as_numpy: Whether vectors are float32 arrays rather than lists of float.
        **settings: `prompt`, `max_seq_length`, `long_text` and the like, as
            `bert_embed.transforms.adapters.text_settings.ModelSettings` has them.

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
        max_batch_seconds: float | None = None,
        as_numpy: bool = False,
        **settings: Unpack[ModelSettings],
    ) -> None:
        super().__init__()
        check_columns(
            settings, column=column, output_column=output_column, text_b_column=text_b_column
        )
        self._columns = column, text_b_column, output_column
        self._as_numpy = switch("as_numpy", as_numpy)
        self._settings = text_model_settings(model, max_batch_seconds, **settings)

    def expand(self, elements: PCollection[Any]) -> Embedded:
        column, text_b_column, output_column = self._columns
        picked = elements | "Pick" >> beam.Map(_picked, column, text_b_column)
        windowing = elements.windowing
        # A vector does not depend on a window, and a batch of one window may be a single text.
        if not windowing.is_default():
            picked |= "Leave windows" >> beam.WindowInto(GlobalWindows())
        placed = (
            picked
            | "Embed" >> EmbedTexts(self._settings)
            | "Place"
            >> beam.ParDo(_Place(column, output_column, self._as_numpy)).with_outputs(
                "rejected", main="embedded"
            )
        )
        for output in (placed.embedded, placed.rejected):
            output._windowing = windowing  # as Beam's Reshuffle does: `_Place` gives it back
        return Embedded(placed.embedded, placed.rejected)

    def default_type_hints(self) -> IOTypeHints:
        """Leaves out the types of `expand`: Beam has none for two collections, and would warn."""
        return get_type_hints(type(self))


def _picked(
    element: Any,
    column: str,
    text_b_column: str | None,
    at: Any = beam.DoFn.TimestampParam,
    window: Any = beam.DoFn.WindowParam,
    pane: Any = beam.DoFn.PaneInfoParam,
) -> Document:
    return replace(document(element, at, column, text_b_column), window=window, pane=pane)


class _Place(beam.DoFn):
    def __init__(self, column: str, output_column: str, as_numpy: bool) -> None:
        self._column, self._output_column, self._as_numpy = column, output_column, as_numpy

    def process(
        self, embedded: Document
    ) -> Iterator[Record | beam.pvalue.TaggedOutput[Literal["rejected"], Record]]:
        tag, row = placed(embedded, self._column, self._output_column, self._as_numpy)
        # A TimestampedValue would get a new window, which splits merged sessions.
        value = WindowedValue(row, embedded.timestamp, (embedded.window,), embedded.pane)
        yield value if tag == "embedded" else beam.pvalue.TaggedOutput(tag, value)


def document(
    element: Any, timestamp: Any, column: str, text_b_column: str | None = None
) -> Document:
    """Takes the text, or both texts, from an element, or says why there is none.

    >>> document({"text": "one"}, 0, "text").texts
    ('one',)
    >>> document({"text": 1}, 0, "text").rejection
    Rejection(stage='read', reason='text is not a string', place=0)
    >>> document({"text": "one", 2: "two"}, 0, "text").rejection
    Rejection(stage='read', reason="a field's name is not a string", place=0)
    """

    def rejected(reason: str) -> Document:
        return Document(element, timestamp, rejection=Rejection("read", reason))

    fields = {column: element} if isinstance(element, str) else record_fields(element)
    if fields is None:
        return rejected("not a string or a record")
    if not all(isinstance(name, str) for name in fields):
        return rejected("a field's name is not a string")  # nor could Beam's coder write it
    text: Any = fields.get(column)
    reason = text_rejection(text)
    if reason is not None:
        return rejected(reason)
    if text_b_column is None:
        return Document(element, timestamp, (text,))
    text_b: Any = fields.get(text_b_column)
    text_b = "" if text_b is None else text_b
    if not isinstance(text_b, str) or not is_unicode(text_b):
        return rejected("second text is not a string")
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
    if fields is None:
        value = element
    elif column in fields:
        value = fields[column]
    else:
        names = ", ".join(map(str, list(fields)[:_MOST_NAMES])) or "none"
        return NoColumnError(
            f"{column}: {reason}. Data does not contain the following columns: {column}. "
            f"It has {names}"
        )
    if isinstance(value, str):
        return InputError(f"{column}: {reason}")
    kind = type(value).__name__
    return NoTextError(
        f"{column}: {reason}. Embeddings can only be generated on str, not on {kind}"
    )


def record_fields(element: Any) -> Mapping[str, Any] | None:
    """The fields of a dict, a Row or a named tuple; None if an element has none."""
    if isinstance(element, Mapping):
        return element
    return element._asdict() if hasattr(element, "_asdict") else None


def placed(
    embedded: Document, column: str, output_column: str, as_numpy: bool = False
) -> tuple[Literal["embedded", "rejected"], Record]:
    """The output record of an embedded document, and the collection it goes to.

    >>> placed(document(" ", 0, "text"), "text", "embedding")
    ('rejected', {'stage': 'read', 'reason': 'empty text', 'record': ' '})
    """
    element, rejection = embedded.element, embedded.rejection
    if rejection is not None or embedded.vectors is None:
        if rejection is None:
            raise RuntimeError("after the model a document has neither a vector nor a rejection")
        why = {"stage": rejection.stage, "reason": rejection.reason}
        return "rejected", {**why, "record": element}
    kinds = embedded.vectors[0]
    value = plain_vectors(kinds, as_numpy)
    fields = {column: element} if isinstance(element, str) else record_fields(element) or {}
    return "embedded", {**fields, output_column: value}


def plain_vectors(kinds: Mapping[str, Any], as_numpy: bool) -> Any:
    """The vector of a text as others take it; several kinds are a dict by their names."""
    values = {kind: _value(kind, vector, as_numpy) for kind, vector in kinds.items()}
    return values if len(values) > 1 else next(iter(values.values()))


def _value(kind: str, vector: Any, as_numpy: bool) -> Any:
    if kind == "sparse":
        pair = zip(("indices", "values"), vector, strict=True)
        return {name: _value(name, numbers, as_numpy) for name, numbers in pair}
    if kind == "scores":
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
