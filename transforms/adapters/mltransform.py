"""Embeds texts within Beam's MLTransform and its RAG pipelines."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Unpack

import apache_beam as beam
import numpy as np
from apache_beam.ml.inference.base import RunInferenceDLQ
from apache_beam.ml.rag.embeddings.base import create_text_adapter
from apache_beam.ml.rag.types import EmbeddableItem, Embedding
from apache_beam.ml.transforms.base import EmbeddingsManager
from apache_beam.utils.windowed_value import WindowedValue

from bert_embed.base.arguments import path_text
from bert_embed.base.errors import InputError, SettingError
from bert_embed.bundle.find import local_place, resolve_model
from bert_embed.model import Embedder
from bert_embed.settings import TextSpec, VectorSpec
from bert_embed.transforms.adapters.embed_documents import record_fields, text_error
from bert_embed.transforms.adapters.model_handler import BertModelHandler
from bert_embed.transforms.adapters.text_model import (
    Document,
    ModelSettings,
    Rejection,
    TextModelSettings,
    run_inference,
    text_model_settings,
    text_rejection,
)
from bert_embed.transforms.steps import Step

_CONTENT = ("content.text",)  # the name of an EmbeddableItem's text in messages


class BertEmbeddings(EmbeddingsManager):
    """Embeds columns of records, or the texts of EmbeddableItems, within MLTransform.

        MLTransform(write_artifact_location=DIR).with_transform(
            BertEmbeddings(model="minilm", columns=["text"], output_columns=["embedding"])
        )

    A column's vector is a list of float and replaces the text, as with Beam's own embeddings, or
    is in a column of its own. Without `columns` the elements are EmbeddableItems (or
    Chunks, which are the same), whose `embedding` is set: its dense and sparse sides, by `vectors`.

    A record without a text, or whose text has no token, fails the pipeline; with
    `MLTransform.with_exception_handling` only this record goes to the failed ones.

    Args:
        model: "minilm", a folder, an archive or an address, as `bert_embed.load` takes it. It is
            found and everything is checked when this is created, without TensorFlow.
        columns: The columns with texts; None: elements are EmbeddableItems.
        output_columns: The columns for their vectors, as many; None: those of the texts.
        **settings: `prompt`, `max_seq_length`, `long_text` and the like, as
            `bert_embed.transforms.adapters.text_model.ModelSettings` has them; texts that
            "reject" rejects fail.

    Raises:
        ValueError: There is no such model, it cannot give such vectors, or the columns are wrong.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = "minilm",
        columns: Sequence[str] | None = None,
        output_columns: Sequence[str] | None = None,
        **settings: Unpack[ModelSettings],
    ) -> None:
        _check_columns(columns, output_columns)
        super().__init__(
            columns=None if columns is None else list(columns),
            type_adapter=create_text_adapter() if columns is None else None,
            large_model=settings.get("large_model", False),
        )
        self.output_columns = self.columns if output_columns is None else list(output_columns)
        self.model = path_text("model", model)
        self._given, self._settings = settings, text_model_settings(model, **settings)
        _check_kinds(self._settings.text_spec.vectors, columns)

    def get_model_handler(self) -> "VectorHandler":
        return VectorHandler(self.model, (self.columns or ["text"])[0], **self._given)

    def get_ptransform_for_processing(self, **kwargs: Any) -> "EmbedColumns":
        ours = self._settings
        specs = {"spec": ours.spec.to_dict(), "text_spec": ours.text_spec.to_dict()}
        model = str(local_place(ours.model) or ours.model)
        settings = {**asdict(ours), **specs, "model": model, "bundle": ""}
        return EmbedColumns(settings, self.columns, self.output_columns)


class VectorHandler(BertModelHandler):
    """Gives the vectors alone, as Beam's embeddings do; dense ones are an array of all."""

    def run_inference(
        self,
        batch: Sequence[Any],
        model: Embedder,
        inference_args: dict[str, Any] | None = None,
    ) -> Any:
        vectors = self.vectors(batch, model)
        return np.stack(vectors) if isinstance(vectors[0], np.ndarray) else vectors

    def __repr__(self) -> str:
        return BertEmbeddings.__name__


