"""TextSpec: how texts become rows and what is wanted of them; checked without TensorFlow."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from bert.units import WORD_POOLINGS

GRANULARITIES = ("sentence", "token", "word", "span")
LONG_TEXTS = ("truncate", "window", "reject")


@dataclass(frozen=True)
class TextSpec:
    """What is made of a text beside the numbers themselves, which a VectorSpec tells.

    Attributes:
        max_seq_length: Most tokens of a row, special tokens and prompt included.
        granularity: Some of "sentence", "token", "word", "span", all from one pass of the model;
            kept in this order, for their order is no other run.
        long_text: What becomes of a text longer than a row: "truncate" cuts it, "window" covers
            it with rows that overlap, "reject" refuses it.
        stride: Tokens that neighbouring windows share; None is `bert.windows.default_stride`.
        merge_windows: Whether a document's windows become one sentence vector, the mean weighted
            by their tokens, or keep one each. Tokens, words and spans have one vector either way,
            from the window where they see most to both sides.
        word_pooling: How the tokens of a word or span become one vector: "mean", "sum", "first",
            "last" or "max".
        normalize_tokens: Whether vectors of tokens, words and spans are scaled to unit length.
        prompt: What stands before each text, "" for nothing.
    """

    max_seq_length: int
    granularity: tuple[str, ...] = ("sentence",)
    long_text: str = "truncate"
    stride: int | None = None
    merge_windows: bool = True
    word_pooling: str = "mean"
    normalize_tokens: bool = False
    prompt: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "granularity", tuple(self.granularity))
        for one in self.granularity:
            _check_one("granularity", one, GRANULARITIES)
        in_order = tuple(one for one in GRANULARITIES if one in self.granularity)
        if not self.granularity or len(in_order) < len(self.granularity):
            raise ValueError(
                "--granularity must name each of what is wanted once, "
                f"got {','.join(self.granularity)!r}"
            )
        object.__setattr__(self, "granularity", in_order)
        _check_one("long_text", self.long_text, LONG_TEXTS)
        _check_one("word_pooling", self.word_pooling, WORD_POOLINGS)
        if self.stride is not None and self.long_text != "window":
            raise ValueError("--stride is for --long_text window, give that, too")

    @property
    def needs_tokens(self) -> bool:
        """Whether vectors of tokens are wanted, or of what they make up."""
        return any(one != "sentence" for one in self.granularity)

    @property
    def keeps_windows(self) -> bool:
        """Whether a long document has several sentence vectors."""
        return self.long_text == "window" and not self.merge_windows

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON-able values."""
        return {**asdict(self), "granularity": list(self.granularity)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TextSpec":
        """Rebuilds what `to_dict` gave, from a mapping that may hold more."""
        return cls(**{one.name: values[one.name] for one in fields(cls) if one.name in values})


def _check_one(flag: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"--{flag} must be one of {', '.join(allowed)}, got {value!r}")
