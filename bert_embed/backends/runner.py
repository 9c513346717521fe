"""Runs rows of token ids through an engine: batches, padding, cores, halves where one fails."""

import itertools
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np

from bert_embed.backends.protocol import Batch, Engine, Graph, PaddedRows, Shape
from bert_embed.base.arguments import whole_number
from bert_embed.base.arrays import places, unit_length
from bert_embed.base.errors import InputError, StorageError
from bert_embed.base.threads import (
    Places,
    native_call,
    renew_after_fork,
    run_each,
    wait_at_exit,
)
from bert_embed.models.encoder import EncoderConfig
from bert_embed.models.heads.head import BatchRows, Head, gather_rows
from bert_embed.settings import OutputSpec, VectorSpec
from bert_embed.text.layout import EmbeddedRows

DEVICE_BATCH_TOKENS = 16384  # of a GPU, or a chip of a TPU: enough to use all of its units
CPU_BATCH_TOKENS = 512  # so that the values between products stay in a core's cache
_LEAST_FILL = 0.9  # a row shorter than this share of its batch's longest would be mostly padding
_FULL_ENOUGH = 512  # tokens: a smaller batch leaves the matrix products too thin to be fast
OUT_OF_MEMORY = "out of memory"
NOT_FINITE = "vector is not finite"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class AnyShape:
    """Pads a batch to its longest row, for engines that run every shape equally well."""

    budget: int  # most tokens of a batch, padding included; a longer row is one by itself
    equal: bool = False  # rows of a batch are equally long

    def plan(self, lengths: np.ndarray) -> list[Batch]:
        batches = plan_batches(lengths, self.budget, self.equal)
        return [Batch(rows, (len(rows), int(lengths[rows[0]]))) for rows in batches]

    def ahead(self, batches: Sequence[Batch], everything: bool) -> Sequence[Shape]:
        return ()


