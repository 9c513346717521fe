"""RowRunner: rows of token ids in, vectors of rows and tokens out, batch by batch on all cores."""

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bert.batching import pad_rows
from bert.bundle import Bundle
from bert.engine import Graph, Wanted, load_engine
from bert.halving import run_halving
from bert.ladder import filled
from bert.quiet import quiet_start
from bert.ragged import places
from bert.threads import run_each
from bert.vector_spec import VectorSpec

_LOG = logging.getLogger(__name__)


class BrokenModelError(RuntimeError):
    """Every one of several rows failed: the model is broken, not a row."""


@dataclass
class EmbeddedRows:
    """Vectors of rows, and what computing them took.

    Attributes:
        vectors: float32 `[rows, width]`, in the order of the rows; None where not wanted.
        token_vectors: float32 `[tokens, width]`, of all rows end to end; None where not wanted.
        failed: Row numbers to a short fixed reason; zeros stand for what they did not give.
        tokens: Tokens of all rows, special tokens included.
        padded_tokens: Tokens computed, filling included.
        batches: Batches planned.
        compiled: Shapes that were compiled before the first batch.
        compile_seconds: What that took.
    """

    vectors: np.ndarray | None
    token_vectors: np.ndarray | None = None
    failed: dict[int, str] = field(default_factory=dict)
    tokens: int = 0
    padded_tokens: int = 0
    batches: int = 0
    compiled: int = 0
    compile_seconds: float = 0.0


class RowRunner:
    """A model in memory. One call at a time computes; it may be called from several threads.

    On processors each batch runs on one core, and as many at once as there are `threads`. On a
    device that compiles each shape of a batch, all shapes that can occur are compiled before the
    first batch of a kind, and a few batches are under way at once, so that it never waits.
    """

    def __init__(
        self,
        bundle: Bundle,
        special_ids: tuple[int, int],
        threads: int,
        precision: str = "float32",
        device: str = "auto",
        inference_timeout: float | None = None,
    ) -> None:
        """Loads the weights.

        Args:
            bundle: The model.
            special_ids: Those of [CLS] and [SEP].
            threads: Processor cores to use.
            precision: One of `bert.engine.PRECISIONS`.
            device: One of `bert.engine.DEVICES`.
            inference_timeout: Seconds after which a call gives up if no batch ended meanwhile;
                None waits for ever.

        Raises:
            ValueError: The bundle's files are damaged, or cannot be computed so here.
        """
        self._bundle, self._threads, self._timeout = bundle, threads, inference_timeout
        with quiet_start():
            self._engine = load_engine(bundle, special_ids, precision, device)
        self._graphs: dict[tuple, Graph] = {}
        self._compiled: set[tuple] = set()
        self._lock = threading.Lock()

    def run(
        self,
        spec: VectorSpec,
        wanted: Wanted,
        input_ids: np.ndarray,
        row_splits: np.ndarray,
        type_ids: np.ndarray | None,
        batch_tokens: int | None,
        prompt_tokens: int = 0,
        longest: int | None = None,
    ) -> EmbeddedRows:
        """Embeds rows that hold their [CLS] and [SEP].

        Args:
            spec: What a vector is made of.
            wanted: Which vectors.
            input_ids: int32 `[tokens]`, all rows end to end.
            row_splits: int64 `[rows + 1]`, where each row begins and ends.
            type_ids: int32 `[tokens]`, 1 for second texts; None is all 0.
            batch_tokens: Most tokens of a batch, filling included; None is what is fast.
            prompt_tokens: Tokens of the prompt behind each [CLS].
            longest: Most tokens that rows usually have; None is what the model takes. A call with
                longer ones has other shapes, compiled then.

        Raises:
            ValueError: A row over the model's positions, or an id out of its vocabulary.
            BrokenModelError: Every one of several rows failed: the model is broken, not a row.
            NoProgressError: For `inference_timeout` seconds no batch ended.
        """
        lengths = np.diff(row_splits)
        _check_rows(self._bundle, input_ids, lengths)
        if longest is None or lengths.max(initial=0) > longest:
            longest = self._bundle.config.max_position_embeddings
        key = spec, wanted, 0 if spec.pool_prompt else prompt_tokens
        graph = self._graph(*key)
        batching = self._engine.batching(batch_tokens, longest)
        done = _empty(graph, len(lengths), len(input_ids), wanted)

        def call(rows: np.ndarray) -> np.ndarray:
            ids, mask = pad_rows(input_ids, row_splits, rows)
            types = ids * 0 if type_ids is None else pad_rows(type_ids, row_splits, rows)[0]
            shape = batching.shape(*ids.shape)
            outputs = graph(filled(ids, shape), filled(mask, shape), filled(types, shape))
            return _keep(outputs, done, rows, row_splits, mask)

        batches = batching.plan(lengths)
        shapes = [batching.shape(len(rows), int(lengths[rows[0]])) for rows in batches]
        at_once = self._engine.at_once or self._threads
        with self._lock, self._engine.device:
            self._compile(key, graph, batching.shapes, done)
            parts = run_each(lambda rows: run_halving(rows, call), batches, at_once, self._timeout)
        for part in parts:
            done.failed |= part.failed
        done.tokens, done.batches = len(input_ids), len(batches)
        done.padded_tokens = sum(rows * length for rows, length in shapes)
        _refuse_broken_model(done, len(lengths), next((p.error for p in parts if p.error), None))
        return done

    def finish(self, spec: VectorSpec, pooled: np.ndarray) -> np.ndarray:
        """See `bert.engine.Engine`."""
        return self._engine.finish(spec, pooled)

    def _compile(
        self, key: tuple, graph: Graph, shapes: Sequence[tuple[int, int]], done: EmbeddedRows
    ) -> None:
        """Runs a batch of each shape that was not met before, on all cores; the first compiles."""
        new = [shape for shape in shapes if (key, shape) not in self._compiled]
        if not new:
            return
        _LOG.info("compiling %d programs, one for each shape of a batch", len(new))
        started = time.perf_counter()
        some = [np.ones(shape, np.int32) for shape in new]
        run_each(lambda ones: graph(ones, ones, ones * 0), some, self._threads, self._timeout)
        self._compiled.update((key, shape) for shape in new)
        done.compiled, done.compile_seconds = len(new), time.perf_counter() - started

    def _graph(self, spec: VectorSpec, wanted: Wanted, prompt_tokens: int) -> Graph:
        key = spec, wanted, prompt_tokens
        with self._lock:
            if key not in self._graphs:
                self._graphs[key] = self._engine.graph(*key)
            return self._graphs[key]


