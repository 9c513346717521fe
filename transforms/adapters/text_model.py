"""Embeds the documents of any pipeline, a batch or an element at a time."""

import functools
import logging
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import apache_beam as beam
from apache_beam.coders import PickleCoder
from apache_beam.ml.inference.base import ModelHandler, RunInference
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.userstate import (
    BagStateSpec,
    ReadModifyWriteStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import TimestampedValue
from apache_beam.utils.shared import Shared
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Timestamp

from bert_embed.arguments import missing
from bert_embed.transforms.adapters.text_settings import TextModelSettings
from bert_embed.transforms.metrics import count_documents
from bert_embed.transforms.records.step import Step
from bert_embed.transforms.redact import RedactErrors

if TYPE_CHECKING:
    from bert_embed.embedder import Embedder
    from bert_embed.rows.to_documents import GranularVectors

_LOG = logging.getLogger(__name__)
_WARNED: set[tuple[str, int]] = set()  # models and lengths whose cuts this process has logged

# A batch is 1,024 short texts, or fewer with a million characters together: enough rows to group
# them by length, in limited memory.
_BATCH_WEIGHT = 1024
_CHARACTERS_A_WEIGHT = 1024
_NOTHING_HELD = (0, MAX_TIMESTAMP, None)  # weight, oldest timestamp, when the first has waited


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


class TextModelHandler(ModelHandler[Document, Document, "Embedder"]):
    """Runs a model over batches of Documents; a failing document does not affect the others."""

    def __init__(self, settings: TextModelSettings) -> None:
        super().__init__(large_model=settings.large_model)
        self._settings = settings
        self._shared = Shared()

    def load_model(self) -> "Embedder":
        """Loads the model once a process."""
        return self._shared.acquire(self.load_another)

    def load_another(self) -> "Embedder":
        """Loads a model that nothing else uses."""
        embedder = self._settings.load_embedder()
        # The first call builds the model's graph, which takes seconds.
        embedder.embed_texts(self._settings.text_spec, ["a"])
        return embedder

    def should_skip_batching(self) -> bool:
        return self._settings.max_batch_seconds is not None  # `_Batch` forms the batches

    def run_inference(
        self,
        batch: Sequence[Document],
        model: "Embedder",
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

    def _embed(self, done: list[Document], todo: list[int], model: "Embedder") -> int:
        """Replaces documents by embedded or rejected ones; returns how many of them were cut."""
        texts = [text for place in todo for text in done[place].texts]
        pairs = [done[place].texts_b for place in todo]
        texts_b = [text for pair in pairs for text in pair or ()] if pairs[0] is not None else None
        settings = self._settings
        with RedactErrors("embed"):
            vectors, rejected, cut = model.embed_texts(
                settings.text_spec, texts, texts_b, settings.batch_tokens
            )
        self._warn_of_cuts(len(cut), len(texts), model)
        start, by_text = 0, _by_text(vectors, len(texts), model.score_labels())
        cut_texts, truncated = set(cut.tolist()), 0
        for place in todo:
            stop = start + len(done[place].texts)
            done[place] = _embedded(done[place], by_text[start:stop], rejected, start)
            if done[place].rejection is None and not cut_texts.isdisjoint(range(start, stop)):
                truncated += 1
            start = stop
        return truncated

    def _warn_of_cuts(self, cut: int, total: int, model: "Embedder") -> None:
        settings = self._settings
        key = settings.fingerprint, settings.text_spec.max_seq_length
        if cut and not settings.cuts_silently and key not in _WARNED:
            _WARNED.add(key)
            _LOG.warning(
                "%s; this batch is the first, the counter `truncated` has all",
                model.truncation(cut, total, settings.text_spec),
            )

    def get_num_bytes(self, batch: Sequence[Document]) -> int:
        return sum(len(text.encode()) for document in batch for text in document.texts)

    def get_metrics_namespace(self) -> str:
        return "BertEmbed"

    def batch_elements_kwargs(self) -> dict[str, Any]:
        # Fixed, so that batches do not depend on the speed of a machine.
        bounds = {"min_batch_size": _BATCH_WEIGHT, "max_batch_size": _BATCH_WEIGHT}
        return {**bounds, "element_size_fn": batch_weight}


@dataclass
class EmbedTexts(Step):
    """Adds vectors to Documents, or the reason why they have none."""

    settings: TextModelSettings

    def expand(self, documents: beam.PCollection[Document]) -> beam.PCollection[Document]:
        handler, seconds = TextModelHandler(self.settings), self.settings.max_batch_seconds
        infer = run_inference(self.settings, handler).with_output_types(Document)
        if seconds is None:
            return documents | "Infer" >> infer
        if not self.settings.large_model:  # which is loaded by a process of its own
            begin = documents.pipeline | "Begin" >> beam.Impulse()
            _ = begin | "Load" >> beam.ParDo(_Load(handler))
        keyed = documents | "Key" >> beam.Map(_keyed)
        return keyed | "Batch" >> beam.ParDo(_Batch(seconds)) | "Infer" >> infer


class _Load(beam.DoFn):
    """Loads the model in the process that begins the job, while a stream has no element yet."""

    def __init__(self, handler: TextModelHandler) -> None:
        self._handler = handler

    def setup(self) -> None:
        self._model = self._handler.load_model()

    def process(self, begin: bytes) -> None:
        """Does nothing: `setup` loads the model."""


def _keyed(document: Document) -> tuple[str, Document]:
    """Keys documents by process, as state requires a key: each process forms its own batches."""
    return _process_name(), document


@functools.cache
def _process_name() -> str:
    return uuid.uuid4().hex


class _Batch(beam.DoFn):
    """Holds documents until they fill a batch, or the first of them has waited for so many seconds.

    They are in the global window, so that a batch has documents of many. Beam's GroupIntoBatches
    counts elements, not their size, and holds the watermark for the first element alone: older
    ones behind it would come late. Here the timer, which holds the watermark at the timestamp of
    the element that set it, is set again by each element that is older than those before it.
    """

    _WAITED = TimerSpec("waited", TimeDomain.REAL_TIME)
    _WINDOW_END = TimerSpec("window_end", TimeDomain.WATERMARK)
    _held = beam.DoFn.StateParam(BagStateSpec("held", PickleCoder()))
    # Of the held documents: their weight, the oldest timestamp, and when they have waited enough.
    _summary = beam.DoFn.StateParam(ReadModifyWriteStateSpec("summary", PickleCoder()))
    _waited = beam.DoFn.TimerParam(_WAITED)
    _window_end = beam.DoFn.TimerParam(_WINDOW_END)

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def process(
        self,
        element: tuple[str, Document],
        window: Any = beam.DoFn.WindowParam,
        held: Any = _held,
        summary: Any = _summary,
        waited: Any = _waited,
        window_end: Any = _window_end,
    ) -> Iterator[TimestampedValue]:
        _, document = element
        added = batch_weight(document)
        weight, oldest, due = summary.read() or _NOTHING_HELD
        if weight and weight + added > _BATCH_WEIGHT:
            waited.clear()
            yield from _release(held, summary)
            weight, oldest, due = _NOTHING_HELD
        is_oldest = document.timestamp < oldest
        due = due or Timestamp.now() + self._seconds
        held.add(document)
        summary.write((weight + added, min(oldest, document.timestamp), due))
        window_end.set(window.end)
        if weight + added >= _BATCH_WEIGHT:
            waited.clear()
            yield from _release(held, summary)
        elif is_oldest:
            waited.set(due)

    @on_timer(_WAITED)
    def on_waited(self, held: Any = _held, summary: Any = _summary) -> Iterator[TimestampedValue]:
        yield from _release(held, summary)

    @on_timer(_WINDOW_END)
    def on_end(
        self, held: Any = _held, summary: Any = _summary, waited: Any = _waited
    ) -> Iterator[TimestampedValue]:
        yield from _release(held, summary)
        waited.clear()


def _release(held: Any, summary: Any) -> Iterator[TimestampedValue]:
    """Gives the held documents; leaves an empty state alone, else Prism's timer fires for ever."""
    if documents := list(held.read()):
        _, oldest, _ = summary.read()
        yield TimestampedValue(documents, oldest)
        held.clear()
        summary.clear()


def run_inference(
    settings: TextModelSettings, handler: TextModelHandler | None = None
) -> RunInference:
    """Beam's RunInference with our handler, a new one unless it is given."""
    tag = settings.fingerprint
    if settings.large_model:
        # Beam finds a shared model by this name on the whole machine. Another job may compute other
        # vectors with the same weights, or end first: it must not use the same name.
        tag = f"{tag}-{uuid.uuid4().hex}"
    return RunInference(handler or TextModelHandler(settings), model_identifier=tag)


def batch_weight(document: Document) -> int:
    """What a document adds to its batch: 1, more where it has over 1,024 characters."""
    texts = [*document.texts, *(document.texts_b or ())]
    weight = sum(map(len, texts)) // _CHARACTERS_A_WEIGHT
    # At most a whole batch: BatchElements would emit an empty one before a larger one.
    return min(max(weight, len(document.texts), 1), _BATCH_WEIGHT)


def text_rejection(text: Any) -> str | None:
    """Why a value is not a text to embed, or None.

    >>> text_rejection(" "), text_rejection(7), text_rejection(None), text_rejection("a text")
    ('empty text', 'text is not a string', 'missing text', None)
    """
    if missing(text) is not None:  # also NaN and NA, as pandas has them
        return "missing text"
    if not isinstance(text, str):
        return "text is not a string"
    if not text or text.isspace():
        return "empty text"
    return None if is_unicode(text) else "text is not valid Unicode"


def is_unicode(text: str) -> bool:
    """Whether a str can be encoded: it has no unpaired surrogate.

    >>> is_unicode("caf\\u00e9"), is_unicode("\\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _by_text(vectors: "GranularVectors", count: int, labels: Sequence[str]) -> list[dict[str, Any]]:
    """The vectors of each of `count` texts, by their kind."""
    by_text: list[dict[str, Any]] = [{} for _ in range(count)]
    sparse, multi = vectors.sparse, vectors.multi
    for number, kinds in enumerate(by_text):
        if vectors.sentences is not None:
            kinds["dense"] = vectors.sentences[number]
        if sparse is not None:
            entries = slice(*sparse.splits[number : number + 2])
            kinds["sparse"] = sparse.indices[entries], sparse.values[entries]
        if multi is not None:
            kinds["multi"] = multi.vectors[slice(*multi.splits[number : number + 2])]
        if vectors.scores is not None:
            kinds["scores"] = dict(zip(labels, vectors.scores[number].tolist(), strict=True))
    return by_text


def _embedded(
    document: Document,
    vectors: Sequence[Mapping[str, Any]],
    rejected: Mapping[int, tuple[str, str]],
    start: int,
) -> Document:
    for place in range(len(vectors)):
        if start + place in rejected:
            stage, reason = rejected[start + place]
            return replace(document, rejection=Rejection(stage, reason, place))
    return replace(document, vectors=tuple(vectors))
