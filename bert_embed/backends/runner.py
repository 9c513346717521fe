"""Runs rows of token ids through an engine: batches, padding, cores, and rows that fail again."""

import logging
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from operator import attrgetter
from typing import ClassVar, TypeVar

import numpy as np

from bert_embed.backends.protocol import Batch, Batching, Engine, Graph, PaddedRows, Shape
from bert_embed.base.arguments import whole_number
from bert_embed.base.arrays import first_of_equal, places, take_rows, unit_length
from bert_embed.base.errors import InputError, StorageError, TextError, counted
from bert_embed.base.threads import native_call, renew_after_fork, run_each, wait_at_exit
from bert_embed.models.encoder import EncoderConfig
from bert_embed.models.heads.head import BatchRows, Head, gather_rows
from bert_embed.settings import OutputSpec, VectorSpec
from bert_embed.text.documents import TokenRows
from bert_embed.text.layout import EmbeddedRows

DEVICE_BATCH_TOKENS = 16384  # of a GPU, or a chip of a TPU: enough to use all of its units
CPU_BATCH_TOKENS = 512  # so that the values between products stay in a core's cache
# Seconds before rows that failed are tried again: a fault that passes is over by then, most often.
PAUSES = (1.0, 5.0)
OUT_OF_MEMORY = "out of memory"
NOT_FINITE = "vector is not finite"
_MODEL_ERROR = "model error: "
_LOG = logging.getLogger(__name__)
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class EqualLengths:
    """Batches of rows of one length, for engines that run every shape equally well.

    >>> batches = EqualLengths(budget=8).plan(np.array([3, 9, 3, 4, 3, 9]))
    >>> [(batch.rows.tolist(), batch.shape) for batch in batches]
    [([1], (1, 9)), ([5], (1, 9)), ([3], (1, 4)), ([0, 2], (2, 3)), ([4], (1, 3))]
    """

    compiles: ClassVar[bool] = False
    budget: int  # most tokens of a batch; a longer row is one by itself

    def plan(self, lengths: np.ndarray) -> list[Batch]:
        """Returns the batches, longest rows first, those of a length in their order."""
        lengths = np.asarray(lengths, np.int64)
        missing = lengths.max(initial=0) - lengths
        if missing.max(initial=0) <= np.iinfo(np.uint16).max:
            missing = missing.astype(np.uint16)  # which NumPy sorts in linear time
        order = np.argsort(missing, kind="stable")
        starts = np.flatnonzero(first_of_equal(missing[order])).tolist()
        batches = []
        for start, stop in pairwise([*starts, len(order)]):
            length = int(lengths[order[start]])
            most = max(self.budget // max(length, 1), 1)
            for at in range(start, stop, most):
                rows = order[at : min(at + most, stop)]
                batches.append(Batch(rows, (len(rows), length)))
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


def padded_rows(rows: TokenRows, numbers: np.ndarray) -> PaddedRows:
    """Rows by their numbers, padded to the longest of them."""
    ids, mask = pad_rows(rows.input_ids, rows.row_splits, numbers)
    types, seen = ids * 0, mask
    if rows.token_type_ids is not None:
        types, _ = pad_rows(rows.token_type_ids, rows.row_splits, numbers)
    if rows.attended is not None:
        seen, _ = pad_rows(rows.attended, rows.row_splits, numbers)
    return PaddedRows(ids, mask, types, seen)


_SHORTEST, _LEAST_STEP = 8, 4
_STEPS_AN_OCTAVE = 4
_PARTS = (1, 4)  # a batch is full, or a quarter of that where a length has few rows
_ROWS_STEP = 8  # products of fewer rows leave the device's units idle


@dataclass(frozen=True)
class FixedShapes:
    """Batches of few shapes, for engines that compile each: few lengths, and two sizes for each.

    >>> shapes = FixedShapes(budget=256, longest=20)
    >>> [(length, shapes.row_counts(length)) for length in shapes.lengths]
    [(8, [32, 8]), (12, [16, 5]), (16, [16, 4]), (20, [8, 3])]
    """

    compiles: ClassVar[bool] = True
    budget: int  # most tokens of a batch, padding included; a longer row is one by itself
    longest: int  # most tokens of a row

    @cached_property
    def lengths(self) -> list[int]:
        """The lengths of rows, ascending: in steps of 4 up to 32, then four lengths an octave."""
        lengths, length = [], _SHORTEST
        while length < self.longest:
            lengths.append(length)
            length += max(_LEAST_STEP, (1 << length.bit_length() - 1) // _STEPS_AN_OCTAVE)
        return [*lengths, self.longest]

    def row_counts(self, length: int) -> list[int]:
        """Returns the numbers of rows that batches of this length can have, descending."""
        counts = (self.budget // part // length for part in _PARTS)
        whole = (max(n // _ROWS_STEP * _ROWS_STEP if n >= _ROWS_STEP else n, 1) for n in counts)
        return sorted({*whole}, reverse=True)

    def plan(self, lengths: np.ndarray) -> list[Batch]:
        """Returns the batches, longest rows first; shorter ones complete what has too few."""
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


@dataclass
class Outcome:
    """Which rows failed."""

    failed: dict[int, str] = field(default_factory=dict)  # the reason of each failed row, by number
    error: Exception | None = None  # one that caused `failed`; None where no call raised


class BrokenModelError(TextError):
    """The model or a chip is at fault, not a text: one that is known to work failed, too."""


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
        return Outcome(dict.fromkeys(rows[~finite].tolist(), NOT_FINITE))
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
    return OUT_OF_MEMORY if exhausted else f"{_MODEL_ERROR}{name}"


def failed_in_model(rejected: Mapping[str, int]) -> int:
    """Returns how many records were rejected because the model failed on them, of all by reason.

    >>> failed_in_model({"empty text": 4, "out of memory": 2, "model error: ValueError": 1})
    3
    """
    ours = (OUT_OF_MEMORY, NOT_FINITE, _MODEL_ERROR)
    return sum(count for reason, count in rejected.items() if reason.startswith(ours))


@dataclass(frozen=True)
class RowSpec:
    """Which vectors rows get, and how they are batched."""

    vectors: VectorSpec
    outputs: OutputSpec = field(default_factory=OutputSpec)
    head: int = 0  # tokens of each row up to its prompt's end; 0 without a prompt
    batch_tokens: int | None = None  # most of a batch, padding included; None: as suits the device
    # Most tokens that rows usually have: a call with longer ones compiles other shapes. None: as
    # many as the model takes.
    longest: int | None = None


@dataclass(frozen=True)
class _Prepared:
    """What all calls for the same vectors share."""

    key: tuple  # of the graph
    graph: Graph
    batching: Batching
    width: int  # of the vectors of rows; 0 where they are not requested
    pooled_width: int  # of these before modules, of a stack for one layer; likewise
    token_shape: tuple[int, ...]  # of the vectors of tokens; likewise ()


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
        heads: Mapping[str, Head] | None = None,
        probe: Callable[[], TokenRows] | None = None,
    ) -> None:
        """Keeps an engine; see `bert_embed.model.Embedder` for the settings.

        `probe` gives rows of ordinary texts, which tell whether the model works at all.
        """
        self._config, self._engine, self._probe = config, engine, probe
        self._threads, self._timeout, self._heads = threads, inference_timeout, heads or {}
        self._graphs: dict[tuple, Graph] = {}
        self._compiled: set[tuple] = set()
        self._at_once = engine.at_once or threads
        self.after_fork()
        renew_after_fork(self)
        wait_at_exit()  # before what the engine's libraries do then

    def after_fork(self) -> None:
        """Forgets the calls of threads that this process does not have; asks the engine anew."""
        self._prepared: dict[tuple, _Prepared] = {}
        self._lock = threading.Lock()
        self._renew_places()

    def _renew_places(self) -> None:
        """Makes places for calls at the same time, and a turn for the one that waits for them."""
        self._turn, self._free = threading.Lock(), threading.Semaphore(self._at_once)

    def run(
        self, rows: TokenRows, wanted: RowSpec, tell: Callable[[float], object] | None = None
    ) -> EmbeddedRows:
        """Embeds rows; those on which the model fails are tried again, see `_bad_rows`.

        `tell` takes, after each batch and from any thread, the share of the tokens that it had.

        Raises:
            InputError: A row is too long for the model, or an id not in its vocabulary.
            BrokenModelError: The model fails on rows that are known to work, too.
            NoProgressError: See `run_each`.
        """
        if rows.token_type_ids is not None and self._config.segments < 2:
            rows = replace(rows, token_type_ids=None)  # both texts of a pair are in the one segment
        _check_rows(self._config, rows)
        longest = wanted.longest
        if longest is None or rows.lengths.max(initial=0) > longest:
            longest = self._config.max_position_embeddings
        prepared = self._prepare(wanted, longest)
        work = _CallRows(self._engine, self._heads, wanted, prepared, rows)
        if prepared.batching.compiles and work.batches:
            with self._held(len(work.batches)), self._lock:
                self._compile(prepared, work)
        outcomes = self._each(partial(work.attempt, tell=tell), work.batches)
        if any(map(_FAILED, outcomes)):
            work.done.failed = self._bad_rows(work, outcomes)
        return work.finished()

    def finish(self, spec: VectorSpec, pooled: np.ndarray) -> np.ndarray:
        """Applies the model's modules, `dim` and `normalize`, see `finish`."""
        with native_call():
            return finish(spec, pooled, spec.pooled_width(self._config), self._engine.modules)

    def _bad_rows(self, work: "_CallRows", outcomes: Sequence[Outcome]) -> dict[int, str]:
        """Tries failed rows again after a pause; gives the reasons of those that stay failed.

        A fault that passes costs no row, because only a row that fails beside one that works is
        bad. First the rows of a batch are tried together, as they were. Those that fail again run
        alone, in turn with a row that is known to work: a bad row takes about seven runs with one
        row, and all bad rows of a call share the pause. Where the known row fails, too, nothing is
        known of any other: they wait for the next pause, and after the last one the model is
        broken.
        """
        cause = next((outcome.error for outcome in outcomes if outcome.error), None)
        suspects, failed = _failed_rows(work.batches, outcomes), _reasons(outcomes)
        bad: dict[int, str] = {}
        for pause in PAUSES:
            _LOG.warning("%s; trying again in %g s", _failure(failed, work.rows), pause)
            time.sleep(pause)
            known = work.known_row({*bad, *failed}, self._probe)
            if not all(self._each(known.works, suspects[:1])):
                continue
            outcomes = self._each(work.attempt, suspects)
            reasons, suspects = _reasons(outcomes), _failed_rows(suspects, outcomes)
            alone = [one for batch in suspects for one in batch.split()]
            verdicts = self._each(partial(work.is_bad, known=known), alone)
            judged = [*zip(alone, reasons, verdicts, strict=True)]
            bad |= {row: reasons[row] for _, row, is_bad in judged if is_bad}
            failed = {row: reasons[row] for _, row, is_bad in judged if is_bad is None}
            suspects = [one for one, row, _ in judged if row in failed]
            if not failed:
                return bad
        raise BrokenModelError(
            f"{_failure(failed, work.rows)}; a row that is known to work failed, too"
        ) from cause

    @contextmanager
    def _held(self, calls: int) -> Iterator[int]:
        """Holds the device, and places for calls; gives how many of them may run at a time."""
        at_once, turn, free = max(1, min(self._at_once, calls)), self._turn, self._free
        try:
            with turn:  # who came first is first
                for _ in range(at_once):
                    free.acquire()
            try:
                with self._engine.device:
                    yield at_once
            finally:
                free.release(at_once)
        except KeyboardInterrupt:
            self._renew_places()  # it may have come before those taken were noted
            raise

    def _each(
        self, function: Callable[[Batch], _Result], batches: Sequence[Batch]
    ) -> list[_Result]:
        with self._held(len(batches)) as at_once:
            return run_each(function, batches, at_once, self._timeout)

    def _compile(self, prepared: _Prepared, work: "_CallRows") -> None:
        """Compiles each new shape of a call by running a batch of it, on all cores."""
        key, graph, done = prepared.key, prepared.graph, work.done
        shapes = dict.fromkeys(map(_SHAPE, work.batches))
        new = [shape for shape in shapes if (key, shape) not in self._compiled]
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

    def _prepare(self, wanted: RowSpec, longest: int) -> _Prepared:
        """Returns what was prepared for such calls, whose rows have at most so many tokens."""
        spec, outputs = wanted.vectors, wanted.outputs
        asked = spec, outputs, wanted.head, wanted.batch_tokens, longest
        with self._lock, native_call():
            if asked not in self._prepared:
                if wanted.batch_tokens is not None:
                    whole_number("batch_tokens", wanted.batch_tokens, least=1)
                key = spec.pooled, outputs._replace(finished=False), wanted.head
                if key not in self._graphs:
                    self._graphs[key] = self._engine.graph(*key)
                whole = spec if outputs.finished else replace(spec, dense=0, dim=None)
                self._prepared[asked] = _Prepared(
                    key,
                    self._graphs[key],
                    self._engine.batching(wanted.batch_tokens, longest),
                    width=whole.width(self._config) if outputs.sentences else 0,
                    pooled_width=spec.pooled_width(self._config) if outputs.sentences else 0,
                    token_shape=spec.token_shape(self._config) if outputs.tokens else (),
                )
            return self._prepared[asked]


_FAILED, _SHAPE = attrgetter("failed"), attrgetter("shape")  # of an `Outcome`, of a `Batch`


@dataclass
class _KnownRow:
    """A row that is known to work, which has its turn beside rows that failed."""

    run: Callable[[Batch], bool]  # takes the other row; whether it works now
    failed: bool = False  # so that nothing is known of other rows

    def works(self, beside: Batch) -> bool:
        """Whether it works now, or at once afterwards, and always did."""
        self.failed = self.failed or not (self.run(beside) or self.run(beside))
        return not self.failed


@dataclass(eq=False)
class _CallRows:
    """The rows of one call on their way through an engine, and what came of them."""

    engine: Engine
    heads: Mapping[str, Head]
    wanted: RowSpec
    prepared: _Prepared
    rows: TokenRows
    batches: list[Batch] = field(init=False)
    done: EmbeddedRows = field(init=False)  # zeros for rows that are not computed
    # By the kind of a head, the numbers of some rows and what it makes of them.
    parts: dict[str, list[tuple[np.ndarray, BatchRows]]] = field(init=False)

    def __post_init__(self) -> None:
        prepared, outputs = self.prepared, self.wanted.outputs
        self.batches = prepared.batching.plan(self.rows.lengths)
        of_rows = len(self.rows.lengths), prepared.width
        of_tokens = len(self.rows.input_ids), math.prod(prepared.token_shape)
        self.done = EmbeddedRows(
            np.zeros(of_rows, np.float32) if outputs.sentences else None,
            np.zeros(of_tokens, np.float32) if outputs.tokens else None,
        )
        self.parts = defaultdict(list)

    def attempt(self, batch: Batch, tell: Callable[[float], object] | None = None) -> Outcome:
        """Runs a batch, or some of its rows, and keeps the results of those that work."""
        outcome = run_halving(batch.rows, partial(self._computed, batch.shape))
        if tell is not None:
            tell(float(self.rows.lengths[batch.rows].sum()) / max(len(self.rows.input_ids), 1))
        return outcome

    def is_bad(self, row: Batch, known: _KnownRow) -> bool | None:
        """Whether a lone row fails where the known one does not; None: both fail.

        Both have several turns, so that a fault which comes and goes looks like no bad row.
        """
        if known.failed:
            return None
        if not self.attempt(row).failed or not self.attempt(row).failed:
            return False
        if not known.works(row):
            return None
        if not self.attempt(row).failed:
            return False
        return True if known.works(row) else None

    def known_row(self, failed: Container[int], probe: Callable[[], TokenRows] | None) -> _KnownRow:
        """Returns the row beside which failed ones are tried.

        It is the row that worked and is about as long, as a passing lack of memory meets long rows
        alone. If none worked, all rows of the probe must: several failed, so the model may be
        broken for ordinary texts. Beside a lone row one of the probe is enough.
        """
        shapes = {int(row): batch.shape for batch in self.batches for row in batch.rows}
        worked = np.array([row for row in shapes if row not in failed], np.int64)
        if len(worked):
            return _KnownRow(partial(self._similar_works, worked=worked, shapes=shapes))
        if probe is None:
            return _KnownRow(lambda _: False)
        beside, enough = replace(self, rows=probe()), any if len(shapes) == 1 else all
        lone = [row for batch in beside.batches for row in batch.split()]
        return _KnownRow(lambda _: enough(not beside.attempt(row).failed for row in lone))

    def _similar_works(self, row: Batch, worked: np.ndarray, shapes: Mapping[int, Shape]) -> bool:
        lengths = self.rows.lengths
        number = int(worked[np.abs(lengths[worked] - lengths[row.rows[0]]).argmin()])
        rows, part = self.rows, slice(*self.rows.row_splits[number : number + 2])
        of_tokens = rows.token_type_ids, rows.attended
        types, attended = (None if column is None else column[part] for column in of_tokens)
        splits = np.array([0, lengths[number]])
        alone = TokenRows(rows.input_ids[part], splits, types, attended=attended)
        beside = replace(self, rows=alone)
        return not beside.attempt(Batch(np.array([0]), shapes[number])).failed

    def finished(self) -> EmbeddedRows:
        done = self.done
        for kind in self.wanted.outputs.heads:
            done.heads[kind] = gather_rows(self.heads[kind], len(self.rows), self.parts[kind])
        done.tokens, done.batches = len(self.rows.input_ids), len(self.batches)
        for rows, length in map(_SHAPE, self.batches):
            done.padded_tokens += rows * length
        return done

    def _computed(self, shape: Shape, rows: np.ndarray) -> np.ndarray:
        """Runs rows by their numbers, and keeps the results; bool `[rows]`: which are finite."""
        padded = padded_rows(self.rows, rows)
        outputs = self.prepared.graph(padded, shape)
        done, spec, mask = self.done, self.wanted.vectors, padded.mask
        finite = np.ones(len(rows), bool)
        if done.vectors is not None:
            vectors = outputs["sentences"]
            if self.wanted.outputs.finished:
                vectors = finish(spec, vectors, self.prepared.pooled_width, self.engine.modules)
            finite &= np.isfinite(vectors).all(axis=1)
            done.vectors[rows] = vectors
            done.vectors[rows[~finite]] = 0
        if done.token_vectors is not None:
            tokens = outputs["tokens"]
            if spec.dim is not None:
                layers = math.prod(self.prepared.token_shape[:-1])  # whose numbers are side by side
                tokens = tokens.reshape(*mask.shape, layers, tokens.shape[-1] // layers)
                tokens = tokens[..., : spec.dim].reshape(*mask.shape, layers * spec.dim)
            finite &= (np.isfinite(tokens).all(axis=2) | (mask == 0)).all(axis=1)
            at, _ = take_rows(self.rows.row_splits, rows)
            done.token_vectors[at] = tokens[mask > 0]
        made: dict[str, BatchRows] = {}
        for kind in self.wanted.outputs.heads:
            head = self.heads[kind]
            made[kind] = head.batch_rows(outputs[kind], padded.input_ids, mask)
            finite &= made[kind].finite
        whole = bool(finite.all())
        for kind, part in made.items():
            kept = (rows, part) if whole else (rows[finite], part.some(finite))
            self.parts[kind].append(kept)
        return finite


def _failed_rows(batches: Sequence[Batch], outcomes: Sequence[Outcome]) -> list[Batch]:
    return [
        Batch(np.array([*outcome.failed]), batch.shape)
        for batch, outcome in zip(batches, outcomes, strict=True)
        if outcome.failed
    ]


def _reasons(outcomes: Sequence[Outcome]) -> dict[int, str]:
    return {row: reason for outcome in outcomes for row, reason in outcome.failed.items()}


def _failure(failed: Mapping[int, str], rows: TokenRows) -> str:
    """Says on how many rows of a call the model failed, and the first reason of all."""
    count, total = len(failed), len(rows)
    of = "" if total == 1 else "all of " if count == total else f"{count:,} of "
    return f"the model failed on {of}{counted(total, 'row')}: {min(failed.values())}"


def _check_rows(config: EncoderConfig, rows: TokenRows) -> None:
    lengths, ids, most = rows.lengths, rows.input_ids, config.max_position_embeddings
    if lengths.max(initial=0) > most:
        raise InputError(f"rows must have at most {most} tokens, one has {lengths.max()}")
    if config.special_tokens and lengths.min(initial=1) < 1:
        raise InputError(f"rows must have at least 1 token, number {lengths.argmin()} has none")
    if len(ids) and not 0 <= ids.min() <= ids.max() < config.vocab_size:
        raise InputError(f"input_ids must be between 0 and {config.vocab_size - 1}")


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
    layers = []
    for layer in np.split(pooled, pooled.shape[1] // pooled_width, axis=1):
        layer = modules(layer) if spec.dense else layer
        layer = layer if spec.dim_last else layer[:, : spec.dim]
        layer = unit_length(layer) if spec.normalize else layer
        layers.append(layer[:, : spec.dim])
    return np.concatenate(layers, axis=1)
