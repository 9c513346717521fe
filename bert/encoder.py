"""Encoder: texts in, vectors out, for Python people and for the pipeline's workers."""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bert.batching import pad_rows, plan_batches
from bert.bundle import Bundle
from bert.halving import run_halving
from bert.quiet import quiet_start
from bert.rows import Rows, build_rows
from bert.vector_spec import VectorSpec

if TYPE_CHECKING:
    from bert.tokenizer import Tokenizer

_LOG = logging.getLogger(__name__)


@dataclass
class EmbeddedRows:
    """Vectors of rows, and what computing them took.

    Attributes:
        vectors: float32 `[rows, width]`, in the order of the rows; zeros where a row failed.
        failed: Row numbers to a short fixed reason.
        tokens: Tokens of all rows, special tokens included.
        padded_tokens: Tokens computed, filling included.
        batches: Batches planned.
    """

    vectors: np.ndarray
    failed: dict[int, str] = field(default_factory=dict)
    tokens: int = 0
    padded_tokens: int = 0
    batches: int = 0


class Encoder:
    """A model in memory. One call at a time computes; it may be called from several threads.

    Each batch runs on one core, and as many batches at once as there are `threads`.
    """

    def __init__(
        self, bundle: Bundle, spec: VectorSpec | None = None, threads: int | None = None
    ) -> None:
        """Loads the weights.

        Args:
            bundle: The model.
            spec: How vectors are made; None is the model's own way.
            threads: Processor cores to use; None takes all that this process may use.

        Raises:
            ValueError: The model cannot give such vectors, or its files are damaged.
        """
        self.bundle = bundle
        self.spec = bundle.defaults if spec is None else spec
        bundle.check(self.spec)
        self.threads = available_cores() if threads is None else threads
        if self.threads < 1:
            raise ValueError(f"--threads must be at least 1, got {self.threads}")
        with quiet_start():
            _one_core_a_batch()
            self._model = bundle.load_encoder()
        self.tokenizer: Tokenizer = bundle.load_tokenizer()
        self._graphs: dict[VectorSpec, Callable[..., Any]] = {}
        self._lock = threading.Lock()

    def encode(
        self,
        texts: Sequence[str],
        texts_b: Sequence[str] | None = None,
        *,
        layers: Sequence[int] | None = None,
        layer_combine: str | None = None,
        pooling: str | None = None,
        pool_special_tokens: bool | None = None,
        normalize: bool | None = None,
        dim: int | None = None,
        max_seq_length: int | None = None,
        batch_tokens: int = 1024,
    ) -> np.ndarray:
        """Turns texts, or pairs of texts, into vectors.

        What is not given is as the encoder was loaded; see `bert.vector_spec.VectorSpec`.

        Args:
            texts: Any number of texts; longer ones are cut.
            texts_b: The second texts of pairs, as many as `texts`.
            layers: Hidden states taken.
            layer_combine: How several become one.
            pooling: How tokens become a vector.
            pool_special_tokens: Whether [CLS] and [SEP] count.
            normalize: Whether vectors have unit length.
            dim: Only the first so many numbers.
            max_seq_length: Most tokens of a row, special tokens included.
            batch_tokens: Most tokens of a batch, filling included.

        Returns:
            float32 `[texts, width]`.

        Raises:
            ValueError: A setting this model cannot follow, or texts that are no list of str.
            RuntimeError: The model failed on a text.
        """
        asked = {
            "layers": None if layers is None else tuple(layers),
            "layer_combine": layer_combine,
            "pooling": pooling,
            "pool_special_tokens": pool_special_tokens,
            "normalize": normalize,
            "dim": dim,
        }
        spec = spec_with(self.spec, **asked)
        self.bundle.check(spec)
        rows = _token_rows(self.bundle, self.tokenizer, texts, texts_b, max_seq_length)
        done = self._embed(spec, rows.input_ids, rows.row_splits, rows.token_type_ids, batch_tokens)
        if done.failed:
            row, reason = min(done.failed.items())
            raise RuntimeError(f"{len(done.failed)} texts failed, the first is {row}: {reason}")
        return done.vectors

    def embed_texts(
        self,
        texts: Sequence[str],
        texts_b: Sequence[str] | None = None,
        *,
        max_seq_length: int | None = None,
        batch_tokens: int = 1024,
    ) -> EmbeddedRows:
        """Embeds texts, or pairs, as the encoder's `spec` says; one that fails fails alone.

        Args:
            texts: Any number of texts; longer ones are cut.
            texts_b: The second texts of pairs, as many as `texts`.
            max_seq_length: Most tokens of a row, special tokens included; None is the model's own.
            batch_tokens: Most tokens of a batch, filling included.

        Raises:
            ValueError: Texts that are no list of str, or a length the model cannot take.
            RuntimeError: Every one of several texts failed: the model is broken, not a text.
        """
        rows = _token_rows(self.bundle, self.tokenizer, texts, texts_b, max_seq_length)
        return self.embed_rows(rows.input_ids, rows.row_splits, rows.token_type_ids, batch_tokens)

    def embed_rows(
        self,
        input_ids: np.ndarray,
        row_splits: np.ndarray,
        token_type_ids: np.ndarray | None = None,
        batch_tokens: int = 1024,
    ) -> EmbeddedRows:
        """Embeds rows that hold their [CLS] and [SEP], as the encoder's `spec` says.

        Args:
            input_ids: int32 `[tokens]`, all rows end to end.
            row_splits: int64 `[rows + 1]`, where each row begins and ends.
            token_type_ids: int32 `[tokens]`, 1 for second texts; None is all 0.
            batch_tokens: Most tokens of a batch, filling included.

        Raises:
            ValueError: A row over the model's positions, or an id out of its vocabulary.
            RuntimeError: Every one of several rows failed: the model is broken, not a row.
        """
        return self._embed(self.spec, input_ids, row_splits, token_type_ids, batch_tokens)

    def _embed(
        self,
        spec: VectorSpec,
        input_ids: np.ndarray,
        row_splits: np.ndarray,
        type_ids: np.ndarray | None,
        batch_tokens: int,
    ) -> EmbeddedRows:
        _check_rows(self.bundle, input_ids, np.diff(row_splits))
        graph, width = self._graph(spec), spec.width(self.bundle.config)

        def call(rows: np.ndarray) -> np.ndarray:
            ids, mask = pad_rows(input_ids, row_splits, rows)
            types = ids * 0 if type_ids is None else pad_rows(type_ids, row_splits, rows)[0]
            return graph(ids, mask, types).numpy()

        with self._lock:
            return _run_batches(call, width, np.diff(row_splits), batch_tokens, self.threads)

    def _graph(self, spec: VectorSpec) -> Callable[..., Any]:
        with self._lock:
            if spec not in self._graphs:
                special = self.tokenizer.cls_id, self.tokenizer.sep_id
                self._graphs[spec] = _compiled(self._model, spec, special)
            return self._graphs[spec]


