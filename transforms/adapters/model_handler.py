"""Runs a model in Beam's own RunInference."""

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Unpack, cast

from apache_beam.ml.inference.base import ModelHandler, PredictionResult

from bert_embed.base.arguments import path_text, seconds, whole_number
from bert_embed.base.errors import SettingError
from bert_embed.model import Embedder
from bert_embed.transforms.adapters.embed_documents import (
    check_columns,
    document,
    plain_vectors,
    text_error,
)
from bert_embed.transforms.adapters.text_model import (
    Document,
    ModelSettings,
    TextModelHandler,
    batch_weight,
    text_model_settings,
)


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

    Elements are strings, dicts, Rows or named tuples; with `KeyedModelHandler(BertModelHandler())`
    pairs of a key and such an element. `inference` is the vector: of `vectors`, dense is a float32
    array, sparse a dict of the arrays `indices` and `values`, multi an array with a row for each
    token, scores a dict of float by label; several kinds are a dict by their names.

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
            `bert_embed.transforms.adapters.model_handler.HandlerSettings` has them.

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
        self._texts = TextModelHandler(text_model_settings(model, **self._given))

    def load_model(self) -> Embedder:
        return self._texts.load_another()

    def run_inference(
        self,
        batch: Sequence[Any],
        model: Embedder,
        inference_args: dict[str, Any] | None = None,
    ) -> Sequence[Any]:
        vectors = self.vectors(batch, model)
        return [
            PredictionResult(element, vector, self._model)
            for element, vector in zip(batch, vectors, strict=True)
        ]

    def vectors(self, batch: Sequence[Any], model: Embedder) -> list[Any]:
        """The vectors of a batch; InputError if an element has no text, or none to embed."""
        documents = self._checked(document(element, None, *self._columns) for element in batch)
        embedded = self._checked(self._texts.run_inference(documents, model))
        return [plain_vectors(one.vectors[0], as_numpy=True) for one in embedded if one.vectors]

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

    def validate_inference_args(self, inference_args: dict[str, Any] | None) -> None:
        """Refuses all: a model is loaded with its settings."""
        if inference_args:
            names = ", ".join(inference_args)
            raise SettingError(
                "inference_args",
                f"cannot be given to RunInference with a BertModelHandler, got {names}: give "
                "settings to the handler, as in BertModelHandler(prompt=…, normalize=…)",
            )

    def update_model_path(self, model_path: str | None = None) -> None:
        """Takes another model from now on; a worker that loads it must find it by this name."""
        if model_path and model_path != self._model:
            self._use(model_path)

    def __repr__(self) -> str:
        return f"BertModelHandler({self._model!r})"


def _weight(columns: tuple[str, str | None], element: Any) -> int:
    """What an element adds to its batch; KeyedModelHandler hands over pairs with a key."""
    if isinstance(element, tuple) and not hasattr(element, "_asdict"):
        element = element[-1]
    return batch_weight(document(element, None, *columns))
