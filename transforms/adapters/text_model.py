"""Embeds the documents of other people's pipelines, a batch or an element at a time."""

import logging
import os
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

from apache_beam.ml.inference.base import ModelHandler, RunInference

from bert_embed.backends.choose import check_precision
from bert_embed.base.arguments import known_names, missing, path_text, switch, whole_number
from bert_embed.base.errors import SettingError
from bert_embed.bundle.bundle import document_prompt
from bert_embed.bundle.find import resolve_model
from bert_embed.model import Embedder, Request
from bert_embed.models.heads.head import Head
from bert_embed.settings import TextSpec, VectorSettings, VectorSpec, changed_spec, check_pairs
from bert_embed.text.layout import DocumentVectors, fit_texts
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms.infer import BlockModelHandler
from bert_embed.transforms.steps import RedactErrors, count_documents, mend_cell_labels

mend_cell_labels()  # a notebook's first step may come before any of our transforms is created
# What the transforms take themselves.
OWN = ("model", "column", "output_column", "text_b_column", "as_numpy", "as_rows")
_OF_TEXTS = ("long_text", "overlap", "vectors", "top_k")
_COMPUTING = ("precision", "batch_tokens", "threads", "large_model", "device", "engine")


class ModelSettings(VectorSettings, total=False):
    """How a model is used in other people's pipelines; what is left out is the model's own.

    Beside these there are the fields of `bert_embed.VectorSpec`.

    Attributes:
        vectors: Kinds of vectors, some of `bert_embed.models.heads.kinds.ROW_KINDS`; None:
            what the model is for.
        top_k: Most weights of a sparse vector, the largest; None: all.
        prompt: What precedes every text, or `name:` and the name that the model gives it; None
            is the model's own for documents; "" none.
        max_seq_length: Most tokens of a row, special tokens and prompt included.
        long_text: How longer texts are handled: "truncate" cuts them, "window" gives the mean over
            windows, "reject" rejects them. Left out: cut, with one logged warning.
        overlap: Tokens that neighbouring windows share; None is 64, or half of a short window.
        precision: Number type of the products, one of `bert_embed.backends.choose.PRECISIONS`.
        batch_tokens: Most tokens of a batch, padding included; None: chosen for the device.
        threads: Processor cores for the model; None: all that a worker may use.
        large_model: Whether the worker processes of a machine share one model.
        device: Where the model runs, one of `bert_embed.backends.choose.DEVICES`.
        engine: What computes there, see `bert_embed.load`; None: the first that is installed.
    """

    vectors: Sequence[str] | None
    top_k: int | None
    prompt: str | None
    max_seq_length: int | None
    long_text: str
    overlap: int | None
    precision: str
    batch_tokens: int | None
    threads: int | None
    large_model: bool
    device: str
    engine: str | None


@dataclass(frozen=True)
class TextModelSettings:
    """Which model, how it computes vectors, and where it runs."""

    model: str  # as the caller named it
    bundle: str  # its folder, opened on workers only
    fingerprint: str  # the model's; a bundle with another one is rejected
    spec: VectorSpec
    text_spec: TextSpec
    precision: str = "float32"
    batch_tokens: int | None = None
    threads: int | None = None
    large_model: bool = False
    device: str = "auto"
    engine: str | None = None
    cuts_silently: bool = False  # the caller chose what happens to long texts

    def __post_init__(self) -> None:
        path_text("model", self.model)
        for name in ("batch_tokens", "threads"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), least=1)
        switch("large_model", self.large_model)

    def load_embedder(self) -> Embedder:
        """Loads the model on workers; one without the bundle's folder finds it by its name."""
        is_here = os.path.isdir(self.bundle)
        return BlockModelHandler(
            self.bundle if is_here else resolve_model(self.model).path,
            self.fingerprint,
            self.spec,
            self.text_spec,
            threads=self.threads,
            precision=self.precision,
            device=self.device,
            engine=self.engine,
        ).load_model()


