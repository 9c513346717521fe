"""Runs rows of token ids through an engine, batch by batch on all cores."""

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bert_embed.architectures.encoder import EncoderConfig
from bert_embed.engines.batches import pad_rows
from bert_embed.engines.fixed_shapes import padded_to
from bert_embed.engines.pooling import finish
from bert_embed.engines.protocol import Engine, Graph
from bert_embed.engines.retry_halves import Outcome, run_halving
from bert_embed.engines.thread_calls import Places, renew_after_fork, run_each
from bert_embed.heads.head import BatchRows, Head, gather_rows
from bert_embed.native_calls import native_call, wait_at_exit
from bert_embed.ragged import places
from bert_embed.rows.to_documents import EmbeddedRows
from bert_embed.specs import OutputSpec, VectorSpec
from bert_embed.storage.errors import InputError

_LOG = logging.getLogger(__name__)


class BrokenModelError(RuntimeError):
    """All of several rows failed, so the model is at fault, not a row."""


class RowRunner:
    """Runs rows on an engine. Several threads may call it.

    On processors each batch runs on one core, and `threads` batches run at the same time, of one
    call or of several: small calls, as a stream makes them, run side by side. On a device that
    compiles each shape of a batch a few batches run at the same time, so that it never waits. Its
    programs end with the pooling: Dense modules, `dim` and `normalize`, which every call can
    change, follow on the processor.
    """

    def __init__(
        self,
        config: EncoderConfig,
        engine: Engine,
        threads: int,
        inference_timeout: float | None = None,
        compile_ahead: bool = False,
        heads: Mapping[str, Head] | None = None,
    ) -> None:
        """Keeps an engine; see `bert_embed.embedder.Embedder` for the settings."""
        self._config, self._engine, self._compile_ahead = config, engine, compile_ahead
        self._threads, self._timeout, self._heads = threads, inference_timeout, heads or {}
        self._graphs: dict[tuple, Graph] = {}
        self._compiled: set[tuple] = set()
        self._at_once = engine.at_once or threads
        self.after_fork()
        renew_after_fork(self)
        wait_at_exit()  # before what the engine's libraries do then

    def after_fork(self) -> None:
        """Forgets the calls of threads that this process does not have."""
        self._lock = threading.Lock()
        self._places = Places(self._at_once)

    def run(
        self,
        spec: VectorSpec,
        output_spec: OutputSpec,
        input_ids: np.ndarray,
        row_splits: np.ndarray,
        type_ids: np.ndarray | None,
        batch_tokens: int | None,
        prompt_tokens: int = 0,
        longest: int | None = None,
        attended: np.ndarray | None = None,
        tell: Callable[[float], object] | None = None,
    ) -> EmbeddedRows:
        """Embeds rows that include [CLS] and [SEP].

        `input_ids` and `type_ids` (None is all 0) are int32 `[tokens]`, all rows end to end,
        `row_splits` int64 `[rows + 1]`. `batch_tokens` are the most tokens of a batch, padding
        included, `prompt_tokens` those of the prompt after each [CLS], and `longest` the most that
        rows usually have: a call with longer ones compiles other shapes. `attended`, int32
        `[tokens]`, is 0 for tokens that no other token sees, for models with `needs_mask`; None is
        all 1. `tell` takes, after each batch and from any thread, the share of the tokens that it
        had. InputError: a row is too long for the model, or an id not in its vocabulary.
        BrokenModelError: all of several rows failed. NoProgressError: see `run_each`.
        """
        if self._config.segments < 2:
            type_ids = None  # both texts of a pair are in the one segment that the model knows
        lengths = np.diff(row_splits)
        _check_rows(self._config, input_ids, lengths)
        if longest is None or lengths.max(initial=0) > longest:
            longest = self._config.max_position_embeddings
        key = (
            replace(spec, dense=0, dim=None, normalize=False),
            replace(output_spec, finished=False),
            0 if spec.pool_prompt else prompt_tokens,
        )
        graph = self._graph(*key)
        batching = self._engine.batching(batch_tokens, longest)
        done = self._empty(spec, output_spec, len(lengths), len(input_ids))
        # By the kind of a head, the rows of each batch.
        parts_of: dict[str, list[tuple[np.ndarray, BatchRows]]] = {
            kind: [] for kind in output_spec.heads
        }

        def call(rows: np.ndarray) -> np.ndarray:
            ids, mask = pad_rows(input_ids, row_splits, rows)
            types = ids * 0 if type_ids is None else pad_rows(type_ids, row_splits, rows)[0]
            shape = batching.shape(*ids.shape)
            seen = mask if attended is None else pad_rows(attended, row_splits, rows)[0]
            outputs = graph(padded_to(ids, shape), padded_to(seen, shape), padded_to(types, shape))
            vectors, tokens = self._finished(outputs, spec, output_spec, mask)
            finite = _keep(vectors, tokens, done, rows, row_splits, mask)
            for kind, batches_of in parts_of.items():
                output = outputs[kind][: len(mask)]
                if output.ndim == 3:
                    output = output[:, : mask.shape[1]]
                part = self._heads[kind].batch_rows(output, ids, mask)
                batches_of.append((rows, part))
                finite &= part.finite
            return finite

        def finished(rows: np.ndarray) -> Outcome:
            part = run_halving(rows, call)
            if tell is not None:
                tell(float(lengths[rows].sum()) / len(input_ids))
            return part

        batches = batching.plan(lengths)
        shapes = [batching.shape(len(rows), int(lengths[rows[0]])) for rows in batches]
        at_once = max(1, min(self._at_once, len(batches)))
        try:
            with self._places.taken(at_once), self._engine.device:
                if batching.shapes and self._compile_ahead:
                    with self._lock:
                        self._compile(key, graph, batching.shapes, done)
                parts = run_each(finished, batches, at_once, self._timeout)
        except (KeyboardInterrupt, RuntimeError) as error:
            # Where Ctrl-C comes while Python's Condition takes its lock again, it raises that the
            # lock is not held.
            interruption = error if isinstance(error, KeyboardInterrupt) else error.__context__
            if not isinstance(interruption, KeyboardInterrupt):
                raise
            self._places = Places(self._at_once)  # it may have come before those taken were noted
            raise interruption from None
        for part in parts:
            done.failed |= part.failed
        for kind, batches_of in parts_of.items():
            setattr(done, kind, gather_rows(self._heads[kind], len(lengths), batches_of))
        done.tokens, done.batches = len(input_ids), len(batches)
        done.padded_tokens = sum(rows * length for rows, length in shapes)
        _refuse_broken_model(done, len(lengths), next((p.error for p in parts if p.error), None))
        return done

    def finish(self, spec: VectorSpec, pooled: np.ndarray) -> np.ndarray:
        """Applies Dense modules, `dim` and `normalize`, see `bert_embed.engines.pooling`."""
        with native_call():
            return finish(spec, pooled, spec.pooled_width(self._config), self._engine.dense)

    def _finished(
        self,
        outputs: Mapping[str, np.ndarray],
        spec: VectorSpec,
        output_spec: OutputSpec,
        mask: np.ndarray,
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Returns float32 `[rows, width]` and `[rows, length, width]` of the rows of `mask`."""
        vectors, tokens = None, None
        if output_spec.sentences:
            vectors = outputs["sentences"][: len(mask)]
            vectors = self.finish(spec, vectors) if output_spec.finished else vectors
        if output_spec.tokens:
            tokens = outputs["tokens"][: len(mask), : mask.shape[1]]
            if spec.dim is not None:
                stacked = spec.token_shape(self._config)[:-1]
                tokens = tokens.reshape(*mask.shape, *stacked, -1)[..., : spec.dim]
                tokens = tokens.reshape(*mask.shape, -1)
        return vectors, tokens

    def _empty(
        self, spec: VectorSpec, output_spec: OutputSpec, rows: int, tokens: int
    ) -> EmbeddedRows:
        """Returns arrays of zeros for the results; those of failed rows stay zero."""
        vectors, token_vectors = None, None
        if output_spec.sentences:
            whole = spec if output_spec.finished else replace(spec, dense=0, dim=None)
            vectors = np.zeros((rows, whole.width(self._config)), np.float32)
        if output_spec.tokens:
            width = math.prod(spec.token_shape(self._config))
            token_vectors = np.zeros((tokens, width), np.float32)
        return EmbeddedRows(vectors, token_vectors)

    def _compile(
        self, key: tuple, graph: Graph, shapes: Sequence[tuple[int, int]], done: EmbeddedRows
    ) -> None:
        """Compiles each new shape by running a batch of it, on all cores."""
        new = [shape for shape in shapes if (key, shape) not in self._compiled]
        if not new:
            return
        _LOG.info("compiling %d programs, one for each shape of a batch", len(new))
        started = time.perf_counter()
        batches = [np.ones(shape, np.int32) for shape in new]
        run_each(lambda ones: graph(ones, ones, ones * 0), batches, self._threads, self._timeout)
        self._compiled.update((key, shape) for shape in new)
        done.compiled, done.compile_seconds = len(new), time.perf_counter() - started

    def _graph(self, spec: VectorSpec, output_spec: OutputSpec, prompt_tokens: int) -> Graph:
        key = spec, output_spec, prompt_tokens
        with self._lock, native_call():
            if key not in self._graphs:
                self._graphs[key] = self._engine.graph(*key)
            return self._graphs[key]


def _keep(
    vectors: np.ndarray | None,
    tokens: np.ndarray | None,
    done: EmbeddedRows,
    rows: np.ndarray,
    row_splits: np.ndarray,
    mask: np.ndarray,
) -> np.ndarray:
    """Stores vectors of some rows and tokens; returns bool `[rows]`, whether all are finite."""
    finite = np.ones(len(rows), bool)
    if vectors is not None and done.vectors is not None:
        finite &= np.isfinite(vectors).all(axis=1)
        done.vectors[rows] = vectors
        done.vectors[rows[~finite]] = 0
    if tokens is not None and done.token_vectors is not None:
        finite &= (np.isfinite(tokens).all(axis=2) | (mask == 0)).all(axis=1)
        at = places(row_splits[rows], np.diff(row_splits)[rows])
        done.token_vectors[at] = tokens[mask > 0]
    return finite


def _refuse_broken_model(done: EmbeddedRows, rows: int, error: Exception | None) -> None:
    if rows > 1 and len(done.failed) == rows:
        reason = min(done.failed.values())
        raise BrokenModelError(f"the model failed on all of {rows} rows: {reason}") from error


def _check_rows(config: EncoderConfig, input_ids: np.ndarray, lengths: np.ndarray) -> None:
    most = config.max_position_embeddings
    if lengths.max(initial=0) > most:
        raise InputError(f"rows must have at most {most} tokens, one has {lengths.max()}")
    if lengths.min(initial=1) < 1:
        raise InputError(f"rows must have at least 1 token, number {lengths.argmin()} has none")
    size = config.vocab_size
    if len(input_ids) and not 0 <= input_ids.min() <= input_ids.max() < size:
        raise InputError(f"input_ids must be between 0 and {size - 1}")
