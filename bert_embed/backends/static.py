"""StaticEngine: looks up and pools the rows of a static model's table with NumPy."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np

from bert_embed.backends.host import HostEngine, HostModel
from bert_embed.backends.protocol import Graph, PaddedRows, Shape
from bert_embed.backends.runner import AnyShape
from bert_embed.bundle.bundle import Bundle
from bert_embed.models.static import WORDS, StaticConfig
from bert_embed.settings import OutputSpec, VectorSpec

_BATCH_TOKENS = 2048  # whose rows of the table stay in a core's cache


class StaticEngine(HostEngine):
    """Static models alone have it: there is nothing to compile, and nothing for a GPU to do."""

    def __init__(
        self,
        bundle: Bundle,
        special_ids: tuple[int, int],
        precision: str,
        device: str = "cpu",
        threads: int = 1,
    ) -> None:
        config = bundle.config
        unknown = config.unknown_id if isinstance(config, StaticConfig) else -1
        super().__init__(bundle, (unknown, unknown))
        self._unknown, self._model = unknown, _Table(bundle)

    def model(self, highest: int, heads: Sequence[str] = ()) -> AbstractContextManager["_Table"]:
        return nullcontext(self._model)

    def batching(self, batch_tokens: int | None, longest: int) -> AnyShape:
        return super().batching(_BATCH_TOKENS if batch_tokens is None else batch_tokens, longest)

    def graph(self, spec: VectorSpec, output_spec: OutputSpec, prompt_tokens: int) -> Graph:
        run = super().graph(spec, output_spec, prompt_tokens)
        layers = len(spec.layers) if spec.layer_combine in ("concat", "stack") else 1
        width = layers * self.config.hidden_size
        means = output_spec == OutputSpec(finished=output_spec.finished) and (
            (spec.pooling, layers) == ("mean", 1) and (spec.pool_prompt or not prompt_tokens)
        )
        counts_unknown = spec.pool_special_tokens or self._unknown < 0

        def outputs(rows: PaddedRows, shape: Shape) -> Mapping[str, np.ndarray]:
            input_ids = rows.input_ids
            count, length = input_ids.shape
            if not length:  # the vector of an empty text is 0, in both libraries
                sentences = np.zeros((count, width * len(spec.poolings)), np.float32)
                return {"sentences": sentences, "tokens": np.zeros((count, 0, width), np.float32)}
            if not means:
                return run(rows, shape)
            lengths = (
                length if counts_unknown else (input_ids != self._unknown).sum(axis=1)[:, None]
            )
            return {
                "sentences": self._model.sums(input_ids) / np.maximum(lengths, 1).astype(np.float32)
            }

        return outputs


class _Table(HostModel):
    def states(
        self, input_ids: np.ndarray, type_ids: np.ndarray, layers: set[int], mask: np.ndarray
    ) -> Mapping[int, np.ndarray]:
        return {0: self.tensors[WORDS][input_ids]}

    def sums(self, ids: np.ndarray) -> np.ndarray:
        """Returns float32 `[batch, width]`, with few rows of the table in memory at a time."""
        table = self.tensors[WORDS]
        if ids.shape[1] <= _BATCH_TOKENS:
            return table[ids].sum(axis=1)
        starts = range(0, ids.shape[1], _BATCH_TOKENS)
        parts = (table[ids[:, start : start + _BATCH_TOKENS]].sum(axis=1) for start in starts)
        return sum(parts, start=np.zeros((len(ids), table.shape[1]), np.float32))