def text_model_settings(
    model: str | os.PathLike[str], has_pairs: bool = False, /, **settings: Unpack[ModelSettings]
) -> TextModelSettings:
    """Finds the model and checks all that can be checked without loading it, or ValueError."""
    known_names(settings, {*OWN, *ModelSettings.__annotations__})
    for name in OWN:
        if name in settings:
            raise SettingError(name, "is a setting of another transform, not of this one")
    vectors: dict[str, Any] = {**settings}
    computing = {name: vectors.pop(name) for name in _COMPUTING if name in vectors}
    max_seq_length, prompt = vectors.pop("max_seq_length", None), vectors.pop("prompt", None)
    texts = {name: vectors.pop(name) for name in _OF_TEXTS if name in vectors}
    if vectors.get("layer_combine") == "stack":
        raise SettingError("layer_combine", "stack gives several vectors a text, take concat")
    model = path_text("model", model)
    bundle = resolve_model(model)
    if has_pairs:
        load_tokenizer(bundle).check_pairs("text_b_column")
    spec = changed_spec(bundle.defaults, bundle.config, **vectors)
    bundle.check(spec)
    if max_seq_length is None:
        max_seq_length = bundle.max_seq_length
    if texts.get("vectors") is None:
        texts["vectors"] = bundle.default_vectors
    text_spec = TextSpec(max_seq_length, prompt=document_prompt(bundle, prompt), **texts)
    text_spec.check_one_vector()
    bundle.check_vectors(text_spec.vectors)
    if has_pairs:
        check_pairs("text_b_column", text_spec.vectors)
    text_spec = fit_texts(bundle, text_spec)
    found = model, bundle.path, bundle.fingerprint, spec, text_spec
    checked = TextModelSettings(*found, cuts_silently="long_text" in texts, **computing)
    check_precision(checked.precision, checked.device, checked.engine)
    return checked


_LOG = logging.getLogger(__name__)
_WARNED: set[tuple[str, int]] = set()  # models and lengths whose cuts this process has logged

# A batch is 1,024 short texts, or fewer with a million characters together: enough rows to group
# them by length, in limited memory.
_BATCH_WEIGHT = 1024
_CHARACTERS_A_WEIGHT = 1024


@dataclass(frozen=True)
class Rejection:
    """Why a text, at `place` of a document, gets no vector: a stage, and a phrase to count."""

    stage: str
    reason: str
    place: int = 0


@dataclass(frozen=True)
class Document:
    """An element of a pipeline, with its texts and vectors."""

    element: Any  # as it was in the pipeline
    timestamp: Any  # the element's own; a batch has another
    texts: tuple[str, ...] = ()  # a vector each
    texts_b: tuple[str, ...] | None = None  # the second texts of pairs
    # Of each text the vectors by their kind: dense is float32 [width], sparse int32 indices and
    # float32 values, multi float32 [tokens, dim], scores floats by label; None before the model
    vectors: tuple[Mapping[str, Any], ...] | None = None
    rejection: Rejection | None = None  # why there are no vectors
    window: Any = None  # this and `pane`: the element's own, as batches are in the global window
    pane: Any = None  # both None where the element stays in them