def plan_batches(lengths: np.ndarray, budget: int, equal: bool = False) -> list[np.ndarray]:
    """Row numbers of batches of similar length, int64 `[batch]` each, from `lengths`, int `[rows]`.

    Rows are sorted by length, longest first, equal lengths in their order. A batch holds at most
    `budget` tokens with its padding (a longer row is a batch of its own). Once it holds 512 tokens
    it ends before the first row that is shorter than 0.9 of its longest.

    >>> [batch.tolist() for batch in plan_batches(np.array([3, 9, 3, 8]), budget=18)]
    [[1, 3], [0, 2]]
    """
    lengths = np.asarray(lengths, np.int64)
    missing = lengths.max(initial=0) - lengths
    if missing.max(initial=0) <= np.iinfo(np.uint16).max:
        missing = missing.astype(np.uint16)  # which NumPy sorts in linear time
    order = np.argsort(missing, kind="stable")
    ordered = -lengths[order]  # ascending, so that searchsorted finds the first short row
    batches, start = [], 0
    while start < len(order):
        longest = int(-ordered[start])
        enough = start if equal else start - (-_FULL_ENOUGH // max(longest, 1))
        least = longest if equal else _LEAST_FILL * longest
        short = int(np.searchsorted(ordered, -least, side="right"))
        stop = min(start + max(budget // max(longest, 1), 1), max(short, enough), len(order))
        batches.append(order[start:stop])
        start = stop
    return batches


def pad_rows(
    values: np.ndarray, row_splits: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns some rows as int32 `[batch, longest]`, padded with 0, and where they have values."""
    starts = row_splits[rows]
    lengths = row_splits[rows + 1] - starts
    inside = np.arange(lengths.max(initial=0)) < lengths[:, None]
    padded = np.zeros(inside.shape, np.int32)
    padded[inside] = values[places(starts, lengths)]
    return padded, inside.astype(np.int32)


_SHORTEST, _LEAST_STEP = 8, 4
_STEPS_AN_OCTAVE = 4
_PARTS = (1, 4)  # a batch is full, or a quarter of that where a length has few rows
_ROWS_STEP = 8  # products of fewer rows leave the device's units idle


@dataclass(frozen=True)
class FixedShapes:
    """The shapes that batches can have: a few lengths of rows, and two sizes for each.

    >>> FixedShapes(budget=256, longest=20).shapes
    [(32, 8), (8, 8), (16, 12), (5, 12), (16, 16), (4, 16), (8, 20), (3, 20)]
    """

    budget: int  # most tokens of a batch, padding included; a longer row is one by itself
    longest: int  # most tokens of a row

    def __post_init__(self) -> None:
        whole_number("batch_tokens", self.budget, least=1)

    @cached_property
    def lengths(self) -> list[int]:
        """The lengths of rows, ascending: in steps of 4 up to 32, then four lengths an octave."""
        return [
            *itertools.takewhile(self.longest.__gt__, _lengths()),
            self.longest,
        ]

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """All shapes, each as number of rows and tokens of a row."""
        return [(rows, length) for length in self.lengths for rows in self.row_counts(length)]

    def row_counts(self, length: int) -> list[int]:
        """Returns the numbers of rows that batches of this length can have, descending."""
        return sorted({_whole(self.budget // part // length) for part in _PARTS}, reverse=True)

    def ahead(self, batches: Sequence[Batch], everything: bool) -> Sequence[Shape]:
        return self.shapes if everything else ()

    def plan(self, lengths: np.ndarray) -> list[Batch]:
        """As `plan_batches`; shorter rows complete a batch of a length that has too few."""
        lengths = np.asarray(lengths, np.int64)
        order = np.argsort(-lengths, kind="stable")
        padded = np.searchsorted(self.lengths, lengths[order])
        batches, start = [], 0
        while start < len(order):
            left = int(np.searchsorted(-padded, -padded[start], side="right")) - start
            length = self.lengths[padded[start]]
            counts = self.row_counts(length)
            count = min((count for count in counts if count >= left), default=counts[0])
            batches.append(Batch(order[start : start + count], (count, length)))
            start += count
        return batches


def padded_to(values: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Pads int32 `[rows, length]` by 0, and by copies of the first row: empty ones divide by 0."""
    rows, length = values.shape
    if values.shape == shape:
        return values
    whole = np.zeros(shape, values.dtype)
    whole[:rows, :length] = values
    whole[rows:] = whole[0]
    return whole


def _lengths() -> Iterator[int]:
    length = _SHORTEST
    while True:
        yield length
        length += max(_LEAST_STEP, (1 << length.bit_length() - 1) // _STEPS_AN_OCTAVE)


def _whole(rows: int) -> int:
    return rows // _ROWS_STEP * _ROWS_STEP if rows >= _ROWS_STEP else max(rows, 1)


@dataclass
class Outcome:
    """Which rows failed."""

    failed: dict[int, str] = field(default_factory=dict)  # the reason of each failed row, by number
    error: Exception | None = None  # one that caused `failed`; None where no call raised


class BrokenModelError(RuntimeError):
    """All of several rows failed, or a chip did: the model or the chip is at fault, not a row."""


def run_halving(rows: np.ndarray, call: Callable[[np.ndarray], np.ndarray]) -> Outcome:
    """Calls the model with all rows, int64 `[rows]`; where it raises, with each half of them.

    `call` stores the outputs of rows, and returns bool `[rows]`: whether all of a row are finite.
    """
    try:
        finite = call(rows)
    except (BrokenModelError, StorageError):  # the latter of the model's own files
        raise
    except Exception as error:  # noqa: BLE001
        if len(rows) == 1:
            return Outcome({int(rows[0]): reason_of(error)}, error)
    else:
        return Outcome({int(row): NOT_FINITE for row in rows[~finite]})
    # Not in the except clause, where the traceback still holds the memory of the failed call.
    middle = len(rows) // 2
    first, second = (run_halving(half, call) for half in (rows[:middle], rows[middle:]))
    return Outcome(first.failed | second.failed, first.error or second.error)


def reason_of(error: Exception) -> str:
    """Returns the short fixed phrase under which a failed call is counted.

    >>> reason_of(MemoryError()), reason_of(ZeroDivisionError("a text would stand here"))
    ('out of memory', 'model error: ZeroDivisionError')
    """
    name = type(error).__name__
    exhausted = isinstance(error, MemoryError) or name == "ResourceExhaustedError"
    return OUT_OF_MEMORY if exhausted else f"model error: {name}"


class RowRunner:
    """Runs rows on an engine. Several threads may call it.

    On processors each batch runs on one core, and `threads` batches run at the same time, of one
    call or of several: small calls, as a stream makes them, run side by side. On a device that
    compiles each shape of a batch a few batches run at the same time, so that it never waits. Its
    programs end with the pooling: modules, `dim` and `normalize`, which every call can
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
        """Keeps an engine; see `bert_embed.model.Embedder` for the settings."""
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
        head: int = 0,
        longest: int | None = None,
        attended: np.ndarray | None = None,
        tell: Callable[[float], object] | None = None,
    ) -> EmbeddedRows:
        """Embeds rows that include [CLS] and [SEP].

        `input_ids` and `type_ids` (None is all 0) are int32 `[tokens]`, all rows end to end,
        `row_splits` int64 `[rows + 1]`. `batch_tokens` are the most tokens of a batch, padding
        included, `head` those of each row up to its prompt's end, and `longest` the most that rows
        usually have: a call with longer ones compiles other shapes. `attended`, int32
        `[tokens]`, is 0 for tokens that no other token sees, for models with `needs_mask`; None is
        all 1. `tell` takes, after each batch and from any thread, the share of the tokens that it
        had. InputError: a row is too long for the model, or an id not in its vocabulary.
        BrokenModelError: all of several rows failed. NoProgressError: see `run_each`.
        """
        if type_ids is not None and self._config.segments < 2:
            type_ids = None  # both texts of a pair are in the one segment that the model knows
        lengths = np.diff(row_splits)
        _check_rows(self._config, input_ids, lengths)
        if longest is None or lengths.max(initial=0) > longest:
            longest = self._config.max_position_embeddings
        key = spec.pooled, replace(output_spec, finished=False), 0 if spec.pool_prompt else head
        graph = self._graph(*key)
        batching = self._engine.batching(batch_tokens, longest)
        done = self._empty(spec, output_spec, len(lengths), len(input_ids))
        # By the kind of a head, the rows of each batch.
        parts_of: dict[str, list[tuple[np.ndarray, BatchRows]]] = {
            kind: [] for kind in output_spec.heads
        }

        def call(shape: Shape, rows: np.ndarray) -> np.ndarray:
            ids, mask = pad_rows(input_ids, row_splits, rows)
            types = ids * 0 if type_ids is None else pad_rows(type_ids, row_splits, rows)[0]
            seen = mask if attended is None else pad_rows(attended, row_splits, rows)[0]
            outputs = graph(PaddedRows(ids, mask, types, seen), shape)
            vectors, tokens = self._finished(outputs, spec, output_spec, mask)
            finite = _keep(vectors, tokens, done, rows, row_splits, mask)
            for kind, batches_of in parts_of.items():
                part = self._heads[kind].batch_rows(outputs[kind], ids, mask)
                batches_of.append((rows, part))
                finite &= part.finite
            return finite

        def finished(batch: Batch) -> Outcome:
            part = run_halving(batch.rows, partial(call, batch.shape))
            if tell is not None:
                tell(float(lengths[batch.rows].sum()) / max(len(input_ids), 1))
            return part

        batches = batching.plan(lengths)
        ahead = batching.ahead(batches, self._compile_ahead)
        at_once = max(1, min(self._at_once, len(batches)))
        try:
            with self._places.taken(at_once), self._engine.device:
                if ahead:
                    with self._lock:
                        self._compile(key, graph, ahead, done)
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
            done.heads[kind] = gather_rows(self._heads[kind], len(lengths), batches_of)
        done.tokens, done.batches = len(input_ids), len(batches)
        done.padded_tokens = sum(math.prod(batch.shape) for batch in batches)
        if 1 < len(lengths) == len(done.failed):
            cause = next((part.error for part in parts if part.error), None)
            reason = min(done.failed.values())
            raise BrokenModelError(
                f"the model failed on all of {len(lengths)} rows: {reason}"
            ) from cause
        return done

    def finish(self, spec: VectorSpec, pooled: np.ndarray) -> np.ndarray:
        """Applies the model's modules, `dim` and `normalize`, see `finish`."""
        with native_call():
            return finish(spec, pooled, spec.pooled_width(self._config), self._engine.modules)

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
            vectors = outputs["sentences"]
            vectors = self.finish(spec, vectors) if output_spec.finished else vectors
        if output_spec.tokens:
            tokens = outputs["tokens"]
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
        self, key: tuple, graph: Graph, shapes: Sequence[Shape], done: EmbeddedRows
    ) -> None:
        """Compiles each new shape by running a batch of it, on all cores."""
        new = [shape for shape in dict.fromkeys(shapes) if (key, shape) not in self._compiled]
        if not new:
            return
        _LOG.info("compiling %d programs, one for each shape of a batch", len(new))
        started = time.perf_counter()

        def compile_one(shape: Shape) -> None:
            ones = np.ones(shape, np.int32)
            with suppress(MemoryError):  # which each row will say
                graph(PaddedRows(ones, ones, ones * 0, ones), shape)

        run_each(compile_one, new, self._threads, self._timeout)
        self._compiled.update((key, shape) for shape in new)
        done.compiled, done.compile_seconds = len(new), time.perf_counter() - started

    def _graph(self, spec: VectorSpec, output_spec: OutputSpec, head: int) -> Graph:
        key = spec, output_spec, head
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


def _check_rows(config: EncoderConfig, input_ids: np.ndarray, lengths: np.ndarray) -> None:
    most = config.max_position_embeddings
    if lengths.max(initial=0) > most:
        raise InputError(f"rows must have at most {most} tokens, one has {lengths.max()}")
    if config.special_tokens and lengths.min(initial=1) < 1:
        raise InputError(f"rows must have at least 1 token, number {lengths.argmin()} has none")
    size = config.vocab_size
    if len(input_ids) and not 0 <= input_ids.min() <= input_ids.max() < size:
        raise InputError(f"input_ids must be between 0 and {size - 1}")


def finish(
    spec: VectorSpec,
    pooled: np.ndarray,
    pooled_width: int,
    modules: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Applies the model's modules, then `dim` and unit length; float32 `[rows, spec.width]`.

    `pooled` is float32 `[rows, layers * pooled_width]`; each layer of a stack is cut and scaled by
    itself.
    """
    layers = np.split(pooled, pooled.shape[1] // pooled_width, axis=1)
    layers = [modules(layer) for layer in layers] if spec.dense else layers
    if not spec.dim_last:
        layers = [layer[:, : spec.dim] for layer in layers]
    layers = [unit_length(layer) if spec.normalize else layer for layer in layers]
    return np.concatenate([layer[:, : spec.dim] for layer in layers], axis=1)