def _run_batches(
    call: Callable[[np.ndarray], np.ndarray],
    width: int,
    lengths: np.ndarray,
    batch_tokens: int,
    threads: int,
) -> EmbeddedRows:
    batches = plan_batches(lengths, batch_tokens)
    with ThreadPoolExecutor(threads) as pool:
        parts = list(pool.map(lambda rows: run_halving(rows, width, call), batches))
    done = EmbeddedRows(
        np.empty((len(lengths), width), np.float32),
        tokens=int(lengths.sum()),
        padded_tokens=sum(int(lengths[rows[0]]) * len(rows) for rows in batches),
        batches=len(batches),
    )
    for rows, part in zip(batches, parts, strict=True):
        done.vectors[rows] = part.vectors
        done.failed |= {int(rows[place]): reason for place, reason in part.failed.items()}
    _refuse_broken_model(done, next((part.error for part in parts if part.error), None))
    return done


def _token_rows(
    bundle: Bundle,
    tokenizer: "Tokenizer",
    texts: Sequence[str],
    texts_b: Sequence[str] | None,
    max_seq_length: int | None,
) -> Rows:
    length = bundle.max_seq_length if max_seq_length is None else max_seq_length
    bundle.check_max_seq_length(length)
    first = _listed("texts", texts)
    ids, splits = tokenizer.encode_flat(first)
    second: tuple[np.ndarray, ...] = ()
    if texts_b is not None:
        listed = _listed("texts_b", texts_b)
        if len(listed) != len(first):
            raise ValueError(f"texts_b must be {len(first)} texts, got {len(listed)}")
        second = tokenizer.encode_flat(listed)
    return build_rows(ids, splits, length, tokenizer.cls_id, tokenizer.sep_id, *second)


