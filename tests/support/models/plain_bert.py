"""BERT in plain NumPy from Hugging Face tensors: one row in, its hidden states out; no batch."""

import math
from collections.abc import Mapping

import numpy as np


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2)))


def gelu_new(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


class PlainLayers:
    """Dense layers and norms, in float64, by their names; not all have biases."""

    def __init__(self, tensors: Mapping[str, np.ndarray], epsilon: float) -> None:
        self.tensors = {name: array.astype(np.float64) for name, array in tensors.items()}
        self.epsilon = epsilon

    def dense(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.tensors[f"{name}.weight"].T + self.tensors.get(f"{name}.bias", 0)

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + self.epsilon)
        return scaled * self.tensors[f"{name}.weight"] + self.tensors.get(f"{name}.bias", 0)


class PlainBert(PlainLayers):
    """The encoder of `model_type: bert`, from tensors named without a prefix."""

    def __init__(
        self, tensors: Mapping[str, np.ndarray], heads: int, activation, epsilon: float = 1e-12
    ) -> None:
        super().__init__(tensors, epsilon)
        self.heads, self.activation = heads, activation

    def projected(self, name: str, x: np.ndarray) -> list[np.ndarray]:
        return [self.dense(f"{name}.{part}", x) for part in ("query", "key", "value")]

    def added(self, head: int, tokens: int) -> np.ndarray | int:
        """What is added to a head's scores, `[tokens, tokens]`."""
        return 0

    def attention(self, layer: str, x: np.ndarray) -> np.ndarray:
        name = f"{layer}.attention"
        parts = (np.split(part, self.heads, axis=-1) for part in self.projected(f"{name}.self", x))
        mixed = [
            softmax(q @ k.T / math.sqrt(q.shape[-1]) + self.added(head, len(x))) @ v
            for head, (q, k, v) in enumerate(zip(*parts, strict=True))
        ]
        out = self.dense(f"{name}.output.dense", np.concatenate(mixed, axis=-1))
        return self.norm(f"{name}.output.LayerNorm", out + x)

    def feed_forward(self, layer: str, x: np.ndarray) -> np.ndarray:
        inner = self.activation(self.dense(f"{layer}.intermediate.dense", x))
        out = self.dense(f"{layer}.output.dense", inner)
        return self.norm(f"{layer}.output.LayerNorm", out + x)

    def hidden_states(self, input_ids: np.ndarray, type_ids: np.ndarray) -> list[np.ndarray]:
        """float64 `[tokens, hidden]` each: the embeddings and every layer."""
        x = self.tensors["embeddings.word_embeddings.weight"][input_ids]
        if "embeddings.position_embeddings.weight" in self.tensors:
            x = x + self.tensors["embeddings.position_embeddings.weight"][: len(input_ids)]
        x = x + self.tensors["embeddings.token_type_embeddings.weight"][type_ids]
        states = [self.norm("embeddings.LayerNorm", x)]
        count = sum(name.endswith("attention.output.dense.bias") for name in self.tensors)
        for layer in (f"encoder.layer.{number}" for number in range(count)):
            states.append(self.feed_forward(layer, self.attention(layer, states[-1])))
        return states

    def pooled(self, last: np.ndarray) -> np.ndarray:
        """float64 `[hidden]`, the pooler's output."""
        return np.tanh(self.dense("pooler.dense", last[0]))