class TextModelHandler(ModelHandler[Document, Document, Embedder]):
    """Runs a model over batches of Documents; a failing document does not affect the others."""

    def __init__(self, settings: TextModelSettings) -> None:
        super().__init__(large_model=settings.large_model)
        self._settings = settings

    def load_model(self) -> Embedder:
        embedder = self._settings.load_embedder()
        # The first call builds the model's graph, which takes seconds.
        embedder.run(Request(self._settings.text_spec, texts={"texts": ["a"]}))
        return embedder

    def run_inference(
        self,
        batch: Sequence[Document],
        model: Embedder,
        inference_args: dict[str, Any] | None = None,
    ) -> list[Document]:
        """Gives every document of a batch its vectors, or says why it has none; counts both."""
        done = list(batch)
        todo = [place for place, document in enumerate(batch) if document.rejection is None]
        truncated = self._embed(done, todo, model) if todo else 0
        rejected = Counter(
            document.rejection.reason for document in done if document.rejection is not None
        )
        count_documents(len(done) - rejected.total(), truncated, rejected)
        return done

    def _embed(self, done: list[Document], todo: list[int], model: Embedder) -> int:
        """Replaces documents by embedded or rejected ones; returns how many of them were cut."""
        texts = [text for place in todo for text in done[place].texts]
        texts_b = None
        if done[todo[0]].texts_b is not None:
            texts_b = [text or None for place in todo for text in done[place].texts_b or ()]
        settings = self._settings
        with RedactErrors("embed"):
            columns = {"texts": texts, "texts_b": texts_b}
            request = Request(settings.text_spec, columns, batch_tokens=settings.batch_tokens)
            made = model.run(request)
        key = settings.fingerprint, settings.text_spec.max_seq_length
        if len(made.cut) and not settings.cuts_silently and key not in _WARNED:
            _WARNED.add(key)
            cuts = model.truncation(len(made.cut), len(texts), request)
            _LOG.warning("%s; this batch is the first, the counter `truncated` has all", cuts)
        start, truncated, cut_texts, heads = 0, 0, set(made.cut.tolist()), model.heads()
        for place in todo:
            numbers = range(start, start + len(done[place].texts))
            start = numbers.stop
            failed = next((number for number in numbers if number in made.rejected), None)
            if failed is not None:
                rejection = Rejection(*made.rejected[failed], failed - numbers.start)
                done[place] = replace(done[place], rejection=rejection)
                continue
            vectors = tuple(_vectors_of(made, heads, number) for number in numbers)
            done[place] = replace(done[place], vectors=vectors)
            truncated += not cut_texts.isdisjoint(numbers)
        return truncated

    def get_num_bytes(self, batch: Sequence[Document]) -> int:
        return sum(len(text.encode()) for document in batch for text in document.texts)

    def get_metrics_namespace(self) -> str:
        return "BertEmbed"

    def batch_elements_kwargs(self) -> dict[str, Any]:
        # Fixed, so that batches do not depend on the speed of a machine.
        bounds = {"min_batch_size": _BATCH_WEIGHT, "max_batch_size": _BATCH_WEIGHT}
        return {**bounds, "element_size_fn": batch_weight}


def run_inference(settings: TextModelSettings) -> RunInference:
    """Beam's RunInference with our handler."""
    tag = settings.fingerprint
    if settings.large_model:
        # Beam finds a shared model by this name on the whole machine. Another job may compute other
        # vectors with the same weights, or end first: it must not use the same name.
        tag = f"{tag}-{uuid.uuid4().hex}"
    return RunInference(TextModelHandler(settings), model_identifier=tag)


def batch_weight(document: Document) -> int:
    """What a document adds to its batch: 1, more where it has over 1,024 characters."""
    texts = [*document.texts, *(document.texts_b or ())]
    weight = sum(map(len, texts)) // _CHARACTERS_A_WEIGHT
    # At most a whole batch: BatchElements would emit an empty one before a larger one.
    return min(max(weight, len(document.texts), 1), _BATCH_WEIGHT)


def text_rejection(text: Any) -> str | None:
    """Why a value is not a text to embed, or None.

    >>> [text_rejection(text) for text in (" ", 7, None, "\\ud800", "a text")]
    ['empty text', 'text is not a string', 'missing text', 'text is not valid Unicode', None]
    """
    if missing(text) is not None:  # also NaN and NA, as pandas has them
        return "missing text"
    if not isinstance(text, str):
        return "text is not a string"
    if not text or text.isspace():
        return "empty text"
    try:
        text.encode()
    except UnicodeEncodeError:  # it has an unpaired surrogate
        return "text is not valid Unicode"
    return None


def _vectors_of(made: DocumentVectors, heads: Mapping[str, Head], text: int) -> dict[str, Any]:
    kinds = {} if made.sentences is None else {"dense": made.sentences[text]}
    return kinds | {kind: heads[kind].of_text(rows, text) for kind, rows in made.heads.items()}
