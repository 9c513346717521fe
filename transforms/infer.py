"""Embeds the rows of TokenBlocks through Beam's RunInference."""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.ml.inference.base import ModelHandler, RunInference

from bert_embed.backends.choose import EngineLoader, load_engine, weight_files
from bert_embed.backends.runner import BrokenModelError
from bert_embed.base.environment import set_up_process
from bert_embed.base.errors import StepError
from bert_embed.base.threads import NoProgressError
from bert_embed.bundle.cache import worker_bundle
from bert_embed.model import Embedder, Request
from bert_embed.settings import TextSpec, VectorSpec
from bert_embed.text.documents import TextTokenizer, TextWords
from bert_embed.text.layout import DocumentVectors, Layout
from bert_embed.transforms.blocks import (
    EmbeddingBlock,
    TokenBlock,
    TokenVectors,
    WordVectors,
    nbytes,
    take_documents,
)
from bert_embed.transforms.parts import Rejected
from bert_embed.transforms.steps import RedactErrors, Step, activity, passed_as_block

# As Arrow strings, converted once.
_VOCABULARIES: WeakKeyDictionary[TextTokenizer, pa.StringArray] = WeakKeyDictionary()


@dataclass(eq=False)
class BlockModelHandler(ModelHandler[TokenBlock, EmbeddingBlock, Embedder]):
    """Runs a bundle's model over TokenBlocks, a block a call, and forms batches itself."""

    bundle: str  # folder, or where workers fetch it; opened on workers only
    fingerprint: str  # the model's; a bundle with another one is rejected
    spec: VectorSpec
    text_spec: TextSpec
    batch_tokens: int | None = None  # most of a batch, padding included; None: by the device
    threads: int | None = None  # this and the next three as `Embedder` takes them
    precision: str = "float32"
    device: str = "auto"
    inference_timeout: float | None = None
    load_engine: EngineLoader | None = None  # pickled for workers; None: that of `choose`
    engine: str | None = None  # as `Embedder` takes it
    programs: str = ""  # as `Bundle.programs`
    # Variables that a device's runtime reads when it starts, in a worker process.
    environment: Mapping[str, str] = field(default_factory=dict)
    made_by: int = field(default_factory=os.getpid, init=False)  # process, perhaps not this

    def __post_init__(self) -> None:
        super().__init__()

    def load_model(self) -> Embedder:
        if os.getpid() != self.made_by:  # a worker process, not the one that called us
            set_up_process()
            os.environ.update(self.environment)
        with activity("loading the model"):
            chosen = {name: getattr(self, name) for name in ("precision", "device", "engine")}
            if self.load_engine is None:  # which checks the files that it reads
                needed = partial(weight_files, **chosen)
                bundle = worker_bundle(self.bundle, self.fingerprint, needed)
            else:
                bundle = worker_bundle(self.bundle, self.fingerprint)
                bundle.verify_files()
            return Embedder(
                replace(bundle, programs=self.programs),
                self.spec,
                threads=self.threads,
                inference_timeout=self.inference_timeout,
                load_engine=self.load_engine or load_engine,
                **chosen,
            )

    def run_inference(
        self,
        batch: TokenBlock,  # a batch already, see should_skip_batching
        model: Embedder,
        inference_args: dict[str, Any] | None = None,
    ) -> list[EmbeddingBlock]:
        """Embeds a block; returns a list of one, as RunInference counts only failures of lists."""
        block, started = batch, time.perf_counter()
        with RedactErrors("infer"), _naming(block):
            request = Request(self.text_spec, rows=block.layout, batch_tokens=self.batch_tokens)
            embedded = model.run(request)
            return [embedding_block(block, embedded, model.tokenizer, started)]

    def get_num_bytes(self, batch: TokenBlock) -> int:
        return nbytes(batch)

    def get_metrics_namespace(self) -> str:
        return "BertEmbed"

    def should_skip_batching(self) -> bool:
        return True


@dataclass
class EmbedBlocks(Step):
    """Embeds TokenBlocks with a handler, which loads the model and runs it."""

    handler: BlockModelHandler

    def expand(self, blocks: beam.PCollection[TokenBlock]) -> beam.PCollection[EmbeddingBlock]:
        passed_as_block(EmbeddingBlock)
        infer = RunInference(self.handler, model_identifier=self.handler.fingerprint)
        return blocks | "Infer" >> infer.with_output_types(EmbeddingBlock)


@contextmanager
def _naming(block: TokenBlock) -> Iterator[None]:
    """Adds the block to the error of a model that fails or hangs."""
    number, sources = block.part.block, block.sources
    try:
        yield
    except (BrokenModelError, NoProgressError) as error:
        reach = " to ".join(dict.fromkeys((sources[0].as_py(), sources[-1].as_py())))
        if isinstance(error, BrokenModelError):
            raise StepError(f"block {number}, {reach}: {error}") from error.__cause__
        raise StepError(
            f"block {number}, {reach}: the model hangs, {error}; the same command tries again, "
            f"and if it always hangs skip_blocks {number} does without these documents"
        ) from None


def embedding_block(
    block: TokenBlock, done: DocumentVectors, tokenizer: TextTokenizer, started: float
) -> EmbeddingBlock:
    """Gives every document, or its windows, their vectors; rejects those of failed rows."""
    layout, rows = done.layout, done.rows
    embedded = EmbeddingBlock(
        part=block.part,
        ids=block.ids,
        num_tokens=layout.num_tokens,
        truncated=layout.truncated,
        full_lengths=layout.num_tokens_full,
        text_hash=block.text_hash,
        vectors=done.sentences,
        windows=layout.kept,
        tokens=_token_vectors(layout, done.tokens, tokenizer),
        words=_word_vectors(layout.words, done.words),
        heads=done.heads,
        extra=block.extra,
        texts=block.texts,
        computed_tokens=rows.tokens,
        padded_tokens=rows.padded_tokens,
        batches=rows.batches,
        compiled=rows.compiled,
    )
    rejected = tuple(
        Rejected(block.ids[document].as_py(), block.sources[document].as_py(), stage, reason)
        for document, (stage, reason) in done.rejected.items()
    )
    if rejected:
        embedded = take_documents(embedded, np.delete(np.arange(len(block)), list(done.rejected)))
    part = block.part
    if rows.compiled:
        part = part.then("compile", rows.compile_seconds)
    seconds = time.perf_counter() - started - rows.compile_seconds
    return replace(embedded, part=part.then("infer", seconds, rejected))


def _token_vectors(
    layout: Layout, vectors: np.ndarray | None, tokenizer: TextTokenizer
) -> TokenVectors | None:
    tokens = layout.tokens
    if tokens is None or vectors is None:
        return None
    if tokenizer not in _VOCABULARIES:
        _VOCABULARIES[tokenizer] = pa.array(tokenizer.vocab, pa.string())
    names = _VOCABULARIES[tokenizer].take(pa.array(tokens.ids))
    return TokenVectors(tokens.splits, names, tokens.segments, tokens.starts, tokens.stops, vectors)


def _word_vectors(words: TextWords | None, vectors: np.ndarray | None) -> WordVectors | None:
    if words is None or vectors is None:
        return None
    return WordVectors(
        splits=words.splits,
        texts=pa.array(words.texts, pa.string()),
        starts=words.starts.astype(np.int32),
        stops=words.stops.astype(np.int32),
        truncated=words.truncated,
        missing=words.first == words.last,
        vectors=vectors,
    )
