"""Defines what an engine is: Backend, a row of the table, and Engine, Graph and Batching."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

import numpy as np

from bert_embed.settings import OutputSpec, VectorSpec


@dataclass(frozen=True)
class Backend:
    """What an engine computes and where its code is, which is imported only when it loads.

    Functions are named as `package.module:function`.
    """

    name: str  # of the engine, as `engine` takes it
    package: str  # that must be installed
    precisions: Mapping[str, tuple[str, ...]]  # by device: "cpu", "gpu", "tpu"
    # Takes bundle, special ids, precision, device, threads; returns an `Engine`.
    load: str
    # By precision: of which the processor must have one, as Linux names them.
    instructions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  # that it reads; else `WEIGHTS`
    # Writes those files into a folder, of a bundle and its tensors, when a model is imported.
    write: str = ""
    named_on: tuple[str, ...] = ()  # devices on which it computes only if `engine` names it
    providers: Mapping[str, str] = field(default_factory=dict)  # what to install for a device
    # Of a device but "cpu": modules that the package needs for it, of which one is enough.
    plugins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sees: str = ""  # of a device: whether the package finds it here; "": it is not asked
    # Of a GPU or TPU: the bytes of each chip of this machine, none where that is not known.
    memory: str = ""


Shape = tuple[int, int]  # rows, and tokens of a row


@dataclass(frozen=True)
class Batch:
    """Rows that run together, in the shape to which they are padded or packed."""

    rows: np.ndarray  # int64 `[rows]`: their numbers
    shape: Shape

    @property
    def tokens(self) -> int:
        """Tokens that are computed, padding included."""
        return self.shape[0] * self.shape[1]

    def split(self) -> list["Batch"]:
        """Returns its rows one by one, each to be run in the shape of the batch."""
        return [Batch(self.rows[at : at + 1], self.shape) for at in range(len(self.rows))]


@dataclass(frozen=True)
class PaddedRows:
    """Rows of a batch, or some of them, int32 `[rows, longest]` each, padded with 0."""

    input_ids: np.ndarray
    mask: np.ndarray  # 0 for padding
    type_ids: np.ndarray  # the segment of each token
    seen: np.ndarray  # 0 for tokens that no token sees, and for padding

    def some(self, rows: np.ndarray) -> "PaddedRows":
        """Returns rows by their numbers."""
        return PaddedRows(
            self.input_ids[rows], self.mask[rows], self.type_ids[rows], self.seen[rows]
        )


class Graph(Protocol):
    """A model prepared for one kind of output. Several threads may call it."""

    def __call__(self, rows: PaddedRows, shape: Shape) -> Mapping[str, np.ndarray]:
        """Runs the rows of a batch, or some of them, in the batch's shape.

        Returns the requested ones of "sentences" float32 `[batch, pooled width]` and "tokens"
        float32 `[batch, length, width]`, without Dense modules, `dim` and `normalize`, and of the
        heads' outputs by their kinds. Padding is at the end.
        """


class Batching(Protocol):
    """Groups rows to batches, and decides their shapes."""

    compiles: ClassVar[bool]  # whether shapes are compiled, those of a call before it runs

    def plan(self, lengths: np.ndarray) -> list[Batch]:
        """Returns the batches of rows of int `[rows]` lengths, which they depend on alone."""


class Engine(Protocol):
    """A model in memory."""

    at_once: int | None  # number of batches to run at the same time; None is one for each core
    device: AbstractContextManager  # held while batches run; models that share a device wait

    def batching(self, batch_tokens: int | None, longest: int) -> Batching:
        """Returns how rows of at most `longest` tokens are batched; None: as suits the device."""

    def graph(self, spec: VectorSpec, output_spec: OutputSpec, head: int) -> Graph:
        """Returns what computes such vectors, of rows whose prompt ends behind `head` tokens."""

    def modules(self, vectors: np.ndarray) -> np.ndarray:
        """Applies what the model has behind the pooling, float32 `[rows, in]` to `[rows, out]`."""
