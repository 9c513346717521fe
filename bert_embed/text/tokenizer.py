"""Tokenizes texts to WordPiece ids and offsets, exactly as the model's own library."""

import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_embed.base.arguments import (
    one_of,
    switch,
    text_list,
    whole_number,
)
from bert_embed.base.errors import InputError, SettingError
from bert_embed.base.native_calls import native_call
from bert_embed.base.ragged import splits_of, sums_of
from bert_embed.bundle.bundle import TOKENIZER_JSON, Bundle
from bert_embed.text.json_tokenizer import JsonTokenizer
from bert_embed.text.normalizer import GoogleRules, HubRules, Normalizer, safe_cut
from bert_embed.text.protocol import TextTokenizer, TokenizedTexts
from bert_embed.text.wordpiece import WordPiece

_CHUNK_CHARS = 1 << 17  # the arrays of one chunk stay in a core's cache
_WORD = "a"  # a text that would continue a word before it


class SpecialTokens(NamedTuple):
    """The entries that are put around texts."""

    begin: str  # at the start of a row
    end: str  # after a text
    padding: str  # what examples of others are filled up with
    separators: int  # how many `end` are between the texts of a pair


SPECIAL_TOKENS = {
    "bert": SpecialTokens("[CLS]", "[SEP]", "[PAD]", 1),
    # Its vocabulary has BERT's as well, and does not use them.
    "mpnet": SpecialTokens("<s>", "</s>", "<pad>", 2),
}
_RULES = {"google": GoogleRules, "hub": HubRules}


class Tokenizer(TextTokenizer):
    """BERT's tokenizer for one vocabulary, columns of texts to arrays.

    Ids equal, for any text, those of google-research/bert's FullTokenizer under this Python's
    `unicodedata`, or those of Hugging Face's BertTokenizer, which is of another mind on private
    use, newer characters and the final sigma. Special tokens in a text are text: "[SEP]" becomes
    three tokens or more, never one.

    Of two equal entries of a vocabulary the later id counts, as in both libraries. Entries
    that are blank, or contain NUL, a control character or white space, match no word.

    Args:
        vocab: A vocab.txt, or its entries in order of their ids.
        lower_case: Whether texts are converted to lower case without accents, for uncased models.
        max_word_chars: Maximum number of characters of a word; a longer one is [UNK]. 200 in
            google-research's models, 100 in Hugging Face's.
        special_tokens: "bert" or "mpnet", whose rows begin with <s> and end with </s>.
        rules: "google" for the characters of google-research/bert, "hub" for those of Hugging Face.

    Raises:
        InputError: The vocabulary cannot be read, or lacks [UNK] or a token that begins or ends
            rows.
        SettingError: An argument is of another type.
    """

    def __init__(
        self,
        vocab: str | os.PathLike[str] | Sequence[str],
        lower_case: bool = True,
        max_word_chars: int = 200,
        special_tokens: str = "bert",
        rules: str = "google",
    ) -> None:
        if isinstance(vocab, (str, os.PathLike)):
            vocab = _read_vocab(vocab)
            vocab = [entry.strip() for entry in vocab] if rules == "google" else vocab
        self.vocab = tuple(text_list("vocab", vocab))
        self._settings = lower_case, max_word_chars, special_tokens, rules
        ids = {entry: row for row, entry in enumerate(self.vocab)}
        special = SPECIAL_TOKENS[one_of("special_tokens", special_tokens, SPECIAL_TOKENS)]
        needed = (special.begin, special.end, "[UNK]")
        missing = [token for token in needed if token not in ids]
        if missing:
            raise InputError(f"the vocabulary lacks {', '.join(missing)}")
        self.cls_id, self.sep_id, self.unk_id = (ids[token] for token in needed)
        self.pad_id = ids.get(special.padding, 0)
        self.separators, self.has_segments = special.separators, True
        self.lower_case = switch("lower_case", lower_case)
        characters = _RULES[one_of("rules", rules, _RULES)]
        longest = whole_number("max_word_chars", max_word_chars, least=1)
        self._normalizer = partial(Normalizer, characters(self.lower_case))
        self._first = _Tables(self._normalizer(), WordPiece(ids, "[UNK]", longest))
        # Those that no call uses now: calls on several threads run side by side, and a process that
        # is forked in the middle of one never finds its half-changed tables.
        self._idle = [self._first]
        self._prompt_lengths: dict[str, int] = {}

    @classmethod
    def from_pretrained(cls, model: "str | os.PathLike[str]" = "minilm") -> TextTokenizer:
        """Returns the tokenizer of a model, which is given as to `bert_embed.load`.

        It is of another class where the model's is not WordPiece. InputError: there is no such
        model.
        """
        from bert_embed.bundle.find import resolve_model

        return load_tokenizer(resolve_model(model, needed=lambda bundle: ()))  # no weights

    @property
    def settings(self) -> dict[str, Any]:
        """As `TextTokenizer.settings`: the arguments beside the vocabulary."""
        settings = {"lower_case": self.lower_case, "max_word_chars": self._settings[1]}
        *_, special, rules = self._settings
        # Models of google-research with BERT's own tokens keep their fingerprint.
        return (
            settings
            | ({} if special == "bert" else {"special_tokens": special})
            | ({} if rules == "google" else {"rules": rules})
        )

    @property
    def file_text(self) -> str:
        """The text of vocab.txt."""
        return "".join(f"{entry}\n" for entry in self.vocab)

    def __repr__(self) -> str:
        return f"Tokenizer({len(self)} entries, lower_case={self.lower_case})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process makes the tables anew."""
        return type(self), (self.vocab, *self._settings)

    @functools.cached_property
    def continues_word(self) -> np.ndarray:
        """As `TextTokenizer.continues_word`: the entries that begin with `##`."""
        return np.array([entry.startswith("##") for entry in self.vocab])

    def prompt_length(self, prompt: str) -> int:
        """As `TextTokenizer.prompt_length`."""
        if prompt not in self._prompt_lengths:
            ids, row_splits = self.encode_flat([prompt, _WORD, prompt + _WORD])
            alone, word, joined = np.split(ids, row_splits[1:-1])
            if not np.array_equal(joined, np.concatenate([alone, word])):
                raise SettingError(
                    "prompt",
                    f"{prompt!r} would run into the first word of a text, put a space at its end",
                )
            self._prompt_lengths[prompt] = len(alone)
        return self._prompt_lengths[prompt]

    def tokenize_texts(self, texts: Iterable[str], offsets: bool = True) -> TokenizedTexts:
        """Returns what `encode_with_offsets` does; without `offsets` ids and row splits alone."""
        texts = text_list("texts", texts)
        plain = np.fromiter(map(str.isascii, texts), bool, len(texts))
        others = np.flatnonzero(~plain)
        mixed = 0 < len(others) < len(texts)
        if mixed:
            # ASCII texts are faster, unless other texts are among them.
            order = np.concatenate([others, np.flatnonzero(plain)])
            texts = [texts[row] for row in order.tolist()]
        counts = np.zeros(len(texts), np.int64)
        parts = [(np.empty(0, np.int32),) * 3]
        with self._tables() as tables:
            for start, shift, chunk in _chunks(texts, len(others)):
                with native_call():
                    part, chunk_counts = tables.tokenize(chunk, shift, offsets)
                parts.append(part)
                counts[start : start + len(chunk)] += chunk_counts
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        if mixed:
            tokens = int(counts[: len(others)].sum())
            counts[order] = counts.copy()
            columns = [_in_place(column, tokens, np.repeat(plain, counts)) for column in columns]
        ids, starts, stops = columns
        continues = self.continues_word[ids if offsets else ids[:0]]
        return TokenizedTexts(ids, splits_of(counts), starts, stops, continues)

    @contextmanager
    def _tables(self) -> Iterator["_Tables"]:
        """Lends tables to one call; they return only if it did not stop in the middle."""
        try:
            tables = self._idle.pop()
        except IndexError:
            tables = _Tables(self._normalizer(), self._first.word_piece.empty_copy())
        yield tables
        self._idle.append(tables)


