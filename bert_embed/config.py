"""Defines DenseModule, and what it has in common with encoders: sizes that JSON can hold."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

from bert_embed.storage.errors import InputError

DENSE_ACTIVATIONS = ("identity", "tanh", "relu", "gelu", "sigmoid")


class Sizes:
    """A dataclass that JSON can hold."""

    kind: ClassVar[str]  # what messages call it
    seldom: ClassVar[tuple[str, ...]] = ()  # in JSON only where not the default: keeps fingerprints

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON-able values."""
        return {key: value for key, value in vars(self).items() if value or key not in self.seldom}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Builds what `to_dict` returned; InputError for a missing or unknown field."""
        names = {field.name for field in fields(cls)}  # type: ignore[arg-type]
        if wrong := (names ^ set(values)) - (set(cls.seldom) - set(values)):
            raise InputError(f"{cls.kind}: fields missing or unknown: {', '.join(sorted(wrong))}")
        return cls(**values)

    def _check_positive(self, *names: str, prefix: str = "", least: int = 1) -> None:
        for name in names:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                what = "a positive integer" if least else "an integer of at least 0"
                raise InputError(f"{prefix}{name} must be {what}, got {value!r}")


@dataclass(frozen=True)
class DenseModule(Sizes):
    """A layer over pooled vectors: `activation(x @ kernel + bias)`."""

    kind: ClassVar[str] = "dense"

    in_features: int
    out_features: int
    activation: str = "tanh"  # one of `DENSE_ACTIVATIONS`; "gelu" is the exact form, with erf
    bias: bool = True

    def __post_init__(self) -> None:
        self._check_positive("in_features", "out_features")
        if self.activation not in DENSE_ACTIVATIONS:
            raise InputError(
                f"activation must be one of {', '.join(DENSE_ACTIVATIONS)}, got {self.activation!r}"
            )
        if not isinstance(self.bias, bool):
            raise InputError(f"bias must be true or false, got {self.bias!r}")
