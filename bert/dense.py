"""DenseModule: the shape of a sentence-transformers Dense module, read without TensorFlow."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

DENSE_ACTIVATIONS = ("identity", "tanh", "relu", "gelu", "sigmoid")


@dataclass(frozen=True)
class DenseModule:
    """A layer over pooled vectors: `activation(x @ kernel + bias)`.

    Attributes:
        in_features: Width of the vectors it takes.
        out_features: Width of those it gives.
        activation: One of `DENSE_ACTIVATIONS`; "gelu" is the exact form, by erf.
        bias: Whether it adds one.
    """

    in_features: int
    out_features: int
    activation: str = "tanh"
    bias: bool = True

    def __post_init__(self) -> None:
        for name in ("in_features", "out_features"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a positive integer, got {value!r}")
        if self.activation not in DENSE_ACTIVATIONS:
            raise ValueError(
                f"activation must be one of {', '.join(DENSE_ACTIVATIONS)}, got {self.activation!r}"
            )
        if not isinstance(self.bias, bool):
            raise ValueError(f"bias must be true or false, got {self.bias!r}")

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON-able values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "DenseModule":
        """Rebuilds what `to_dict` gave; ValueError for a missing or unknown field."""
        known = {field.name for field in fields(cls)}
        if set(values) != known:
            wrong = ", ".join(sorted(known ^ set(values)))
            raise ValueError(f"dense: fields missing or unknown: {wrong}")
        return cls(**values)
