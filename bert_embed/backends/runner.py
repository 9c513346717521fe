"""Runs rows of token ids through an engine: batches, cores, halves where a batch fails."""

import logging
import math
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from bert_embed.backends.batches import Batch, PaddedRows, Shape, pad_rows
from bert_embed.backends.host import finish
from bert_embed.backends.protocol import Engine, Graph
from bert_embed.base.arrays import places
from bert_embed.base.errors import InputError
from bert_embed.base.threads import give_up, native_call, wait_at_exit
from bert_embed.models.encoder import EncoderConfig
from bert_embed.models.heads.head import BatchRows, Head, gather_rows
from bert_embed.settings import OutputSpec, VectorSpec
from bert_embed.text.layout import EmbeddedRows

OUT_OF_MEMORY = "out of memory"
NOT_FINITE = "vector is not finite"


@dataclass
class Outcome:
    """Which rows failed."""

    failed: dict[int, str] = field(default_factory=dict)  # the reason of each failed row, by number
    error: Exception | None = None  # one that caused `failed`; None where no call raised


def run_halving(rows: np.ndarray, call: Callable[[np.ndarray], np.ndarray]) -> Outcome:
    """Calls the model with all rows, int64 `[rows]`; where it raises, with each half of them.

    `call` stores the outputs of rows, and returns bool `[rows]`: whether all of a row are finite.
    """
    try:
        finite = call(rows)
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


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


class Forked(Protocol):
    """What holds locks: a process forked while another thread held one would wait for ever.

    So would one that exits, whose other threads begin no more calls.
    """

    def after_fork(self) -> None:
        """Renews the locks, in the new process, or that which exits."""


_forked: "weakref.WeakSet[Forked]" = weakref.WeakSet()


def renew_after_fork(holder: Forked) -> None:
    """Has `holder.after_fork` called in each process that is forked from this one."""
    _forked.add(holder)


def _after_fork() -> None:
    for holder in list(_forked):
        holder.after_fork()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_after_fork)
wait_at_exit(_after_fork)


class NoProgressError(RuntimeError):
    """No call finished in time."""


class Places:
    """Places for calls at the same time, which several threads share; who came first is first.

    A thread that an exception stops while it waits, as Ctrl-C does, may leave them unusable.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._turn = threading.Lock()  # of the one that waits for places
        self._freed = threading.Condition()

    @contextmanager
    def taken(self, places: int) -> Iterator[None]:
        """Holds so many places, at most all of them, and waits until they are free."""
        with self._turn, self._freed:
            self._freed.wait_for(lambda: self._free >= places)
            self._free -= places
        try:
            yield
        finally:
            with self._freed:
                self._free += places
                self._freed.notify_all()


def run_each(
    function: Callable[[_Item], _Result],
    items: Sequence[_Item],
    threads: int,
    timeout: float | None = None,
) -> list[_Result]:
    """Calls the function with each item, `threads` at a time; the results are in the items' order.

    A call into native code cannot be stopped. So the threads are daemons: unlike an executor's, a
    thread that hangs blocks neither the caller nor the end of the process. After `timeout` seconds
    without a finished call NoProgressError says so, and no further call begins. What a call raised
    is raised after the other running calls have finished.
    """
    running = min(threads, len(items))
    numbers = iter(range(len(items)))  # shared; the interpreter takes each number once
    ended: queue.SimpleQueue[tuple[int | None, Any]] = queue.SimpleQueue()
    stopped = threading.Event()
    caller = threading.get_ident()

    def work() -> None:
        error: BaseException | None = None
        try:
            while not stopped.is_set() and (number := next(numbers, None)) is not None:
                with native_call(caller):
                    ended.put((number, function(items[number])))
        except BaseException as raised:  # noqa: BLE001 - raised again in the caller's thread
            error = raised
            stopped.set()
        ended.put((None, error))

    workers = [threading.Thread(target=work, daemon=True) for _ in range(running)]
    results: dict[int, _Result] = {}
    errors: list[BaseException] = []
    try:
        for worker in workers:
            worker.start()
        while running:
            number, result = ended.get(timeout=timeout)
            if number is not None:
                results[number] = result
                continue
            running -= 1
            errors += [] if result is None else [result]
    except queue.Empty:
        pass  # raised below, so that the error does not have this one as its context
    finally:
        stopped.set()
    if running:
        give_up(worker.ident for worker in workers)
        raise NoProgressError(f"no call came to an end in {timeout:g} s")
    if errors:
        raise errors[0]
    return [results[number] for number in range(len(items))]


_LOG = logging.getLogger(__name__)


class BrokenModelError(RuntimeError):
    """All of several rows failed, so the model is at fault, not a row."""


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
        if type_ids is not None and self._config.segments < 2:
            type_ids = None  # both texts of a pair are in the one segment that the model knows
        lengths = np.diff(row_splits)
        _check_rows(self._config, input_ids, lengths)
        if longest is None or lengths.max(initial=0) > longest:
            longest = self._config.max_position_embeddings
        key = (
            spec.pooled,
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
        done.padded_tokens = sum(batch.tokens for batch in batches)
        _refuse_broken_model(done, len(lengths), next((p.error for p in parts if p.error), None))
        return done

    def finish(self, spec: VectorSpec, pooled: np.ndarray) -> np.ndarray:
        """Applies the model's modules, `dim` and `normalize`, see `bert_embed.backends.host`."""
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
            graph(PaddedRows(ones, ones, ones * 0, ones), shape)

        run_each(compile_one, new, self._threads, self._timeout)
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
    if config.special_tokens and lengths.min(initial=1) < 1:
        raise InputError(f"rows must have at least 1 token, number {lengths.argmin()} has none")
    size = config.vocab_size
    if len(input_ids) and not 0 <= input_ids.min() <= input_ids.max() < size:
        raise InputError(f"input_ids must be between 0 and {size - 1}")
