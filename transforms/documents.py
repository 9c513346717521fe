"""EmbedDocuments: a PCollection of records or strings in, the same records with vectors out."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import apache_beam as beam
from apache_beam.utils.windowed_value import WindowedValue

from transforms.text_model import (
    Document,
    EmbedTexts,
    Refusal,
    is_unicode,
    text_refusal,
)
from transforms.text_settings import text_model_settings

Record = dict[str, Any]


class EmbedDocuments(beam.PTransform):
    """Gives every record the vector of its text; for pipelines of other people.

    Elements are dicts, Rows, named tuples, or strings; a dict comes out for each, with all its
    fields as they were and the vector beside them. It keeps its timestamp and its window.

    Gives two collections: `embedded`, and `rejected` with a dict for each element that got no
    vector: `stage` and `reason`, as in the files of rejected records, and the element as
    `record`.

        embedded, rejected = records | EmbedDocuments(model="minilm", column="text")

    Args:
        model: "minilm", a folder, an archive or an address, as `bert.load` takes it. It is found
            and everything is checked when the transform is made, without TensorFlow.
        column: Where a record has its text; a string comes out under this name.
        output_column: Where the vector goes; what a record has there is replaced.
        text_b_column: Where a record has the second text of a pair; None: no pairs. A record
            without one is embedded alone.
        prompt: What stands before every text, or `name:` and the name that the model gives
            it; None is the model's own, "" none.
        max_seq_length: Most tokens of a row, special tokens and prompt included; None is the
            model's own.
        long_text: What becomes of longer texts: "truncate" cuts them, "window" gives the mean
            over windows, "reject" refuses them.
        stride: Tokens that neighbouring windows share; None is 64, or half of a short window.
        batch_tokens: Most tokens that are computed at once, filling included; None is what is
            fast where the model runs.
        threads: Processor cores the model uses; None takes all that a worker may use.
        large_model: Whether the worker processes of a machine share one model.
        max_batch_seconds: For streaming, whose bundles are often one element: how long an
            element may wait for others, in its window. None: batches never outlive a bundle.
        as_numpy: Vectors as float32 arrays rather than lists of float.
        **settings: What to change of the model's own settings: `layers`, `layer_combine`,
            `pooling`, `pool_special_tokens`, `dense`, `normalize`, `dim` (see
            `bert.vector_spec.VectorSpec`).

    Raises:
        ValueError: No such model, it cannot give such vectors, or column names that clash.
    """

    def __init__(
        self,
        model: str = "minilm",
        column: str = "text",
        output_column: str = "embedding",
        text_b_column: str | None = None,
        *,
        prompt: str | None = None,
        max_seq_length: int | None = None,
        long_text: str = "truncate",
        stride: int | None = None,
        precision: str = "float32",
        batch_tokens: int | None = None,
        threads: int | None = None,
        large_model: bool = False,
        max_batch_seconds: float | None = None,
        as_numpy: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__()
        _check_columns(column, output_column, text_b_column)
        if text_b_column is not None and long_text == "window":
            raise ValueError("long_text window is for single texts, text_b_column makes pairs")
        self._columns = column, text_b_column, output_column
        self._as_numpy = as_numpy
        self._settings = text_model_settings(
            model,
            prompt=prompt,
            max_seq_length=max_seq_length,
            long_text=long_text,
            stride=stride,
            precision=precision,
            batch_tokens=batch_tokens,
            threads=threads,
            large_model=large_model,
            max_batch_seconds=max_batch_seconds,
            **settings,
        )

    def expand(self, elements: beam.PCollection):  # any element, two collections: no type fits
        column, text_b_column, output_column = self._columns
        return (
            elements
            | "Pick" >> beam.ParDo(_Pick(column, text_b_column))
            | "Embed" >> EmbedTexts(self._settings)
            | "Place"
            >> beam.ParDo(_Place(column, output_column, self._as_numpy)).with_outputs(
                "rejected", main="embedded"
            )
        )


class _Pick(beam.DoFn):
    def __init__(self, column: str, text_b_column: str | None) -> None:
        self._column, self._text_b_column = column, text_b_column

    def process(
        self,
        element: Any,
        timestamp: Any = beam.DoFn.TimestampParam,
    ) -> Iterator[Document]:
        yield document(element, timestamp, self._column, self._text_b_column)


class _Place(beam.DoFn):
    def __init__(self, column: str, output_column: str, as_numpy: bool) -> None:
        self._column, self._output_column, self._as_numpy = column, output_column, as_numpy

    def process(
        self, embedded: Document, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[Record | beam.pvalue.TaggedOutput[Literal["rejected"], Record]]:
        tag, row = placed(embedded, self._column, self._output_column, self._as_numpy)
        # A TimestampedValue would have its window computed anew, which splits merged sessions.
        there = WindowedValue(row, embedded.timestamp, (window,))
        yield there if tag == "embedded" else beam.pvalue.TaggedOutput(tag, there)


def document(
    element: Any, timestamp: Any, column: str, text_b_column: str | None = None
) -> Document:
    """Takes the text, or the two, out of an element, or says why there is none.

    >>> document({"text": "one"}, 0, "text").texts
    ('one',)
    >>> document({"text": 1}, 0, "text").refusal
    Refusal(stage='read', reason='text is not a string', place=0)
    """
    fields = {column: element} if isinstance(element, str) else record_fields(element)
    if fields is None:
        return Document(element, timestamp, refusal=Refusal("read", "not a string or a record"))
    text: Any = fields.get(column)
    reason = text_refusal(text)
    if reason is not None:
        return Document(element, timestamp, refusal=Refusal("read", reason))
    if text_b_column is None:
        return Document(element, timestamp, (text,))
    text_b: Any = fields.get(text_b_column)
    if text_b is None:
        text_b = ""
    if not isinstance(text_b, str) or not is_unicode(text_b):
        refusal = Refusal("read", "second text is not a string")
        return Document(element, timestamp, refusal=refusal)
    return Document(element, timestamp, (text,), (text_b,))


def record_fields(element: Any) -> Mapping[str, Any] | None:
    """The fields of a dict, a Row or a named tuple; None where an element has none."""
    if isinstance(element, Mapping):
        return element
    return element._asdict() if hasattr(element, "_asdict") else None


def placed(
    embedded: Document, column: str, output_column: str, as_numpy: bool = False
) -> tuple[Literal["embedded", "rejected"], Record]:
    """The record that comes out of an embedded document, and where.

    >>> placed(document(" ", 0, "text"), "text", "embedding")
    ('rejected', {'stage': 'read', 'reason': 'empty text', 'record': ' '})
    """
    element, refusal = embedded.element, embedded.refusal
    if refusal is not None or embedded.vectors is None:
        assert refusal is not None, "a document that went through the model has one of both"
        why = {"stage": refusal.stage, "reason": refusal.reason}
        return "rejected", {**why, "record": element}
    vector = embedded.vectors[0]
    fields = {column: element} if isinstance(element, str) else record_fields(element) or {}
    return "embedded", {**fields, output_column: vector if as_numpy else vector.tolist()}


def _check_columns(column: str, output_column: str, text_b_column: str | None) -> None:
    given = {"column": column, "output_column": output_column}
    if text_b_column is not None:
        given["text_b_column"] = text_b_column
    for argument, name in given.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"{argument} must be the name of a field, got {name!r}")
    names = list(given.values())
    if len(set(names)) < len(names):
        told = ", ".join(f"{argument}={name!r}" for argument, name in given.items())
        raise ValueError(f"columns must differ from each other, got {told}")