def available_cores() -> int:
    """Returns how many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _empty(graph: Graph, rows: int, tokens: int, wanted: Wanted) -> EmbeddedRows:
    """Room for the results; a row that fails leaves zeros."""
    widths = graph.widths
    return EmbeddedRows(
        np.zeros((rows, widths["sentences"]), np.float32) if wanted.sentences else None,
        np.zeros((tokens, widths["tokens"]), np.float32) if wanted.tokens else None,
    )


def _keep(
    outputs: Mapping[str, np.ndarray],
    done: EmbeddedRows,
    rows: np.ndarray,
    row_splits: np.ndarray,
    mask: np.ndarray,
) -> np.ndarray:
    """Puts what the model made of some rows in its place; bool `[rows]`, whether all is finite."""
    finite = np.ones(len(rows), bool)
    if done.vectors is not None:
        vectors = outputs["sentences"][: len(rows)]
        finite &= np.isfinite(vectors).all(axis=1)
        done.vectors[rows] = vectors
        done.vectors[rows[~finite]] = 0
    if done.token_vectors is not None:
        vectors = outputs["tokens"][: len(rows), : mask.shape[1]]
        finite &= (np.isfinite(vectors).all(axis=2) | (mask == 0)).all(axis=1)
        at = places(row_splits[rows], np.diff(row_splits)[rows])
        done.token_vectors[at] = vectors[mask > 0]
    return finite


def _refuse_broken_model(done: EmbeddedRows, rows: int, error: Exception | None) -> None:
    if rows > 1 and len(done.failed) == rows:
        reason = min(done.failed.values())
        raise BrokenModelError(f"the model failed on all of {rows} rows: {reason}") from error


def _check_rows(bundle: Bundle, input_ids: np.ndarray, lengths: np.ndarray) -> None:
    most = bundle.config.max_position_embeddings
    if lengths.max(initial=0) > most:
        raise ValueError(f"rows must have at most {most} tokens, one has {lengths.max()}")
    if lengths.min(initial=1) < 1:
        raise ValueError(f"rows must have at least 1 token, number {lengths.argmin()} has none")
    size = bundle.config.vocab_size
    if len(input_ids) and not 0 <= input_ids.min() <= input_ids.max() < size:
        raise ValueError(f"input_ids must be between 0 and {size - 1}")
