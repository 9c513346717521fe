"""Engines: a model in memory that runs batches of rows; which one, the precision says."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from bert.bundle import Bundle
from bert.vector_spec import VectorSpec

PRECISIONS = ("float32", "int8", "bfloat16")
CPU_BATCH_TOKENS = 512  # so that what stands between products stays in a core's cache
_CPUINFO = Path("/proc/cpuinfo")
_BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")  # x86's two, and Arm's


@dataclass(frozen=True)
class Wanted:
    """What a call of the model gives.

    Attributes:
        sentences: Vectors of rows.
        finished: Whether these have gone through Dense, `dim` and `normalize`; not where several
            rows are to become one vector first.
        tokens: Vectors of tokens.
    """

    sentences: bool = True
    finished: bool = True
    tokens: bool = False


class Graph(Protocol):
    """A model made ready for one kind of output; it may be called from several threads."""

    @property
    def widths(self) -> Mapping[str, int]:
        """Numbers of a vector, by the name of the output."""

    def __call__(
        self, input_ids: np.ndarray, mask: np.ndarray, type_ids: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        """Runs a batch.

        Args:
            input_ids: int32 `[batch, length]`.
            mask: int32 `[batch, length]`, 1 for tokens, 0 for filling, which stands at the end.
            type_ids: int32 `[batch, length]`, 0 for the first text, 1 for the second.

        Returns:
            As far as wanted, "sentences" float32 `[batch, width]` and "tokens" float32
            `[batch, length, width]`.
        """


class Engine(Protocol):
    """A model in memory.

    Attributes:
        batch_tokens: Tokens of a batch, filling included, that it is fast with.
        equal_lengths: Whether it takes batches without any filling only.
    """

    batch_tokens: int
    equal_lengths: bool

    def graph(self, spec: VectorSpec, wanted: Wanted, prompt_tokens: int) -> Graph:
        """Returns what gives such vectors of rows with so many tokens of a prompt."""

    def finish(self, spec: VectorSpec, pooled: np.ndarray) -> np.ndarray:
        """Dense modules, dimension and length for vectors that were pooled without them.

        Args:
            spec: Which of these are asked for.
            pooled: float32 `[rows, pooled width]`.

        Returns:
            float32 `[rows, spec.width]`.
        """


def check_model(precision: str, bundle: Bundle) -> None:
    """Checks that a model can be computed so, wherever; ValueError names the flag."""
    if precision not in PRECISIONS:
        raise ValueError(f"--precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if precision != "float32" and bundle.kind == "saved_model":
        raise ValueError(
            f"--precision {precision} needs the model's weights, and this one is a SavedModel that "
            f"is used as it is: {bundle.path}"
        )


def check_machine(precision: str) -> None:
    """Checks that this machine can compute so, and fast; ValueError names the flag."""
    if precision == "bfloat16" and not _has_bfloat16():
        raise ValueError(
            f"--precision bfloat16 needs a processor with avx512_bf16 or amx_bf16 ({_CPUINFO}), "
            "this one has neither and would be slower than in float32; take --precision int8"
        )


def _has_bfloat16() -> bool:
    try:
        lines = _CPUINFO.read_text("ascii", "replace").splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return any(flag in flags.split() for flag in _BFLOAT16)


def load_engine(bundle: Bundle, special_ids: tuple[int, int], precision: str) -> Engine:
    """Loads a model.

    Args:
        bundle: The model.
        special_ids: Those of [CLS] and [SEP].
        precision: One of `PRECISIONS`.

    Raises:
        ValueError: The bundle's files are damaged, or cannot be computed so here.
    """
    check_model(precision, bundle)
    check_machine(precision)
    if precision == "int8":
        from bert.litert_engine import LiteRTEngine

        return LiteRTEngine(bundle, special_ids)
    from bert.tensorflow_engine import TensorFlowEngine

    return TensorFlowEngine(bundle, special_ids, precision)