@dataclass
class EmbedColumns(Step):
    """Adds vectors to elements; MLTransform writes this transform to its artifacts.

    `settings` are the fields of a TextModelSettings as plain values: the bundle is found again
    where the artifacts are read, and must be the same model. The rest is as in BertEmbeddings.
    """

    settings: dict[str, Any]
    columns: list[str] | None
    output_columns: list[str] | None
    exception_handling: dict[str, Any] | None = field(default=None)

    def default_label(self) -> str:
        """Names what tells two transforms apart: model, columns and kinds of vectors."""
        outputs = self.output_columns if self.output_columns != self.columns else []
        names = [self.settings["model"], *(self.columns or _CONTENT), *(outputs or [])]
        kinds = self.settings["text_spec"].get("vectors", ())
        return f"BertEmbeddings({', '.join([*names, *kinds])})".replace("/", "|")

    def with_exception_handling(self, **arguments: Any) -> "EmbedColumns":
        """Returns failed elements in a collection of their own; arguments as in Beam's ParDo."""
        return replace(self, exception_handling=arguments)

    def expand(self, elements: beam.PCollection):  # one collection, or two: no type fits
        documents = elements | "Pick" >> beam.Map(_picked, self.columns)
        infer, check = run_inference(self._found()), beam.Map(_checked, self.columns or _CONTENT)
        place = beam.Map(_placed, self.output_columns)
        if self.exception_handling is None:
            embedded = documents | "Infer" >> infer.with_output_types(Document)
            return embedded | "Check" >> check | "Place" >> place
        infer = infer.with_exception_handling(**self.exception_handling)
        check = check.with_exception_handling(**self.exception_handling)
        embedded, failed = documents | "Infer" >> infer
        good, bad = embedded | "Check" >> check
        failures = (bad, failed.failed_inferences) | "Failures" >> beam.Flatten()
        failures |= "Split" >> beam.FlatMap(_split)
        # In this MLTransform names the transform in its rows, by an annotation.
        return good | "Place" >> place, RunInferenceDLQ(failures, [], [])

    def annotations(self) -> dict[str, Any]:
        return {**super().annotations(), "model_handler": BertEmbeddings.__name__}

    def _found(self) -> TextModelSettings:
        specs = {
            "spec": VectorSpec.from_dict(self.settings["spec"]),
            "text_spec": TextSpec.from_dict(self.settings["text_spec"]),
        }
        settings = TextModelSettings(**{**self.settings, **specs})
        bundle = resolve_model(settings.model)
        if bundle.fingerprint != settings.fingerprint:
            raise InputError(
                f"model {settings.model} is another one than when the artifacts were written: "
                f"fingerprint {bundle.fingerprint}, expected {settings.fingerprint}"
            )
        return replace(settings, bundle=bundle.path)


def _picked(
    element: Any, columns: list[str] | None, at: Any = beam.DoFn.TimestampParam
) -> Document:
    return document(element, at, columns)


def _checked(embedded: Document, columns: Sequence[str]) -> Document:
    rejection = embedded.rejection
    if rejection is not None:
        raise text_error(embedded.element, columns[rejection.place], rejection.reason)
    return embedded


def _placed(
    embedded: Document, output_columns: list[str] | None, window: Any = beam.DoFn.WindowParam
) -> Any:
    # A TimestampedValue would get a new window, which splits merged sessions.
    return WindowedValue(placed(embedded, output_columns), embedded.timestamp, (window,))


def _split(
    failure: tuple[Any, tuple[type, str, list[str]]], window: Any = beam.DoFn.WindowParam
) -> Iterator[Any]:
    """Splits what Beam caught, a document or a batch, into a failure of each element."""
    failed, error = failure
    for embedded in failed if isinstance(failed, list) else [failed]:
        yield WindowedValue((embedded.element, error), embedded.timestamp, (window,))


def document(element: Any, timestamp: Any, columns: Sequence[str] | None) -> Document:
    """Takes the texts from a record or an EmbeddableItem, or says why one is missing."""
    fields: Mapping[str, Any] | None
    if columns is None:
        columns = _CONTENT
        is_item = isinstance(element, EmbeddableItem)
        fields = {_CONTENT[0]: element.content.text} if is_item else None
    else:
        fields = record_fields(element)
    if fields is None:
        return Document(element, timestamp, rejection=Rejection("input", "not a record"))
    texts: tuple[Any, ...] = tuple(fields.get(column) for column in columns)
    for place, text in enumerate(texts):
        reason = text_rejection(text)
        if reason is not None:
            return Document(element, timestamp, rejection=Rejection("input", reason, place))
    return Document(element, timestamp, texts)


def placed(embedded: Document, output_columns: Sequence[str] | None) -> Any:
    """A copy of the element with its vectors, as lists of float."""
    element = embedded.element
    texts = embedded.vectors or ()
    if output_columns is None:
        embedding = element.embedding or Embedding()  # it may have the other kind already
        made = {f"{kind}_embedding": _as_lists(vector) for kind, vector in texts[0].items()}
        return replace(element, embedding=replace(embedding, **made))
    vectors = [_as_lists(kinds["dense"]) for kinds in texts]
    fields = {**element} if isinstance(element, Mapping) else element._asdict()
    fields |= dict(zip(output_columns, vectors, strict=True))
    return fields if isinstance(element, Mapping) else beam.Row(**fields)


def _as_lists(vector: Any) -> Any:
    """A dense vector as a list, a sparse one as a pair of lists."""
    return tuple(map(_as_lists, vector)) if isinstance(vector, tuple) else vector.tolist()


def _check_kinds(kinds: Sequence[str], columns: Sequence[str] | None) -> None:
    offered = ("dense",) if columns is not None else ("dense", "sparse")
    for kind in kinds:
        if kind not in offered:
            where = "EmbeddableItems" if columns is None else "columns"
            raise SettingError(
                "vectors", f"{kind} cannot be given to {where}, which take {' and '.join(offered)}"
            )


def _check_columns(columns: Sequence[str] | None, output_columns: Sequence[str] | None) -> None:
    for argument, names in {"columns": columns, "output_columns": output_columns}.items():
        if names is None:
            continue
        listed = isinstance(names, Sequence) and all(isinstance(name, str) for name in names)
        if isinstance(names, str) or not listed or not names or len(set(names)) < len(names):
            raise SettingError(argument, f"must be a list of different names, got {names!r}")
    if output_columns is not None and len(output_columns) != len(columns or ()):
        raise SettingError(
            "output_columns", f"must be as many as columns, got {output_columns!r} for {columns!r}"
        )
