"""Steps of Beam's own machine learning: BertModelHandler, for RunInference, and BertEmbeddings."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Unpack, cast

import apache_beam as beam
from apache_beam.ml.inference.base import ModelHandler, PredictionResult, RunInferenceDLQ
from apache_beam.ml.rag.embeddings.base import create_text_adapter
from apache_beam.ml.rag.types import EmbeddableItem, Embedding
from apache_beam.ml.transforms.base import EmbeddingsManager
from apache_beam.utils.windowed_value import WindowedValue

from bert_embed.base.arguments import known_names, path_text, seconds, whole_number
from bert_embed.base.errors import InputError, SettingError
from bert_embed.bundle.find import local_place, resolve_model
from bert_embed.model import Embedder
from bert_embed.settings import TextSpec, VectorSpec
from bert_embed.transforms.adapters.embed_documents import (
    check_columns,
    document,
    plain_vectors,
    record_fields,
    text_error,
    value_of,
)
from bert_embed.transforms.adapters.text_model import (
    OWN,
    Document,
    ModelSettings,
    Rejection,
    TextModelHandler,
    TextModelSettings,
    batch_weight,
    run_inference,
    text_model_settings,
    text_rejection,
)
from bert_embed.transforms.steps import Step


class HandlerSettings(ModelSettings, total=False):
    """How RunInference uses a model: the settings of the model, and those of any of its handlers.

    Attributes:
        min_batch_size: Fewest elements of a batch, unless its bundle ends.
        max_batch_size: Most elements of a batch. Without both sizes a batch has up to 1,024 texts
            or a million characters.
        max_batch_duration_secs: Seconds that a batch waits to be filled, across bundles.
        element_size_fn: What an element adds to the size of its batch.
        batch_length_fn: The length of an element, so that those of similar length make a batch.
        batch_bucket_boundaries: The lengths at which batches part.
        model_copies: How many models the processes of a machine share.
        env_vars: Environment variables to set before the model is loaded.
    """

    min_batch_size: int | None
    max_batch_size: int | None
    max_batch_duration_secs: float | None
    element_size_fn: Callable[[Any], int] | None
    batch_length_fn: Callable[[Any], int] | None
    batch_bucket_boundaries: list[int] | None
    model_copies: int | None
    env_vars: dict[str, str]


_OF_BEAM = HandlerSettings.__annotations__.keys() - ModelSettings.__annotations__.keys()
_WHOLE_NUMBERS = ("min_batch_size", "max_batch_size", "model_copies")
_SIZES = {"min_batch_size", "max_batch_size", "element_size_fn"}


class BertModelHandler(ModelHandler[Any, PredictionResult, Embedder]):
    """A model for Beam's RunInference, which gives a PredictionResult for each element.

        results = texts | RunInference(BertModelHandler("minilm"))

    Elements are strings, dicts, Rows, named tuples or data classes; with
    `KeyedModelHandler(BertModelHandler())` pairs of a key and such an element. `inference` is the
    vector: of `vectors`, dense is a float32 array, sparse a dict of the arrays `indices` and
    `values`, multi an array with a row for each token, scores a dict of float by label; several
    kinds are a dict by their names.

    An element without a text fails, and its whole batch with it, which
    `RunInference.with_exception_handling` gives back; EmbedDocuments rejects it alone.

    A `model_metadata_pcoll` of RunInference replaces the model: `model_id` is the new one, as
    `model` takes it, with the settings that were given here.

    Args:
        model: "minilm", a folder, an archive or an address, as `bert_embed.load` takes it. It is
            found and everything is checked when this is created, without TensorFlow.
        column: The field with the text.
        text_b_column: The field with the second text of a pair; None: no pairs. A record
            without a second text is embedded alone.
        **settings: `prompt`, `max_seq_length`, `max_batch_size` and the like, as
            `bert_embed.transforms.adapters.beam_ml.HandlerSettings` has them.

    Raises:
        ValueError: There is no such model, it cannot give such vectors, or an argument is wrong.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] = "minilm",
        column: str = "text",
        text_b_column: str | None = None,
        **settings: Unpack[HandlerSettings],
    ) -> None:
        known_names(settings, {*OWN, *HandlerSettings.__annotations__})
        of_model: dict[str, Any] = {**settings}
        of_beam = {name: of_model.pop(name) for name in _OF_BEAM & of_model.keys()}
        check_columns(of_model, column=column, text_b_column=text_b_column)
        for name in _WHOLE_NUMBERS:
            if of_beam.get(name) is not None:
                whole_number(name, of_beam[name], least=1)
        if of_beam.get("max_batch_duration_secs") is not None:
            seconds("max_batch_duration_secs", of_beam["max_batch_duration_secs"])
        super().__init__(large_model=of_model.get("large_model", False), **of_beam)
        self._columns = column, text_b_column
        self._given = cast(ModelSettings, of_model)
        self._use(path_text("model", model))

    def _use(self, model: str) -> None:
        self._model = model
        has_pairs = self._columns[1] is not None
        self._texts = TextModelHandler(text_model_settings(model, has_pairs, **self._given))

    def load_model(self) -> Embedder:
        return self._texts.load_model()

    def run_inference(
        self,
        batch: Sequence[Any],
        model: Embedder,
        inference_args: dict[str, Any] | None = None,
    ) -> Sequence[Any]:
        """The vectors of a batch; InputError if an element has no text, or none to embed."""
        documents = self._checked(document(element, None, *self._columns) for element in batch)
        embedded = self._checked(self._texts.run_inference(documents, model))
        vectors = (plain_vectors(one.vectors[0], as_numpy=True) for one in embedded if one.vectors)
        return [
            PredictionResult(element, vector, self._model)
            for element, vector in zip(batch, vectors, strict=True)
        ]

    def _checked(self, documents: Iterable[Document]) -> list[Document]:
        checked = []
        for number, one in enumerate(documents):
            if one.rejection is not None:
                error = text_error(one.element, self._columns[0], one.rejection.reason)
                raise type(error)(f"{error} (element {number} of its batch)")
            checked.append(one)
        return checked

    def get_num_bytes(self, batch: Sequence[Any]) -> int:
        return self._texts.get_num_bytes([document(one, None, *self._columns) for one in batch])

    def get_metrics_namespace(self) -> str:
        return self._texts.get_metrics_namespace()

    def batch_elements_kwargs(self) -> dict[str, Any]:
        of_beam = super().batch_elements_kwargs()
        if _SIZES & of_beam.keys():
            return {**of_beam}
        return {
            **self._texts.batch_elements_kwargs(),
            "element_size_fn": partial(_weight, self._columns),
            **of_beam,
        }

    def update_model_path(self, model_path: str | None = None) -> None:
        """Takes another model from now on; a worker that loads it must find it by this name."""
        if model_path and model_path != self._model:
            self._use(model_path)

    def __repr__(self) -> str:
        return f"BertModelHandler({self._model!r})"


