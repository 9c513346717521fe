"""Defines the interfaces of engines: Engine, Graph and Batching."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from bert_embed.settings import OutputSpec, VectorSpec


class Graph(Protocol):
    """A model prepared for one kind of output. Several threads may call it."""

    def __call__(
        self, input_ids: np.ndarray, mask: np.ndarray, type_ids: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        """Runs a batch of int32 `[batch, length]`: ids, 0 for what no token sees, segments.

        Returns the requested ones of "sentences" float32 `[batch, pooled width]` and "tokens"
        float32 `[batch, length, width]`, without Dense modules, `dim` and `normalize`, and of the
        heads' outputs by their kinds. Padding is at the end.
        """


class Batching(Protocol):
    """Groups rows to batches, and decides their shapes."""

    @property
    def shapes(self) -> Sequence[tuple[int, int]]:
        """All possible shapes, as rows and tokens of a row, to compile in advance; () for any."""

    def plan(self, lengths: np.ndarray) -> list[np.ndarray]:
        """Returns the row numbers of each batch, the longest row first; int `[rows]` lengths."""

    def shape(self, rows: int, length: int) -> tuple[int, int]:
        """Returns the shape to which a batch of such rows and longest length is padded."""


class Engine(Protocol):
    """A model in memory."""

    at_once: int | None  # number of batches to run at the same time; None is one for each core
    device: AbstractContextManager  # held while batches run; models that share a device wait

    def batching(self, batch_tokens: int | None, longest: int) -> Batching:
        """Returns how rows of at most `longest` tokens are batched; None: as suits the device."""

    def graph(self, spec: VectorSpec, output_spec: OutputSpec, prompt_tokens: int) -> Graph:
        """Returns what computes such vectors, of rows whose prompt has so many tokens."""

    def dense(self, vectors: np.ndarray) -> np.ndarray:
        """Applies the model's Dense modules: float32 `[rows, in_features]` to `[rows, out]`."""
