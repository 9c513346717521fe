"""Tokenizes texts as a tokenizer.json says, with the `tokenizers` library."""

import functools
import json
import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_embed.arguments import text_list
from bert_embed.ragged import splits_of
from bert_embed.storage.errors import InputError, SettingError
from bert_embed.tokenization.normalizer import Normalizer
from bert_embed.tokenization.protocol import TokenizedTexts, entries_of

if TYPE_CHECKING:
    import tokenizers

_WORD = "a"  # a text that could run into the prompt before it
_PADDING = ("<pad>", "[PAD]")
_NEVER = "\U0010ffff "  # no tokenizer leaves a space in what it looks up
_SPACES = ("▁", "Ġ")  # how entries of Metaspace and of byte-level BPE write a space before a word


class JsonTokenizer:
    """A tokenizer of Hugging Face's: Unigram, byte-level BPE, or another WordPiece than BERT's.

    Ids equal those of the library, but special tokens in a text are text: "</s>" becomes several
    tokens, never the one that ends a row. A lone surrogate, which no UTF-8 has, is read as U+FFFD.

    Args:
        settings: The text of a tokenizer.json.

    Raises:
        InputError: It cannot be read, or does not put one token before and one after a text.
    """

    def __init__(self, settings: str) -> None:
        self._settings = settings
        whole = _read(settings)
        numbers = whole.get_vocab(with_added_tokens=True)
        entries = {number: entry for entry, number in numbers.items()}
        self.vocab = tuple(entries.get(number, "") for number in range(max(entries) + 1))
        self.cls_id, self.sep_id, self.separators = _special_ids(whole)
        values = json.loads(settings)
        self.unk_id = _unknown_id(values["model"], numbers)
        self.pad_id: int = next((numbers[name] for name in _PADDING if name in numbers), 0)
        self._tokenizer = _read(json.dumps(_without_special_entries(values)))
        self._words = Normalizer(lower_case=False)
        self._prompt_lengths: dict[str, int] = {}

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> "JsonTokenizer":
        """Returns the tokenizer of a tokenizer.json; InputError if it cannot be read."""
        try:
            with open(path, encoding="utf-8") as file:
                return cls(file.read())
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{os.fspath(path)} cannot be read: {error}") from error

    def __repr__(self) -> str:
        return f"JsonTokenizer({len(self)} entries)"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._settings,)

    def __len__(self) -> int:
        return len(self.vocab)

    @functools.cached_property
    def continues_word(self) -> np.ndarray:
        """bool `[vocabulary]`: whether an entry is written without a space before it.

        Punctuation continues no word. This is for counting; where words are needed, they are found
        in the text, see `TokenizedTexts.continues`.
        """
        return np.array(
            [not entry.startswith(_SPACES) and any(map(_is_letter, entry)) for entry in self.vocab]
        )

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the vocabulary's entries for ids; SettingError for one that it does not have."""
        return entries_of(self.vocab, ids)

    def prompt_length(self, prompt: str) -> int:
        """Returns the number of tokens of a prompt before every text, and keeps it.

        The space at the end of a prompt belongs to the tokens of the text.

        Raises:
            SettingError: Its last word and a text's first word would become one token.
        """
        if prompt not in self._prompt_lengths:
            words = prompt.rstrip()
            joined = self.tokenize_texts([prompt + _WORD])
            alone = self.tokenize_texts([words]).ids
            count = int(np.count_nonzero(joined.stops <= len(words)))
            if not np.array_equal(joined.ids[:count], alone):
                raise SettingError(
                    "prompt",
                    f"{prompt!r} would run into the first word of a text, put a space at its end",
                )
            self._prompt_lengths[prompt] = count
        return self._prompt_lengths[prompt]

    def tokenize_texts(self, texts: Iterable[str], offsets: bool = True) -> TokenizedTexts:
        """Returns the tokens of texts; without `offsets`, starts, stops and continues are empty."""
        texts = [_valid(text) for text in text_list("texts", texts)]
        if not offsets:
            encoded = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
            ids, splits = _flat([one.ids for one in encoded])
            nothing = np.empty(0, np.int32)
            return TokenizedTexts(ids, splits, nothing, nothing, np.empty(0, bool))
        encoded = self._tokenizer.encode_batch(texts, add_special_tokens=False)
        ids, splits = _flat([one.ids for one in encoded])
        spans = [span for one in encoded for span in one.offsets]
        starts, stops = np.array(spans, np.int32).reshape(-1, 2).T.copy()
        starts, word = self._trim(texts, splits, starts, stops)
        continues = np.append(False, word[1:] == word[:-1])[: len(ids)]
        continues[splits[:-1][np.diff(splits) > 0]] = False
        return TokenizedTexts(ids, splits, starts, stops, continues)

    def _trim(
        self, texts: Sequence[str], splits: np.ndarray, starts: np.ndarray, stops: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns starts behind white space, and int64 `[tokens]`, the word of all texts' each."""
        words = self._words.words(texts)
        begins = words.came_from(words.starts)
        ends = words.came_from(words.stops - 1) + 1
        shift = np.repeat(words.origins, np.diff(splits))
        at = starts + shift
        # A token that begins in white space begins with the word after it, if it reaches so far.
        word = np.searchsorted(ends, at, side="right")
        following = np.append(begins, np.iinfo(begins.dtype).max)[word]
        trimmed = np.minimum(np.maximum(at, following), stops + shift)
        return (trimmed - shift).astype(np.int32), word


def _read(settings: str) -> "tokenizers.Tokenizer":
    import tokenizers

    try:
        tokenizer = tokenizers.Tokenizer.from_str(settings)
    except Exception as error:  # the library raises no other
        raise InputError(f"tokenizer.json cannot be read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _without_special_entries(values: dict[str, Any]) -> dict[str, Any]:
    """Renames special tokens, which Unigram's own vocabulary would find in a text, too."""
    special = {token["content"] for token in values["added_tokens"] if token["special"]}
    renamed = {name: f"{_NEVER}{name}" for name in special}
    model, vocab = values["model"], values["model"]["vocab"]
    if isinstance(vocab, dict):
        vocab = {renamed.get(entry, entry): number for entry, number in vocab.items()}
    else:
        vocab = [[renamed.get(entry, entry), score] for entry, score in vocab]
    unknown = model.get("unk_token")
    return {
        **values,
        "model": {**model, "vocab": vocab}
        | ({} if unknown is None else {"unk_token": renamed.get(unknown, unknown)}),
        "added_tokens": [
            {**token, "content": renamed.get(token["content"], token["content"])}
            for token in values["added_tokens"]
        ],
        "post_processor": None,
    }


def _special_ids(tokenizer: "tokenizers.Tokenizer") -> tuple[int, int, int]:
    """Returns the id before a text, the id after it, and how many of these part a pair."""
    pair = tokenizer.encode(_WORD, _WORD)
    borders = [place for place, text in enumerate(pair.sequence_ids) if text is None]
    ids = [pair.ids[place] for place in borders]
    separators = len(ids) - 2
    last = len(pair.ids) - 1
    if separators not in (1, 2) or {*borders} < {0, last} or len({*ids[1:]}) != 1:
        raise InputError(
            "tokenizer.json must put one token before a text, and one after it, as BERT's does"
        )
    return ids[0], ids[1], separators


def _unknown_id(model: Mapping[str, Any], numbers: Mapping[str, int]) -> int | None:
    if model["type"] == "Unigram":
        return model["unk_id"]
    return numbers.get(model.get("unk_token"))


def _flat(rows: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    splits = splits_of(np.fromiter(map(len, rows), np.int64, len(rows)))
    return np.fromiter((one for row in rows for one in row), np.int32, int(splits[-1])), splits


def _valid(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _is_letter(char: str) -> bool:
    return unicodedata.category(char)[0] in "LNM"