def _weight(columns: tuple[str, str | None], element: Any) -> int:
    """What an element adds to its batch; KeyedModelHandler hands over pairs with a key."""
    return batch_weight(document(value_of(element), None, *columns))


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
        for argument, names in {"columns": columns, "output_columns": output_columns}.items():
            _check_names(argument, names)
        if output_columns is not None and len(output_columns) != len(columns or ()):
            raise SettingError(
                "output_columns",
                f"must be as many as columns, got {output_columns!r} for {columns!r}",
            )
        super().__init__(
            columns=None if columns is None else list(columns),
            type_adapter=create_text_adapter() if columns is None else None,
            large_model=settings.get("large_model", False),
        )
        self.output_columns = self.columns if output_columns is None else list(output_columns)
        self.model = path_text("model", model)
        self._given, self._settings = settings, text_model_settings(model, **settings)
        offered = ("dense", "sparse") if columns is None else ("dense",)
        for kind in (one for one in self._settings.text_spec.vectors if one not in offered):
            where = "EmbeddableItems" if columns is None else "columns"
            raise SettingError(
                "vectors", f"{kind} cannot be given to {where}, which take {' and '.join(offered)}"
            )

    def get_model_handler(self) -> BertModelHandler:
        return BertModelHandler(self.model, (self.columns or ["text"])[0], **self._given)

    def get_ptransform_for_processing(self, **kwargs: Any) -> "EmbedColumns":
        ours = self._settings
        specs = {"spec": ours.spec.to_dict(), "text_spec": ours.text_spec.to_dict()}
        model = str(local_place(ours.model) or ours.model)
        settings = {**asdict(ours), **specs, "model": model, "bundle": ""}
        return EmbedColumns(settings, self.columns, self.output_columns)


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
        documents = elements | "Pick" >> beam.Map(item_document, self.columns)
        infer, check = run_inference(self._found()), beam.Map(_checked, self.columns)
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
        spec = VectorSpec.from_dict(self.settings["spec"])
        text_spec = TextSpec.from_dict(self.settings["text_spec"])
        settings = TextModelSettings(**{**self.settings, "spec": spec, "text_spec": text_spec})
        bundle = resolve_model(settings.model)
        if bundle.fingerprint != settings.fingerprint:
            raise InputError(
                f"model {settings.model} is another one than when the artifacts were written: "
                f"fingerprint {bundle.fingerprint}, expected {settings.fingerprint}"
            )
        return replace(settings, bundle=bundle.path)


