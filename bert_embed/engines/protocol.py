"""Defines the interfaces of engines: Engine, Graph and Batching."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from bert_embed.specs import OutputSpec, VectorSpec


class Graph(Protocol):
    """A model prepared for one kind of output. Several threads may call it."""

    def __call__(
        self, input_ids: np.ndarray, mask: np.ndarray, type_ids: np.ndarray
    ) -> Mapping[str, np.ndarray]:
        """Runs a batch.

        Args:
            input_ids: int32 `[batch, length]`.
            mask: int32 `[batch, length]`, 1 for tokens, 0 for padding, which is at the end.
            type_ids: int32 `[batch, length]`, 0 for the first text, 1 for the second.

        Returns:
            The requested ones of "sentences" float32 `[batch, pooled width]` and "tokens" float32
            `[batch, length, width]`, without Dense modules, `dim` and `normalize`.
        """


class Batching(Protocol):
    """Groups rows to batches, and decides their shapes."""

    @property
    def shapes(self) -> Sequence[tuple[int, int]]:
        """All possible shapes, as rows and tokens of a row, to compile in advance; () for any."""

    def plan(self, lengths: np.ndarray) -> list[np.ndarray]:
        """Returns the row numbers of each batch, the longest row first.

        Args:
            lengths: int `[rows]`, tokens of each row.
        """

    def shape(self, rows: int, length: int) -> tuple[int, int]:
        """Returns the shape to which a batch of such rows and longest length is padded."""


class Engine(Protocol):
    """A model in memory.

    Attributes:
        at_once: Number of batches to run at the same time; None is one for each core.
        device: Held while batches run, so that models that share a device run one at a time.
    """

    at_once: int | None
    device: AbstractContextManager

    def batching(self, batch_tokens: int | None, longest: int) -> Batching:
        """Returns how rows are grouped and padded.

        Args:
            batch_tokens: Maximum tokens of a batch, padding included; None: chosen for the device.
            longest: Maximum number of tokens of a row.

        Raises:
            SettingError: `batch_tokens` is under 1.
        """

    def graph(self, spec: VectorSpec, output_spec: OutputSpec, prompt_tokens: int) -> Graph:
        """Returns what computes such vectors, of rows whose prompt has so many tokens."""

    def dense(self, vectors: np.ndarray) -> np.ndarray:
        """Applies the model's Dense modules: float32 `[rows, in_features]` to `[rows, out]`."""