def spec_with(spec: VectorSpec, **changes: Any) -> VectorSpec:
    """Returns `spec` with some fields changed; None leaves a field as it is.

    Raises:
        ValueError: An unknown field, a value it cannot have, or several layers without a word on
            how they become one vector.
    """
    names = {one.name for one in fields(VectorSpec)}
    unknown = sorted(set(changes) - names)
    if unknown:
        raise ValueError(f"{unknown[0]} is no setting, those are {', '.join(sorted(names))}")
    given = {name: value for name, value in changes.items() if value is not None}
    layers = given.get("layers", ())
    if not isinstance(layers, int) and len(layers) > 1 and "layer_combine" not in given:
        raise ValueError(
            f"--layers names {len(layers)} layers: say how they become one vector, "
            "--layer_combine sum, mean, concat, stack, or last for the highest of them"
        )
    return replace(spec, **given)


def available_cores() -> int:
    """Returns how many processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _one_core_a_batch() -> None:
    # A batch on one core waits for no other core, and takes 7% less of it (benchmarks/encoder.py).
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(1)
    except RuntimeError:  # TensorFlow runs already; right all the same, only slower
        _LOG.info("TensorFlow was started before the encoder, its threads stay as they are")


def _compiled(model: Any, spec: VectorSpec, special: tuple[int, int]) -> Callable[..., Any]:
    import tensorflow as tf

    from bert.pooling import row_vectors

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 3, autograph=False)
    def vectors(input_ids: tf.Tensor, mask: tf.Tensor, type_ids: tf.Tensor) -> tf.Tensor:
        return row_vectors(model, spec, input_ids, mask, type_ids, special)

    return vectors.get_concrete_function()


def _listed(name: str, texts: Sequence[str]) -> list[str]:
    if isinstance(texts, str | bytes):
        raise ValueError(f"{name} must be a list of texts, got one {type(texts).__name__}")
    for place, text in enumerate(listed := list(texts)):
        if not isinstance(text, str):
            raise ValueError(f"{name} must be str, number {place} is {type(text).__name__}")
    return listed


def _check_rows(bundle: Bundle, input_ids: np.ndarray, lengths: np.ndarray) -> None:
    most = bundle.config.max_position_embeddings
    if lengths.max(initial=0) > most:
        raise ValueError(f"rows must have at most {most} tokens, one has {lengths.max()}")
    if lengths.min(initial=1) < 1:
        raise ValueError(f"rows must have at least 1 token, number {lengths.argmin()} has none")
    size = bundle.config.vocab_size
    if len(input_ids) and not 0 <= input_ids.min() <= input_ids.max() < size:
        raise ValueError(f"input_ids must be between 0 and {size - 1}")


def _refuse_broken_model(done: EmbeddedRows, error: Exception | None) -> None:
    rows = len(done.vectors)
    if rows > 1 and len(done.failed) == rows:
        reason = min(done.failed.values())
        raise RuntimeError(f"the model failed on all of {rows} rows: {reason}") from error
