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


class PlainBert:
    """The encoder of `model_type: bert`, in float64, from tensors named without a prefix."""

    def __init__(self, tensors: Mapping[str, np.ndarray], heads: int, activation) -> None:
        self.tensors = {name: array.astype(np.float64) for name, array in tensors.items()}
        self.heads, self.activation = heads, activation

    def dense(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return scaled * self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]

    def attention(self, name: str, x: np.ndarray) -> np.ndarray:
        parts = (self.dense(f"{name}.self.{part}", x) for part in ("query", "key", "value"))
        query, key, value = (np.split(part, self.heads, axis=-1) for part in parts)
        mixed = [
            softmax(q @ k.T / math.sqrt(q.shape[-1])) @ v
            for q, k, v in zip(query, key, value, strict=True)
        ]
        out = self.dense(f"{name}.output.dense", np.concatenate(mixed, axis=-1))
        return self.norm(f"{name}.output.LayerNorm", out + x)

    def hidden_states(self, input_ids: np.ndarray, type_ids: np.ndarray) -> list[np.ndarray]:
        """float64 `[tokens, hidden]` each: the embeddings and every layer."""
        table = {
            name: self.tensors[f"embeddings.{name}_embeddings.weight"]
            for name in ("word", "position", "token_type")
        }
        x = table["word"][input_ids] + table["position"][: len(input_ids)]
        states = [self.norm("embeddings.LayerNorm", x + table["token_type"][type_ids])]
        count = sum(name.endswith("intermediate.dense.bias") for name in self.tensors)
        for layer in (f"encoder.layer.{number}" for number in range(count)):
            x = self.attention(f"{layer}.attention", states[-1])
            inner = self.activation(self.dense(f"{layer}.intermediate.dense", x))
            out = self.dense(f"{layer}.output.dense", inner)
            states.append(self.norm(f"{layer}.output.LayerNorm", out + x))
        return states

    def pooled(self, last: np.ndarray) -> np.ndarray:
        """float64 `[hidden]`, the pooler's output."""
        return np.tanh(self.dense("pooler.dense", last[0]))
