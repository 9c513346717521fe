"""Says what the rest of the package asks of a tokenizer, whoever wrote it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class TokenizedTexts:
    """Tokens of a list of texts, end to end, with the span of each in its text.

    Attributes:
        ids: int32 `[tokens]`, no special tokens.
        row_splits: int64 `[texts + 1]`, where each text begins and ends in `ids`.
        starts: int32 `[tokens]`, the first code point of its span in the text.
        stops: int32 `[tokens]`, one past the last; `text[start:stop]` is the token's text.
    """

    ids: np.ndarray
    row_splits: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


class TextTokenizer(Protocol):
    """Texts to ids of a vocabulary; several threads may call it.

    Attributes:
        vocab: The entries in order of their ids.
        cls_id, sep_id: What begins a row, and what ends a text of it.
        separators: How many `sep_id` are between the texts of a pair.
        unk_id: Stands for a word that the vocabulary lacks.
        pad_id: What examples written by other tools are filled up with.
        continues_word: bool `[vocabulary]`, whether an entry continues the word before it.
    """

    vocab: tuple[str, ...]
    cls_id: int
    sep_id: int
    separators: int
    unk_id: int
    pad_id: int

    @property
    def continues_word(self) -> np.ndarray: ...

    def tokenize_texts(self, texts: Iterable[str], offsets: bool = True) -> TokenizedTexts:
        """Returns the tokens of texts; without `offsets`, starts and stops are empty."""

    def prompt_length(self, prompt: str) -> int:
        """Returns how many tokens a prompt before a text has; SettingError if that varies."""

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the entries of ids."""