@dataclass(frozen=True)
class _Tables:
    """What is learned of characters and words, for one call at a time."""

    normalizer: Normalizer
    word_piece: WordPiece

    def tokenize(
        self, texts: Sequence[str], shift: int, offsets: bool
    ) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
        """Returns ids, starts and stops of the tokens of some texts, and the number of each."""
        words = self.normalizer.words(texts)
        pieces = self.word_piece.pieces(words, offsets)
        counts = sums_of(pieces.counts, words.counts)
        if pieces.starts is None or pieces.stops is None:
            return (pieces.ids, pieces.ids[:0], pieces.ids[:0]), counts
        origins = np.repeat(words.origins - shift, counts)
        starts = (words.came_from(pieces.starts) - origins).astype(np.int32)
        stops = (words.came_from(pieces.stops - 1) + 1 - origins).astype(np.int32)
        return (pieces.ids, starts, stops), counts


def load_tokenizer(bundle: Bundle) -> TextTokenizer:
    """Returns the model's tokenizer."""
    path = Path(bundle.path, bundle.tokenizer_file)
    if bundle.tokenizer_file == TOKENIZER_JSON:
        return JsonTokenizer(path.read_text("utf-8"))
    return Tokenizer(path, **bundle.tokenizer_settings)


def _chunks(texts: Sequence[str], border: int) -> Iterator[tuple[int, int, Sequence[str]]]:
    """Yields groups within `border`: number of the first text, its characters before, the texts."""
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    chunk_of = (np.cumsum(sizes + 1) - 1) // _CHUNK_CHARS
    cuts = {border, len(texts), *(np.flatnonzero(np.diff(chunk_of)) + 1).tolist()}
    for start, stop in pairwise(sorted({0, *cuts})):
        # A long text always begins a group.
        text, at = texts[start], 0
        if len(text) <= _CHUNK_CHARS:
            yield start, 0, texts[start:stop]
            continue
        while at < len(text):
            end = safe_cut(text, at, _CHUNK_CHARS)
            yield start, at, [text[at:end]]
            at = end
        if start + 1 < stop:
            yield start + 1, 0, texts[start + 1 : stop]


def _in_place(column: np.ndarray, others: int, plain: np.ndarray) -> np.ndarray:
    """Returns tokens in the order of their texts; the first `others` are not `plain`."""
    if len(column) == 0:
        return column
    ordered = np.empty_like(column)
    ordered[~plain], ordered[plain] = column[:others], column[others:]
    return ordered


def _read_vocab(path: str | os.PathLike[str]) -> list[str]:
    try:
        with Path(path).open(encoding="utf-8", newline="\n") as lines:
            return [line.removesuffix("\n") for line in lines]
    except (OSError, UnicodeDecodeError) as error:
        hint = "" if Path(path).exists() else "; a model's is Tokenizer.from_pretrained(model)"
        message = f"vocab {os.fspath(path)} cannot be read: {error}{hint}"
        raise InputError(message, "vocab") from error
