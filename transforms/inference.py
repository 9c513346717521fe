"""EmbedBlocks: rows of token ids in, vectors out, through Beam's RunInference."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.ml.inference.base import ModelHandler, RunInference

from bert.text_spec import TextSpec
from bert.vector_spec import VectorSpec
from transforms.block_coder import passed_as_block
from transforms.dead_letter import Rejected
from transforms.discretion import Discreet
from transforms.tokenization import TokenBlock
from transforms.vectors import (
    EmbeddingBlock,
    KeptWindows,
    TokenVectors,
    UnitVectors,
    take_documents,
)
from transforms.worker_bundles import worker_bundle

if TYPE_CHECKING:
    from bert.document_vectors import GranularVectors
    from bert.encoder import Encoder
    from bert.layout import Layout, Units
    from bert.row_runner import EmbeddedRows
    from bert.tokenizer import Tokenizer

_VOCABULARIES: "WeakKeyDictionary[Tokenizer, pa.StringArray]" = WeakKeyDictionary()


class BertModelHandler(ModelHandler[TokenBlock, EmbeddingBlock, "Encoder"]):
    """Runs a bundle's encoder over TokenBlocks, a block a call; batches are cut inside.

    Args:
        bundle: Folder of the model bundle, or where workers fetch it; opened on workers only.
        fingerprint: The model's; a bundle that has another one is refused.
        spec: What a vector is.
        text_spec: Which vectors of a text are wanted, and its prompt.
        batch_tokens: Most tokens of a batch, padding included; None is what is fast there.
        threads: Threads the model computes on; None for as many as the process may use.
        trusted: Whether a SavedModel's graph may hold any operation.
        precision: What the products are computed in, one of `bert.engine.PRECISIONS`.
        device: What computes there, one of `bert.engine.DEVICES`.
        inference_timeout: Seconds after which a block fails if no batch ended meanwhile; None
            waits for ever.
    """

    def __init__(
        self,
        bundle: str,
        fingerprint: str,
        spec: VectorSpec,
        text_spec: TextSpec,
        batch_tokens: int | None = None,
        threads: int | None = None,
        trusted: bool = False,
        precision: str = "float32",
        device: str = "auto",
        inference_timeout: float | None = None,
    ) -> None:
        super().__init__()
        self._bundle, self.fingerprint, self._trusted = bundle, fingerprint, trusted
        self._spec, self._text_spec = spec, text_spec
        self._batch_tokens, self._threads = batch_tokens, threads
        self._precision, self._device = precision, device
        self._timeout = inference_timeout

    def load_model(self) -> "Encoder":
        from bert.encoder import Encoder

        bundle = worker_bundle(self._bundle, self.fingerprint)
        bundle = replace(bundle, trusted=self._trusted)
        return Encoder(
            bundle,
            self._spec,
            threads=self._threads,
            precision=self._precision,
            device=self._device,
            inference_timeout=self._timeout,
        )

    def run_inference(
        self,
        batch: TokenBlock,  # a batch already, see should_skip_batching
        model: "Encoder",
        inference_args: dict[str, Any] | None = None,
    ) -> list[EmbeddingBlock]:
        """Embeds a block; a list of one, because RunInference counts the failures of lists only.

        Raises:
            RuntimeError: The model fails on every row of the block, or hangs; the block is named.
        """
        block, started = batch, time.perf_counter()
        with Discreet("infer"), _naming(block):
            rows, vectors = model.embed_documents(
                block.rows, block.row, block.layout, self._text_spec, self._batch_tokens
            )
            return [embedding_block(block, rows, vectors, model.tokenizer, started)]

    def get_num_bytes(self, batch: TokenBlock) -> int:
        return batch.nbytes

    def get_metrics_namespace(self) -> str:
        return "BertEmbed"

    def should_skip_batching(self) -> bool:
        return True


@dataclass
class EmbedBlocks(beam.PTransform):
    """TokenBlocks to EmbeddingBlocks.

    Attributes:
        handler: Loads the model and runs it.
    """

    handler: BertModelHandler

    def __post_init__(self) -> None:
        super().__init__()

    def expand(self, blocks: beam.PCollection[TokenBlock]) -> beam.PCollection[EmbeddingBlock]:
        passed_as_block(EmbeddingBlock)
        infer = RunInference(self.handler, model_identifier=self.handler.fingerprint)
        return blocks | "Infer" >> infer.with_output_types(EmbeddingBlock)


@contextmanager
def _naming(block: TokenBlock) -> Iterator[None]:
    """Says of which block it is that the model cannot go on with it."""
    from bert.row_runner import BrokenModelError
    from bert.threads import NoProgressError

    number, sources = block.part.block, block.sources
    try:
        yield
    except BrokenModelError as error:
        raise RuntimeError(f"block {number}, {_reach(sources)}: {error}") from error.__cause__
    except NoProgressError as error:
        raise RuntimeError(
            f"block {number}, {_reach(sources)}: the model hangs, {error}; a longer "
            f"--inference_timeout waits longer, --leave_out {number} does without these documents"
        ) from None


def _reach(sources: pa.StringArray) -> str:
    """The documents of a block, by its first and its last."""
    first, last = sources[0].as_py(), sources[-1].as_py()
    return first if first == last else f"{first} to {last}"


def embedding_block(
    block: TokenBlock,
    rows: "EmbeddedRows",
    vectors: "GranularVectors",
    tokenizer: "Tokenizer",
    started: float,
) -> EmbeddingBlock:
    """Gives every document its vectors; documents of a row that failed are rejected."""
    layout = block.layout
    made = EmbeddingBlock(
        part=block.part,
        ids=block.ids,
        num_tokens=layout.num_tokens,
        truncated=layout.truncated,
        text_hash=block.text_hash,
        vectors=vectors.sentences,
        windows=_kept_windows(layout),
        tokens=_token_vectors(layout, vectors.tokens, tokenizer),
        words=_unit_vectors(layout.words, vectors.words),
        spans=_unit_vectors(layout.spans, vectors.spans),
        line_numbers=block.line_numbers,
        extra=block.extra,
        computed_tokens=rows.tokens,
        padded_tokens=rows.padded_tokens,
        batches=rows.batches,
        compiled=rows.compiled,
    )
    reasons = failed_documents(layout, block.row, rows.failed)
    rejected = tuple(
        Rejected(block.ids[document].as_py(), block.sources[document].as_py(), "infer", reason)
        for document, reason in reasons.items()
    )
    if reasons:
        made = take_documents(made, np.delete(np.arange(len(block)), list(reasons)))
    part = block.part
    if rows.compiled:
        part = part.then("compile", rows.compile_seconds)
    seconds = time.perf_counter() - started - rows.compile_seconds
    return replace(made, part=part.then("infer", seconds, rejected))


def failed_documents(layout: "Layout", row: np.ndarray, failed: dict[int, str]) -> dict[int, str]:
    """Documents of which some row failed, in order, and the reason of the first such row."""
    if not failed:
        return {}
    windows = np.flatnonzero(np.isin(row, list(failed)))
    documents = windows if layout.windows is None else layout.windows.document[windows]
    first, at = np.unique(documents, return_index=True)
    return {
        int(document): failed[int(row[windows[place]])]
        for document, place in zip(first, at, strict=True)
    }


def _kept_windows(layout: "Layout") -> KeptWindows | None:
    windows, starts, stops = layout.windows, layout.starts, layout.stops
    if windows is None or starts is None or stops is None or layout.window_tokens is None:
        return None
    document = windows.document
    number = np.arange(len(document)) - windows.splits[document]
    return KeptWindows(
        document.astype(np.int32), number.astype(np.int32), starts, stops, layout.window_tokens
    )


def _token_vectors(
    layout: "Layout", vectors: np.ndarray | None, tokenizer: "Tokenizer"
) -> TokenVectors | None:
    tokens = layout.tokens
    if tokens is None or vectors is None:
        return None
    names = _vocabulary(tokenizer).take(pa.array(tokens.ids))
    return TokenVectors(tokens.splits, names, tokens.segments, tokens.starts, tokens.stops, vectors)


def _vocabulary(tokenizer: "Tokenizer") -> pa.StringArray:
    """The vocabulary of a tokenizer as Arrow strings, made once."""
    if tokenizer not in _VOCABULARIES:
        _VOCABULARIES[tokenizer] = pa.array(tokenizer.vocab, pa.string())
    return _VOCABULARIES[tokenizer]


def _unit_vectors(units: "Units | None", vectors: np.ndarray | None) -> UnitVectors | None:
    if units is None or vectors is None:
        return None
    texts = units.texts
    return UnitVectors(
        splits=texts.splits,
        texts=None if texts.texts is None else pa.array(texts.texts, pa.string()),
        starts=texts.starts.astype(np.int32),
        stops=texts.stops.astype(np.int32),
        truncated=units.truncated,
        missing=units.first == units.last,
        vectors=vectors,
    )
