"""Engines: a model in memory that runs batches of rows; which one, the precision says."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from bert.bundle import Bundle
from bert.vector_spec import VectorSpec

PRECISIONS = ("float32", "int8", "bfloat16", "float16")
DEVICES = ("auto", "cpu", "gpu", "tpu", "xla_cpu")
CPU_BATCH_TOKENS = 512  # so that what stands between products stays in a core's cache
_CPUINFO = Path("/proc/cpuinfo")
_NVIDIA = Path("/proc/driver/nvidia/version")
_LOG = logging.getLogger(__name__)
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


class Batching(Protocol):
    """How rows are grouped to batches, and which shapes these have."""

    @property
    def shapes(self) -> Sequence[tuple[int, int]]:
        """All shapes that occur, as rows and tokens of a row, to be compiled before; () for any."""

    def plan(self, lengths: np.ndarray) -> list[np.ndarray]:
        """Row numbers of each batch, the longest row first, from int `[rows]` tokens of each."""

    def shape(self, rows: int, length: int) -> tuple[int, int]:
        """What a batch of so many rows, the longest of such a length, is filled up to."""


class Engine(Protocol):
    """A model in memory.

    Attributes:
        at_once: Batches that should be under way together; None is one a core.
        device: Held while batches run: by one model at a time where several share a device.
    """

    at_once: int | None
    device: AbstractContextManager

    def batching(self, batch_tokens: int | None, longest: int) -> Batching:
        """Returns how rows are grouped.

        Args:
            batch_tokens: Most tokens of a batch, filling included; None is what is fast.
            longest: Most tokens of a row.

        Raises:
            ValueError: `batch_tokens` is under 1.
        """

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


def check_model(precision: str, bundle: Bundle, device: str = "auto") -> None:
    """Checks that a model can be computed so, wherever; ValueError names the flag."""
    if precision not in PRECISIONS:
        raise ValueError(f"--precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if device not in DEVICES:
        raise ValueError(f"--device must be one of {', '.join(DEVICES)}, got {device!r}")
    if precision == "int8" and device not in ("auto", "cpu"):
        raise ValueError(f"--precision int8 is for processors, for --device {device} take bfloat16")
    if precision == "float16" and device in ("cpu", "tpu"):
        raise ValueError(f"--precision float16 is for GPUs, for --device {device} take bfloat16")
    if bundle.kind == "saved_model" and (precision != "float32" or device not in ("auto", "cpu")):
        flag = f"--precision {precision}" if precision != "float32" else f"--device {device}"
        raise ValueError(
            f"{flag} needs the model's weights, and this one is a SavedModel that is used as it "
            f"is: {bundle.path}"
        )


def check_machine(precision: str, device: str = "auto") -> None:
    """Checks that this machine can compute so, and fast; ValueError names the flag.

    TensorFlow is loaded only where the answer hangs on what it sees.
    """
    anywhere = precision in ("float32", "int8") or (precision == "bfloat16" and _has_bfloat16())
    if device != "auto" or not anywhere:
        find_device(precision, device)


def find_device(precision: str, device: str) -> str:
    """Returns which of `DEVICES` but "auto" computes; a TPU must be asked for.

    Raises:
        ValueError: This machine has none that can; the message names the flag.
    """
    found = device
    if device in ("auto", "gpu"):
        found = "gpu" if precision != "int8" and _has_gpu() else "cpu"
    if device == "gpu" and found == "cpu":
        raise ValueError(
            "--device gpu: TensorFlow sees no GPU on this machine; it needs an NVIDIA driver and "
            "the packages of tensorflow[and-cuda]"
        )
    if precision == "float16" and found == "cpu":
        raise ValueError("--precision float16 needs a GPU, and TensorFlow sees none here")
    if precision == "bfloat16" and found == "cpu" and not _has_bfloat16():
        raise ValueError(
            f"--precision bfloat16 needs a processor with avx512_bf16 or amx_bf16 ({_CPUINFO}), "
            "this one has neither and would be slower than in float32; take --precision int8"
        )
    return found


def _has_gpu() -> bool:
    from bert.quiet import quiet_start

    with quiet_start():
        import tensorflow as tf

        seen = bool(tf.config.list_physical_devices("GPU"))
    if not seen and _NVIDIA.exists():
        _LOG.warning(
            "this machine has an NVIDIA GPU, and TensorFlow does not see it: it needs the packages "
            "of tensorflow[and-cuda]; the processor computes"
        )
    return seen


def _has_bfloat16() -> bool:
    try:
        lines = _CPUINFO.read_text("ascii", "replace").splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return any(flag in flags.split() for flag in _BFLOAT16)


def load_engine(
    bundle: Bundle, special_ids: tuple[int, int], precision: str, device: str = "auto"
) -> Engine:
    """Loads a model.

    Args:
        bundle: The model.
        special_ids: Those of [CLS] and [SEP].
        precision: One of `PRECISIONS`.
        device: One of `DEVICES`; "auto" is a GPU if TensorFlow sees one, else the processor, and
            the processor for int8 and for SavedModels that are used as they are.

    Raises:
        ValueError: The bundle's files are damaged, or cannot be computed so here.
    """
    check_model(precision, bundle, device)
    found = find_device(precision, "cpu" if bundle.kind == "saved_model" else device)
    if precision == "int8":
        from bert.litert_engine import LiteRTEngine

        return LiteRTEngine(bundle, special_ids)
    if found == "cpu":
        from bert.tensorflow_engine import TensorFlowEngine

        return TensorFlowEngine(bundle, special_ids, precision)
    from bert.xla_engine import XLAEngine

    return XLAEngine(bundle, special_ids, precision, found)
