"""An engine as another package adds one: BERT's layers in NumPy, and the host does the rest."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import islice
from typing import Any

import numpy as np

from bert_embed.backends.host import ArrayOps, HostEngine, HostModel, query_scale
from bert_embed.backends.protocol import Backend
from bert_embed.bundle.bundle import Bundle

BACKEND = Backend(
    name="toy", package="numpy", precisions={"cpu": ("float32",)}, load=f"{__name__}:ToyEngine"
)


class ToyEngine(HostEngine):
    def __init__(self, bundle: Bundle, special_ids: tuple[int, int], *settings: object) -> None:
        super().__init__(bundle, special_ids)
        self._model = ToyModel(bundle)

    def model(self, highest: int, heads: Sequence[str] = ()) -> nullcontext["ToyModel"]:
        return nullcontext(self._model)


class ToyModel(HostModel):
    def states(
        self, input_ids: np.ndarray, type_ids: np.ndarray, layers: set[int], mask: np.ndarray
    ) -> Mapping[int, np.ndarray]:
        config = self.bundle.config
        ops = ToyOps(np, config, self.tensors, mask)
        states = islice(config.hidden_states(ops, input_ids, type_ids), max(layers) + 1)
        return {at: state.reshape(*mask.shape, -1) for at, state in enumerate(states)}


class ToyOps(ArrayOps):
    def gather(self, table: str, ids: np.ndarray) -> np.ndarray:
        return self.weights[table][ids]

    def first_rows(self, table: str) -> np.ndarray:
        return self.weights[table][: self.mask.shape[1]]

    def by_distance(self, table: str) -> Any:
        raise NotImplementedError("MPNet")

    def attention(self, x: np.ndarray, layer: str, *of_others: Any) -> np.ndarray:
        by_head = *self.mask.shape, self.config.num_attention_heads, self.config.head_width
        query, key, value = (
            self.product(x, f"{layer}/{name}").reshape(by_head).swapaxes(1, 2)
            for name in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(2, 3) * query_scale(self.config.head_width)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = powers / powers.sum(-1, keepdims=True) @ value
        return mixed.swapaxes(1, 2).reshape(x.shape)
