"""VectorSpec: which layers, how combined, how pooled; checked without TensorFlow."""

import math
import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from bert.config import BertConfig

LAYER_COMBINES = ("last", "sum", "mean", "concat", "stack")
POOLINGS = (
    "mean",
    "max",
    "mean_max",
    "cls",
    "sep",
    "pooler",
    "mean_sqrt_len",
    "weightedmean",
    "lasttoken",
)


@dataclass(frozen=True)
class VectorSpec:
    """How the hidden states of a row become one vector.

    Attributes:
        layers: Hidden states taken, in this order: 0 is the embeddings, L the last layer,
            negative from the top (-1 is L).
        layer_combine: "last" (the highest of `layers`), "sum", "mean", "concat", or "stack"
            (a vector of each layer, cut and scaled for itself, one after the other).
        pooling: How tokens become a vector; one of `POOLINGS`, or several with commas, whose
            vectors are joined in this order. "pooler", which stands alone, is the model's own
            dense layer over [CLS] of the last layer, whatever `layers` says.
        pool_special_tokens: Whether [CLS] and [SEP] count in mean, max, mean_max, mean_sqrt_len,
            weightedmean and lasttoken. A row of nothing else then counts them all the same.
        pool_prompt: Whether a prompt counts in these. If not, neither does the [CLS] before it,
            as with include_prompt=False of sentence-transformers.
        dense: Width of what the model's own Dense modules make of a pooled vector; 0 leaves them
            out.
        normalize: Whether vectors are scaled to unit length, after `dim`.
        dim: Only the first so many numbers are kept; None keeps all.
    """

    layers: tuple[int, ...] = (-1,)
    layer_combine: str = "last"
    pooling: str = "mean"
    pool_special_tokens: bool = True
    pool_prompt: bool = True
    dense: int = 0
    normalize: bool = False
    dim: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.layers, str):
            raise ValueError(f"--layers must be numbers, such as -1 and -2, got {self.layers!r}")
        layers = (self.layers,) if isinstance(self.layers, int) else self.layers
        object.__setattr__(self, "layers", tuple(_integer("--layers", one) for one in layers))
        if not self.layers:
            raise ValueError("--layers must name at least one layer")
        if self.layer_combine not in LAYER_COMBINES:
            raise ValueError(
                f"--layer_combine must be one of {', '.join(LAYER_COMBINES)}, "
                f"got {self.layer_combine!r}"
            )
        for one in self.poolings:
            if one not in POOLINGS:
                raise ValueError(f"--pooling must be one of {', '.join(POOLINGS)}, got {one!r}")
        if len(set(self.poolings)) < len(self.poolings):
            raise ValueError(f"--pooling must name each once, got {self.pooling}")
        if "pooler" in self.poolings and len(self.poolings) > 1:
            raise ValueError(f"--pooling pooler cannot be joined with others, got {self.pooling}")
        if _integer("--dense", self.dense) < 0:
            raise ValueError(f"dense must be at least 0, got {self.dense}")
        if self.dim is not None and _integer("--dim", self.dim) < 1:
            raise ValueError(f"--dim must be at least 1, got {self.dim}")

    @property
    def poolings(self) -> tuple[str, ...]:
        """The names in `pooling`, in order."""
        return tuple(self.pooling.split(","))

    def check(self, config: BertConfig) -> None:
        """Checks that the model of `config` can give these vectors.

        Raises:
            ValueError: A layer out of range, or `dim` over the width; the flag is named.
        """
        width = self._uncut_width(config)
        if self.dim is not None and self.dim > width:
            raise ValueError(f"--dim must be between 1 and {width} for this model, got {self.dim}")

    def layer_numbers(self, config: BertConfig) -> tuple[int, ...]:
        """Returns the hidden states that are used, 0 to L, in order; ValueError out of range.

        >>> config = BertConfig(100, 8, 6, 2, 16, 32)
        >>> VectorSpec(layers=(-1, 2)).layer_numbers(config)
        (6,)
        >>> VectorSpec(layers=(-1, 2), layer_combine="concat").layer_numbers(config)
        (6, 2)
        """
        if self.pooling == "pooler":
            self.token_layer_numbers(config)
            return (config.num_hidden_layers,)
        return self.token_layer_numbers(config)

    def token_layer_numbers(self, config: BertConfig) -> tuple[int, ...]:
        """Returns the hidden states that a token's vector is made of, whatever the pooling."""
        count = config.num_hidden_layers
        for layer in self.layers:
            if not -count - 1 <= layer <= count:
                raise ValueError(
                    f"--layers must be between {-count - 1} and {count} "
                    f"for this {count}-layer model, got {layer}"
                )
        numbers = tuple(layer % (count + 1) for layer in self.layers)
        return (max(numbers),) if self.layer_combine == "last" else numbers

    def width(self, config: BertConfig) -> int:
        """Returns how many numbers a vector has, after `dim`; those of a whole stack."""
        return math.prod(self.shape(config))

    def shape(self, config: BertConfig) -> tuple[int, ...]:
        """Returns the shape a vector is to be read in: `[dim]`, for a stack `[layers, dim]`."""
        width = self.dim or self._uncut_width(config)
        stacked = self.layer_combine == "stack" and self.pooling != "pooler"
        return (len(self.layers), width) if stacked else (width,)

    def token_shape(self, config: BertConfig) -> tuple[int, ...]:
        """Returns the shape of a token's vector: `[dim]`, for a stack `[layers, dim]`."""
        count = len(self.token_layer_numbers(config))
        width = config.hidden_size * (count if self.layer_combine == "concat" else 1)
        if self.dim is not None and self.dim > width:
            raise ValueError(
                f"--dim must be between 1 and {width} for this model's tokens, got {self.dim}"
            )
        width = self.dim or width
        return (count, width) if self.layer_combine == "stack" else (width,)

    def pooled_width(self, config: BertConfig) -> int:
        """Returns how many numbers the pooling gives, of one layer of a stack."""
        vectors = sum(2 if one == "mean_max" else 1 for one in self.poolings)
        count = len(self.layer_numbers(config))
        return config.hidden_size * vectors * (count if self.layer_combine == "concat" else 1)

    def _uncut_width(self, config: BertConfig) -> int:
        return self.dense or self.pooled_width(config)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON-able values."""
        return {**asdict(self), "layers": list(self.layers)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "VectorSpec":
        """Rebuilds what `to_dict` gave; a field that is absent has its default."""
        unknown = set(values) - {field.name for field in fields(cls)}
        if unknown:
            raise ValueError(f"unknown vector settings: {', '.join(sorted(unknown))}")
        return cls(**values)


def _integer(flag: str, value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise ValueError(f"{flag} must be an integer, got {value!r}") from error
