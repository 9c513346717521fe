"""EmbedTexts: the documents of any pipeline in, the same with their vectors out."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.ml.inference.base import ModelHandler, RunInference

from transforms.part import Part
from transforms.sources import DocumentBlock
from transforms.text_settings import TextModelSettings
from transforms.tokenization import token_block

if TYPE_CHECKING:
    from bert.encoder import Encoder

# A batch is 1,024 short texts, or fewer that have a million characters together: enough rows to
# find neighbours of like length in, and bounded in memory.
_BATCH_WEIGHT = 1024
_CHARACTERS_A_WEIGHT = 1024


@dataclass(frozen=True)
class Refusal:
    """Why a document gets no vector.

    Attributes:
        stage: The room that refused it: `read`, `tokenize`, `infer`.
        reason: A short fixed phrase that can be counted.
        place: Which of the document's texts it was.
    """

    stage: str
    reason: str
    place: int = 0


@dataclass(frozen=True)
class Document:
    """An element of a pipeline, with what of it is embedded.

    Attributes:
        element: As it came.
        timestamp: The element's own; a batch has another.
        texts: What is embedded, a vector each.
        texts_b: The second texts of pairs, as many as `texts`; None: no pairs.
        vectors: float32 `[texts, width]`; None before the model, and where it was refused.
        refusal: Why there are no vectors; None: nothing against it.
    """

    element: Any
    timestamp: Any
    texts: tuple[str, ...] = ()
    texts_b: tuple[str, ...] | None = None
    vectors: np.ndarray | None = None
    refusal: Refusal | None = None


class TextModel:
    """A loaded model; all that is asked of it goes through `embed`, from other processes too."""

    def __init__(self, settings: TextModelSettings) -> None:
        self._text_spec, self._handler = settings.text_spec, settings.handler()
        self._encoder: Encoder = self._handler.load_model()

    def embed(
        self, texts: Sequence[str], texts_b: Sequence[str] | None = None
    ) -> tuple[np.ndarray, dict[int, Refusal]]:
        """Embeds texts, or pairs, none of them blank, as a block of the pipeline is.

        Returns:
            float32 `[texts, width]`, zeros for a text that got no vector, and why by its place.

        Raises:
            RuntimeError: Every one of several texts failed: the model is broken, not a text.
        """
        numbers = pa.array([str(number) for number in range(len(texts))], pa.string())
        part = Part(0, 0, records=len(texts))
        second = None if texts_b is None else list(texts_b)
        block = DocumentBlock(part, numbers, list(texts), numbers, second)
        rows = token_block(block, self._encoder.tokenizer, self._text_spec)
        [embedded] = self._handler.run_inference(rows, self._encoder)
        assert embedded.vectors is not None, "sentences are what the settings ask for"
        vectors = np.zeros((len(texts), embedded.vectors.shape[1]), np.float32)
        vectors[[int(number) for number in embedded.ids.to_pylist()]] = embedded.vectors
        refused = {
            int(each.id or 0): Refusal(each.stage, each.reason) for each in embedded.part.rejected
        }
        return vectors, refused


class TextModelHandler(ModelHandler[Document, Document, TextModel]):
    """Runs a model over batches of Documents; a document that fails costs only itself.

    Args:
        settings: Which model, and how it makes vectors.
    """

    def __init__(self, settings: TextModelSettings) -> None:
        super().__init__(large_model=settings.large_model)
        self._settings = settings

    def load_model(self) -> TextModel:
        return TextModel(self._settings)

    def run_inference(
        self,
        batch: Sequence[Document],
        model: TextModel,
        inference_args: dict[str, Any] | None = None,
    ) -> list[Document]:
        """Gives every document of a batch its vectors, or says why it has none."""
        todo = [place for place, document in enumerate(batch) if document.refusal is None]
        done = list(batch)
        if not todo:
            return done
        texts = [text for place in todo for text in batch[place].texts]
        pairs = [batch[place].texts_b for place in todo]
        texts_b = [text for pair in pairs for text in pair or ()] if pairs[0] is not None else None
        vectors, refused = model.embed(texts, texts_b)
        start = 0
        for place in todo:
            stop = start + len(batch[place].texts)
            done[place] = _embedded(batch[place], vectors[start:stop], refused, start)
            start = stop
        return done

    def get_num_bytes(self, batch: Sequence[Document]) -> int:
        return sum(len(text.encode()) for document in batch for text in document.texts)

    def get_metrics_namespace(self) -> str:
        return "BertEmbed"

    def batch_elements_kwargs(self) -> dict[str, Any]:
        # Fixed, so that batches do not follow from how fast a machine happened to be.
        bounds = {"min_batch_size": _BATCH_WEIGHT, "max_batch_size": _BATCH_WEIGHT}
        if self._settings.max_batch_seconds is None:
            return {**bounds, "element_size_fn": batch_weight}
        # Beam's waiting batches count elements whatever they weigh.
        return {**bounds, "max_batch_duration_secs": self._settings.max_batch_seconds}


@dataclass
class EmbedTexts(beam.PTransform):
    """Documents to Documents with vectors, or with the reason why they have none.

    Attributes:
        settings: Which model, and how it makes vectors.
    """

    settings: TextModelSettings

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, documents: beam.PCollection[Document]) -> beam.PCollection[Document]:
        infer = run_inference(self.settings).with_output_types(Document)
        return documents | "Infer" >> infer


def run_inference(settings: TextModelSettings) -> RunInference:
    """Beam's RunInference with our handler."""
    tag = settings.fingerprint
    if settings.large_model:
        # Beam finds a shared model by this name on the whole machine: another job, which may
        # make other vectors of the same weights and end before us, must not have the same.
        tag = f"{tag}-{uuid.uuid4().hex}"
    return RunInference(TextModelHandler(settings), model_identifier=tag)


def batch_weight(document: Document) -> int:
    """What a document adds to its batch: 1, more where it has over 1,024 characters.

    >>> batch_weight(Document({}, 0, ("short",))), batch_weight(Document({}, 0, ("x" * 5000,)))
    (1, 4)
    """
    texts = [*document.texts, *(document.texts_b or ())]
    weight = sum(map(len, texts)) // _CHARACTERS_A_WEIGHT
    # Never over a whole batch: BatchElements would put an empty one before it.
    return min(max(weight, len(document.texts), 1), _BATCH_WEIGHT)


def text_refusal(text: Any) -> str | None:
    """Why a value is no text to embed; None: it is one.

    >>> text_refusal(" "), text_refusal(7), text_refusal(None), text_refusal("a text")
    ('empty text', 'text is not a string', 'missing text', None)
    """
    if text is None:
        return "missing text"
    if not isinstance(text, str):
        return "text is not a string"
    if not text or text.isspace():
        return "empty text"
    return None if is_unicode(text) else "text is not valid Unicode"


def is_unicode(text: str) -> bool:
    """Whether a str can be encoded, that is, holds no half of a surrogate pair.

    >>> is_unicode("caf\\u00e9"), is_unicode("\\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _embedded(
    document: Document, vectors: np.ndarray, refused: Mapping[int, Refusal], start: int
) -> Document:
    for place in range(len(vectors)):
        if start + place in refused:
            return replace(document, refusal=replace(refused[start + place], place=place))
    return replace(document, vectors=vectors)
