"""Says what the rest of the package asks of a tokenizer, whoever wrote it."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_embed.base.arguments import one_text, whole_numbers
from bert_embed.base.errors import SettingError
from bert_embed.settings import SPECIAL_TOKENS

NO_TOKEN = -1  # instead of the ids of [CLS] and [SEP], in rows of a model without them


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


class TextTokenizer(ABC):
    """Texts to ids of a vocabulary; several threads may call it."""

    vocab: tuple[str, ...]  # the entries in order of their ids
    cls_id: int  # what begins a row; `NO_TOKEN` where rows are texts alone
    sep_id: int  # what ends a text of it; likewise
    separators: int  # how many `sep_id` are between the texts of a pair
    has_segments: bool  # whether second texts have a type id of their own
    unk_id: int | None  # for a word that the vocabulary lacks; None where it can write every text
    pad_id: int  # what examples written by other tools are filled up with

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What decides ids beside the vocabulary, as JSON-able values; bundle.json keeps them."""

    @property
    @abstractmethod
    def file_text(self) -> str:
        """The text of the file in a bundle from which, with `settings`, it is made again."""

    @property
    @abstractmethod
    def continues_word(self) -> np.ndarray:
        """bool `[vocabulary]`: no space before an entry; for counts; punctuation continues none."""

    @abstractmethod
    def tokenize_texts(self, texts: Iterable[str], offsets: bool = True) -> TokenizedTexts:
        """Returns the tokens of texts; without `offsets` there are ids and row splits alone."""

    @abstractmethod
    def prompt_length(self, prompt: str) -> int:
        """Returns a prompt's number of tokens; SettingError if a text's first word joins it."""

    @property
    def special_tokens(self) -> int:
        """How many tokens a row of one text has beside it."""
        return 0 if self.cls_id == NO_TOKEN else SPECIAL_TOKENS

    def __len__(self) -> int:
        return len(self.vocab)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of one text, with the special tokens of a row around them."""
        ids, _ = self.encode_flat([one_text("text", text)])
        return [self.cls_id, *ids.tolist(), self.sep_id] if self.special_tokens else ids.tolist()

    def encode_flat(self, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of all texts, int32 `[tokens]`, and row splits, int64 `[texts + 1]`."""
        tokenized = self.tokenize_texts(texts, offsets=False)
        return tokenized.ids, tokenized.row_splits

    def encode_with_offsets(self, texts: Iterable[str]) -> TokenizedTexts:
        """Returns ids without special tokens, and the span of its text that each token is from.

        Where one character becomes several tokens, each of them has the whole character as span.
        """
        return self.tokenize_texts(texts, offsets=True)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the vocabulary's entries for ids; SettingError for one that it does not have."""
        listed = ids.tolist() if isinstance(ids, np.ndarray) else whole_numbers("ids", ids)
        if listed and not 0 <= min(listed) <= max(listed) < len(self):
            raise SettingError(
                "ids", f"must be between 0 and {len(self) - 1}, got {min(listed)} to {max(listed)}"
            )
        return [self.vocab[entry] for entry in listed]
