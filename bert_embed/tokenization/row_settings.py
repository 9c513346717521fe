"""Cuts, fills and stacks rows of ids as the tokenizers of Hugging Face do."""

import importlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from bert_embed.arguments import known_names, one_of, whole_number
from bert_embed.storage.errors import SettingError

_PADDING = {True: "longest", False: "do_not_pad"}
_TRUNCATION = {True: "longest_first", False: "do_not_truncate", None: "do_not_truncate"}
_LIBRARIES = {"np": "numpy", "pt": "torch", "tf": "tensorflow"}


class EncodedTexts(dict[str, Any]):
    """The rows of a call of a tokenizer, by the names of a model's inputs.

    A row is a list of int; those of several texts are in a list, or in a tensor of one library.
    """

    @property
    def input_ids(self) -> Any:
        """Ids of the tokens."""
        return self["input_ids"]

    @property
    def attention_mask(self) -> Any:
        """1 for tokens, 0 for what fills a row up."""
        return self["attention_mask"]

    @property
    def token_type_ids(self) -> Any:
        """1 for the second text of a pair, else 0; MPNet's models have none."""
        return self["token_type_ids"]


@dataclass(frozen=True)
class RowSettings:
    """How long the rows of a call are.

    Attributes:
        padding: "longest", "max_length" or "do_not_pad".
        truncation: "longest_first", "only_first", "only_second" or "do_not_truncate".
        max_length: Maximum number of tokens of a row; 0 where none is needed.
        return_tensors: "np", "pt", "tf", or None for lists.
        special: How many special tokens a row has.
    """

    padding: str
    truncation: str
    max_length: int
    return_tensors: str | None
    special: int

    @classmethod
    def checked(
        cls,
        padding: Any,
        truncation: Any,
        max_length: int | None,
        default_length: int | None,
        return_tensors: str | None,
        special: int,
        others: Collection[str],
    ) -> Self:
        """Checks the arguments of a call.

        Args:
            padding: As Hugging Face's tokenizers take it, as well as the next one.
            truncation: Likewise.
            max_length: The maximum that the call names.
            default_length: The tokenizer's own.
            return_tensors: "np", "pt", "tf" or None.
            special: How many special tokens a row has.
            others: The names of other arguments, all of which are errors.

        Raises:
            SettingError: An argument is wrong, unknown, or has no effect.
        """
        known_names(others, ("padding", "truncation", "max_length", "return_tensors"))
        if isinstance(padding, bool | np.bool_):
            padding = _PADDING[bool(padding)]
        padding = one_of("padding", padding, ("longest", "max_length", "do_not_pad"))
        if truncation is None or isinstance(truncation, bool | np.bool_):
            truncation = _TRUNCATION[None if truncation is None else bool(truncation)]
        kinds = ("longest_first", "only_first", "only_second", "do_not_truncate")
        truncation = one_of("truncation", truncation, kinds)
        needed = padding == "max_length" or truncation != "do_not_truncate"
        if max_length is not None and not needed:
            raise SettingError("max_length", "requires truncation=True or padding='max_length'")
        length = default_length if max_length is None else max_length
        if needed and length is None:
            raise SettingError("max_length", "is missing: this tokenizer has no model_max_length")
        if return_tensors is not None:
            one_of("return_tensors", return_tensors, _LIBRARIES)
            _library(return_tensors)  # now, not when all is tokenized
        whole = whole_number("max_length", length, least=special) if needed else 0
        return cls(padding, truncation, whole, return_tensors, special)

    def lengths(self, first: int, second: int) -> tuple[int, int]:
        """Returns how many tokens of a text, or of two, fit a row.

        Of texts that are equally long the second keeps the odd token, unlike in
        `Encoder.encode`, which cuts pairs as google-research/bert.

        >>> RowSettings("do_not_pad", "longest_first", 8, None, 3).lengths(4, 4)
        (2, 3)
        """
        most = self.max_length - self.special
        if self.truncation == "do_not_truncate" or first + second <= most:
            return first, second
        if self.truncation == "longest_first":
            return _longest_first(first, second, most)
        kept = most - (second if self.truncation == "only_first" else first)
        if kept < min(second, 1):
            raise SettingError(
                "max_length",
                f"is too short for truncation={self.truncation!r}, got {self.max_length}",
            )
        return (kept, second) if self.truncation == "only_first" else (first, kept)

    def padded(self, rows: Sequence[Sequence[int]], filling: int) -> list[list[int]]:
        """Returns rows that are filled up to one length, unless `padding` says otherwise."""
        if self.padding == "do_not_pad":
            return [list(row) for row in rows]
        longest = max(map(len, rows), default=0)
        length = longest if self.padding == "longest" else self.max_length
        return [[*row, *[filling] * (length - len(row))] for row in rows]

    def form(self, rows: list[list[int]], one: bool) -> Any:
        """Returns rows, or the one of a single text, in the form of `return_tensors`.

        Raises:
            SettingError: They are of different lengths, so they are no tensor.
        """
        if self.return_tensors is None:
            return rows[0] if one else rows
        if len(set(map(len, rows))) > 1:
            raise SettingError(
                "return_tensors", "requires rows of one length: give padding=True", "padding"
            )
        array = np.array(rows, np.int64).reshape(len(rows), -1 if rows else 0)
        if self.return_tensors == "np":
            return array
        library = _library(self.return_tensors)
        if self.return_tensors == "pt":
            return library.from_numpy(array)
        return library.constant(array.astype(np.int32))


def _longest_first(first: int, second: int, most: int) -> tuple[int, int]:
    """Returns the lengths of two texts cut to `most` together, the longer one first."""
    short, long = sorted((first, second))
    long = max(short, most - short)
    if short + long > most:
        short, long = most // 2, most - most // 2
    return (long, short) if first > second else (short, long)


def _library(name: str) -> Any:
    module = _LIBRARIES[name]
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SettingError(
            "return_tensors", f"{name} requires {module}, which is not installed; np gives arrays"
        ) from error
