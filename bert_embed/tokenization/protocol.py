"""Says what the rest of the package asks of a tokenizer, whoever wrote it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bert_embed.arguments import whole_numbers
from bert_embed.storage.errors import SettingError


@dataclass(frozen=True)
class TokenizedTexts:
    """Tokens of a list of texts, end to end, with the span of each in its text.

    Attributes:
        ids: int32 `[tokens]`, no special tokens.
        row_splits: int64 `[texts + 1]`, where each text begins and ends in `ids`.
        starts: int32 `[tokens]`, the first code point of its span in the text.
        stops: int32 `[tokens]`, one past the last; `text[start:stop]` is the token's text, which
            never begins with white space.
        continues: bool `[tokens]`, whether a token continues the word of the token before it. A
            word ends at white space and punctuation, and each CJK character is one.
    """

    ids: np.ndarray
    row_splits: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    continues: np.ndarray


class TextTokenizer(Protocol):
    """Texts to ids of a vocabulary; several threads may call it.

    Attributes:
        vocab: The entries in order of their ids.
        cls_id, sep_id: What begins a row, and what ends a text of it.
        separators: How many `sep_id` are between the texts of a pair.
        unk_id: Stands for a word that the vocabulary lacks; None where it can write every text.
        pad_id: What examples written by other tools are filled up with.
        continues_word: bool `[vocabulary]`, whether an entry is written without a space before
            it and is no punctuation.
    """

    vocab: tuple[str, ...]
    cls_id: int
    sep_id: int
    separators: int
    unk_id: int | None
    pad_id: int

    @property
    def continues_word(self) -> np.ndarray: ...

    def tokenize_texts(self, texts: Iterable[str], offsets: bool = True) -> TokenizedTexts:
        """Returns the tokens of texts; without `offsets` there are ids and row splits alone."""

    def prompt_length(self, prompt: str) -> int:
        """Returns how many tokens a prompt before a text has; SettingError if that varies."""

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the entries of ids."""


def entries_of(vocab: Sequence[str], ids: Iterable[int]) -> list[str]:
    """Returns a vocabulary's entries for ids; SettingError for one that it does not have."""
    listed = ids.tolist() if isinstance(ids, np.ndarray) else whole_numbers("ids", ids)
    if listed and not 0 <= min(listed) <= max(listed) < len(vocab):
        raise SettingError(
            "ids", f"must be between 0 and {len(vocab) - 1}, got {min(listed)} to {max(listed)}"
        )
    return [vocab[entry] for entry in listed]