def _checked(embedded: Document, columns: Sequence[str] | None) -> Document:
    rejection, element = embedded.rejection, embedded.element
    if rejection is not None:
        fields, names = _fields(element, columns), columns or _CONTENT
        shown = element if fields is None else fields
        raise text_error(shown, names[rejection.place], rejection.reason)
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


def item_document(
    element: Any, columns: Sequence[str] | None, timestamp: Any = beam.DoFn.TimestampParam
) -> Document:
    """Takes the texts from a record or an EmbeddableItem, or says why one is missing."""
    fields = _fields(element, columns)
    if fields is None:
        return Document(element, timestamp, rejection=Rejection("input", "not a record"))
    texts: tuple[Any, ...] = tuple(fields.get(column) for column in columns or _CONTENT)
    for place, text in enumerate(texts):
        reason = text_rejection(text)
        if reason is not None:
            return Document(element, timestamp, rejection=Rejection("input", reason, place))
    return Document(element, timestamp, texts)


def _fields(element: Any, columns: Sequence[str] | None) -> Mapping[str, Any] | None:
    """The fields of a record, or without columns the text of an EmbeddableItem; None of another."""
    if columns is not None:
        return record_fields(element)
    return {_CONTENT[0]: element.content.text} if isinstance(element, EmbeddableItem) else None


def placed(embedded: Document, output_columns: Sequence[str] | None) -> Any:
    """A copy of the element with its vectors, as lists of float."""
    element = embedded.element
    texts = embedded.vectors or ()
    if output_columns is None:
        embedding = element.embedding or Embedding()  # it may have the other kind already
        made = {f"{kind}_embedding": _as_lists(vector) for kind, vector in texts[0].items()}
        return replace(element, embedding=replace(embedding, **made))
    vectors = [_as_lists(kinds["dense"]) for kinds in texts]
    fields = {**(record_fields(element) or {}), **dict(zip(output_columns, vectors, strict=True))}
    return fields if isinstance(element, Mapping) else beam.Row(**fields)


def _as_lists(vector: Any) -> Any:
    return tuple(map(_as_lists, vector)) if isinstance(vector, tuple) else vector.tolist()


def _check_names(argument: str, names: Sequence[str] | None) -> None:
    listed = isinstance(names, Sequence) and all(isinstance(name, str) for name in names)
    is_list = listed and names and not isinstance(names, str) and len({*names}) == len(names)
    if names is not None and not is_list:
        raise SettingError(argument, f"must be a list of different names, got {names!r}")
