"""Tokenizes documents, with prompts, second texts and words; builds rows of their ids.

`TextTokenizer` is what the rest of the package asks of a tokenizer, whoever wrote it.
"""

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bert_embed.base.arguments import text_list, text_or_word_lists, whole_numbers
from bert_embed.base.arrays import SameValues, places, splits_of, take, take_column, take_rows
from bert_embed.base.errors import InputError, SettingError, counted
from bert_embed.settings import SPECIAL_TOKENS

_WORD = "a"  # a text that could run into the prompt before it
NO_TOKEN = -1  # instead of the ids of [CLS] and [SEP], in rows of a model without them


@dataclass(frozen=True, eq=False)
class TokenizedTexts(SameValues):
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

    ids: NDArray[np.int32]
    row_splits: NDArray[np.int64]
    starts: NDArray[np.int32]
    stops: NDArray[np.int32]
    continues: NDArray[np.bool_]


_MANY_WORDS, _MANY_LETTERS = 100, 0.05  # entries of a script, and share of such of one letter


def _letters(entries: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The script of each entry's first letter, as a number, 0 without one; how many letters it has.

    >>> script, letters = _letters(["##river", "川", "##7", "a"])
    >>> script.tolist(), letters.tolist()
    ([1, 2, 0, 1], [5, 1, 0, 1])
    """
    points = np.frombuffer("".join(entries).encode("utf-32-le", "surrogatepass"), "<u4")
    entry = np.repeat(np.arange(len(entries)), np.fromiter(map(len, entries), np.int64))
    # A vocabulary has few letters: they are looked up once each, and not at every place.
    script_of, scripts = np.zeros(points.max(initial=0) + 1, np.int64), {"": 0}
    is_letter = np.zeros(len(script_of), bool)
    for letter in filter(str.isalpha, map(chr, np.flatnonzero(np.bincount(points)).tolist())):
        name = re.split("[ -]", unicodedata.name(letter, ""))[0]  # begins with the script's
        script_of[ord(letter)] = scripts.setdefault(name, len(scripts))
        is_letter[ord(letter)] = True
    at = np.flatnonzero(is_letter[points])[::-1]
    script = np.zeros(len(entries), np.int64)
    script[entry[at]] = script_of[points[at]]  # of each entry the first letter is the last here
    return script, np.bincount(entry[at], minlength=len(entries))


class TextTokenizer(ABC):
    """Texts to ids of a vocabulary; several threads may call it."""

    vocab: tuple[str, ...]  # the entries in order of their ids
    cls_id: int  # what begins a row; `NO_TOKEN` where rows are texts alone
    sep_id: int  # what ends a text of it; likewise
    separators: int  # how many `sep_id` are between the texts of a pair, see `check_pairs`
    has_segments: bool  # whether second texts have a type id of their own
    of_library: bool  # whether pairs are cut as by the tokenizers library, else google-research's
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

    @cached_property
    def is_foreign(self) -> np.ndarray:
        """bool `[vocabulary]`: entries of which texts in the model's languages have few.

        That is [UNK], all of a script of which there are hardly any words, and if one script has
        all words, those that continue one.
        """
        script, letters = _letters(self.vocab)
        words, singles = (np.bincount(script[some]) for some in (letters > 1, letters == 1))
        known = np.zeros(int(script.max()) + 1, bool)
        known[np.flatnonzero(words >= _MANY_WORDS)] = True
        known[np.flatnonzero(singles >= max(1, _MANY_LETTERS * len(self.vocab)))] = True
        known[0] = False
        foreign = (script > 0) & ~known[script]
        if known.sum() < 2:
            foreign |= self.continues_word
        if self.unk_id is not None:
            foreign[self.unk_id] = True
        return foreign & known.any()

    @abstractmethod
    def tokenize_texts(self, texts: list[str], offsets: bool = True) -> TokenizedTexts:
        """Returns the tokens of texts; without `offsets` there are ids and row splits alone."""

    def length_before(self, prompt: str, word: str) -> int | None:
        """Returns how many tokens a prompt has before a word; None if both would be one word.

        A space at its end belongs to the word's tokens.
        """
        words = prompt.rstrip()
        joined = self.tokenize_texts([prompt + word])
        alone = self.tokenize_texts([words]).ids
        count = int(np.count_nonzero(joined.stops <= len(words)))
        # The word itself may be of several tokens, such as a lone `▁` and `a`.
        one_word = bool(joined.continues[count : count + 1].any())
        return None if one_word or not np.array_equal(joined.ids[:count], alone) else count

    def prompt_length(self, prompt: str) -> int:
        """Returns a prompt's number of tokens; SettingError if a text's first word joins it."""
        lengths: dict[str, int] = vars(self).setdefault("_prompt_lengths", {})
        if prompt not in lengths:
            length = self.length_before(prompt, _WORD) if prompt else 0
            if length is None:
                raise SettingError(
                    "prompt",
                    f"{prompt!r} would run into the first word of a text, put a space at its end",
                )
            lengths[prompt] = length
        return lengths[prompt]

    @cached_property
    def special_tokens(self) -> int:
        """How many tokens a row of one text has beside it."""
        return 0 if self.cls_id == NO_TOKEN else SPECIAL_TOKENS

    def check_pairs(self, setting: str) -> None:
        """Raises SettingError where special tokens do not part pairs as BERT's do."""
        if self.special_tokens and not self.separators:
            raise SettingError(
                setting,
                "is for pairs, which this model's tokenizer.json does not put together as BERT's "
                "does; leave it out, single texts are embedded",
            )

    def __len__(self) -> int:
        return len(self.vocab)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of one text, with the special tokens of a row around them."""
        if not isinstance(text, str):
            raise SettingError("text", f"must be a str, got a {type(text).__name__}")
        ids, _ = self.encode_flat([text])
        return [self.cls_id, *ids.tolist(), self.sep_id] if self.special_tokens else ids.tolist()

    def encode_flat(self, texts: Iterable[str]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Returns the ids of all texts, int32 `[tokens]`, and row splits, int64 `[texts + 1]`."""
        tokenized = self.tokenize_texts(text_list("texts", texts), offsets=False)
        return tokenized.ids, tokenized.row_splits

    def encode_with_offsets(self, texts: Iterable[str]) -> TokenizedTexts:
        """Returns ids without special tokens, and the span of its text that each token is from.

        Where one character becomes several tokens, each of them has the whole character as span.
        """
        return self.tokenize_texts(text_list("texts", texts), offsets=True)

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the vocabulary's entries for ids; SettingError for one that it does not have."""
        if isinstance(ids, np.ndarray) and ids.dtype.kind in "iu" and ids.ndim == 1:
            listed = ids.tolist()
        else:
            listed = whole_numbers("ids", ids)
        if listed and not 0 <= min(listed) <= max(listed) < len(self):
            raise SettingError(
                "ids", f"must be between 0 and {len(self) - 1}, got {min(listed)} to {max(listed)}"
            )
        return [self.vocab[entry] for entry in listed]


_AT_ONCE = 4096  # tokens to copy at a time; chunks may overlap, so all of theirs may be many

# Arguments of `tokenize_documents`: texts, and what belongs to them.
Columns = dict[str, Any]


def text_columns(texts: Any, texts_b: Any = None) -> Columns:
    """Returns one text, texts or pairs; SettingError if they are none, or not equally many."""
    if isinstance(texts_b, str):
        raise SettingError(
            "texts_b",
            "must be a list of texts, got one str; a pair is encode([one], [other]), a prompt is "
            "prompt",
        )
    one = isinstance(texts, str)
    if one and texts_b is not None:
        raise SettingError("texts_b", "is for pairs, texts must be a list then")
    first = [texts] if one else texts
    if type(first) is not list or set(map(type, first)) != {str}:
        first = text_list("texts", first)
    second = None if texts_b is None else text_list("texts_b", texts_b)
    if second is not None and len(second) != len(first):
        raise SettingError("texts_b", f"must be {counted(len(first), 'text')}, got {len(second)}")
    return {"texts": first, "texts_b": second}


def word_columns(texts: Any) -> Columns:
    """Returns texts and lists of words, which are joined by spaces; SettingError as above."""
    listed = text_or_word_lists("texts", texts)
    words = [None if isinstance(text, str) else text for text in listed]
    joined = [text if isinstance(text, str) else " ".join(text) for text in listed]
    has_lists = any(of_text is not None for of_text in words)
    return {"texts": joined, "words": words if has_lists else None}


def word_ranges(
    continues: np.ndarray, token_splits: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Words of tokens, bool `[tokens]`, of which some continue the word before.

    int64 `[documents + 1]`, and int64 `[words]` each: first token and one past the last.
    """
    begins = ~continues
    begins[token_splits[:-1][np.diff(token_splits) > 0]] = True
    first = np.flatnonzero(begins)
    last = np.append(first[1:], len(continues))[: len(first)]
    return np.searchsorted(first, token_splits), first, last


def overlapping_tokens(
    starts: np.ndarray,
    stops: np.ndarray,
    token_splits: np.ndarray,
    unit_splits: np.ndarray,
    unit_starts: np.ndarray,
    unit_stops: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """int64 `[units]` each: first token, and one past the last, that overlap a range of characters.

    Both are equal where there is none. Splits are int64 `[documents + 1]`; tokens are in order.
    """
    # Each document gets a range of numbers of its own, so that one search is enough.
    stretch = int(max(stops.max(initial=0), unit_stops.max(initial=0))) + 1
    documents = np.arange(len(token_splits) - 1, dtype=np.int64) * stretch
    of_tokens = np.repeat(documents, np.diff(token_splits))
    of_units = np.repeat(documents, np.diff(unit_splits))
    first = np.searchsorted(of_tokens + stops, of_units + unit_starts, side="right")
    last = np.searchsorted(of_tokens + starts, of_units + unit_stops, side="left")
    return first, np.maximum(first, last)


def merge_tokens(
    vectors: np.ndarray, first: np.ndarray, last: np.ndarray, pooling: str
) -> np.ndarray:
    """float32 `[units, width]`: tokens `[first, last)` of each unit merged; zeros without any."""
    counts = last - first
    filled = np.flatnonzero(counts > 0)
    merged = np.zeros((len(counts), vectors.shape[1]), np.float32)
    if len(filled) == 0:
        return merged
    if pooling in ("first", "last"):
        merged[filled] = vectors[first[filled] if pooling == "first" else last[filled] - 1]
        return merged
    borders = np.flatnonzero(np.diff(np.cumsum(counts[filled]) // _AT_ONCE)) + 1
    reduce = np.maximum if pooling == "max" else np.add
    for units in np.split(filled, borders):
        of_units = vectors[places(first[units], counts[units])]
        merged[units] = reduce.reduceat(of_units, splits_of(counts[units])[:-1], axis=0)
    if pooling == "mean":
        merged[filled] /= counts[filled, None].astype(np.float32)
    return merged


@dataclass(frozen=True)
class TextWords:
    """The words of each text, as ranges of its characters (code points) and of tokens."""

    splits: np.ndarray  # int64 [documents + 1]
    starts: np.ndarray  # int64 [words], the first character
    stops: np.ndarray  # int64 [words], one past the last
    texts: list[str]
    first: np.ndarray  # int64 [words], number of the first token, of all texts' or of an output's
    last: np.ndarray  # int64 [words], one past the last; `first` where no token is left
    truncated: np.ndarray  # bool [words], whether some of its tokens were cut off


@dataclass(frozen=True)
class TokenizedDocuments:
    """The tokens of some documents, not yet split into rows."""

    numbers: np.ndarray  # int64 [documents], which of the texts they are, ascending
    texts: list[str]  # without prompt
    tokens: TokenizedTexts  # of prompt and text; offsets, if any, are -1 for the prompt
    # Before each text, the prompt's and those of a context: int64 [documents] where these differ
    prompt_tokens: int | np.ndarray = 0
    second: TokenizedTexts | None = None  # empty where a document has none; None without pairs
    is_pair: np.ndarray | None = None  # bool [documents], which have a second text; None as above
    words: list[Sequence[str] | None] | None = None  # the caller's, None for those of a text
    special: int = 2  # [CLS] and [SEP], which a row of one text has; none where a model has none
    contexts: list[str] | None = None  # what its columns put before the chunks of each
    cut_contexts: np.ndarray | None = None  # bool [documents], of contexts among `prompt_tokens`
    rejected: dict[int, str] = field(default_factory=dict)  # reasons of other texts, by number

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def head(self) -> int | np.ndarray:
        """How many tokens of a row come before its text: [CLS] and those of `prompt_tokens`."""
        return self.special // 2 + self.prompt_tokens

    @property
    def lengths(self) -> np.ndarray:
        """int64 `[documents]`: tokens of the text or of both texts, without the prompt."""
        first = np.diff(self.tokens.row_splits) - self.prompt_tokens
        return first if self.second is None else first + np.diff(self.second.row_splits)

    def text_tokens(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the places of the tokens of all texts without prompts, and their splits."""
        lengths = np.diff(self.tokens.row_splits) - self.prompt_tokens
        return places(self.tokens.row_splits[:-1] + self.prompt_tokens, lengths), splits_of(lengths)

    def take(self, rows: np.ndarray) -> "TokenizedDocuments":
        """Returns some of the documents, in the order of `rows`."""
        tokens = _taken(self.tokens, rows)
        second = None if self.second is None else _taken(self.second, rows)
        return replace(take(self, rows), tokens=tokens, second=second)


def _of_rows(numbers: int | np.ndarray, rows: np.ndarray) -> Any:
    return numbers[rows] if isinstance(numbers, np.ndarray) else numbers


def _taken(tokens: TokenizedTexts, rows: np.ndarray) -> TokenizedTexts:
    at, splits = take_rows(tokens.row_splits, rows)
    columns: list[Any] = [
        column[at] if len(column) else column  # without offsets they are empty
        for column in (tokens.starts, tokens.stops, tokens.continues)
    ]
    return TokenizedTexts(tokens.ids[at], splits, *columns)


def tokenize_documents(
    tokenizer: TextTokenizer,
    texts: Sequence[str],
    *,
    offsets: bool = False,
    prompt: str = "",
    marker: int | None = None,
    texts_b: Sequence[str | None] | None = None,
    words: Sequence[Sequence[str] | None] | None = None,
    contexts: Sequence[str] | None = None,
) -> TokenizedDocuments:
    """Tokenizes documents in one call, or two for pairs; with `offsets` of tokens on request.

    `marker` is an id before the tokens of each document, and counts as one of its prompt.

    `texts_b` are None where a document has none; `words` None for one that is a text, else joined
    by spaces in `texts`. SettingError: the prompt merges with texts.
    `contexts` are before each text, and count as its prompt; then `offsets` are necessary.
    """
    listed = list(texts)
    joined = [prompt + text for text in listed] if prompt else listed
    if contexts is not None:
        before = [prompt + context + " " if context else prompt for context in contexts]
        joined = [head + text for head, text in zip(before, listed, strict=True)]
    tokens = tokenizer.tokenize_texts(joined, offsets)
    prompt_tokens: int | np.ndarray = tokenizer.prompt_length(prompt) if prompt else 0
    if contexts is not None:
        chars = np.array(list(map(len, before)), np.int64)
        of_context = np.array(list(map(bool, contexts)), bool)
        prompt_tokens = np.where(of_context, _tokens_within(tokens, chars - 1), prompt_tokens)
        tokens = _behind_prompt(tokens, chars, prompt_tokens)
    elif prompt and offsets:
        tokens = _behind_prompt(tokens, len(prompt), prompt_tokens)
    if marker is not None:
        tokens, prompt_tokens = _behind_marker(tokens, marker), prompt_tokens + 1
    second = is_pair = None
    if texts_b is not None:
        second = tokenizer.tokenize_texts([text or "" for text in texts_b], offsets)
        is_pair = np.diff(second.row_splits) > 0
        if tokenizer.of_library:  # for which an empty second text is one
            is_pair = np.array([text is not None for text in texts_b], bool)
    numbers, special = np.arange(len(listed)), tokenizer.special_tokens
    parts = numbers, listed, tokens, prompt_tokens, second, is_pair
    own = None if words is None or not offsets else list(words)
    return TokenizedDocuments(*parts, words=own, special=special)


def _tokens_within(tokens: TokenizedTexts, chars: np.ndarray) -> np.ndarray:
    """int64 `[texts]`: how many tokens end within the first `chars` characters of each text."""
    lengths = np.diff(tokens.row_splits)
    within = tokens.stops <= np.repeat(chars, lengths)
    row = np.repeat(np.arange(len(lengths)), lengths)
    return np.bincount(row[within], minlength=len(lengths)).astype(np.int64)


def _behind_prompt(
    tokens: TokenizedTexts, chars: int | np.ndarray, prompt_tokens: int | np.ndarray
) -> TokenizedTexts:
    """Returns offsets from the beginning of the text, -1 for tokens before it."""
    lengths = np.diff(tokens.row_splits)
    number = np.arange(len(tokens.ids)) - np.repeat(tokens.row_splits[:-1], lengths)
    row = np.repeat(np.arange(len(lengths)), lengths)
    chars, prompt_tokens = _of_rows(chars, row), _of_rows(prompt_tokens, row)
    of_text = number >= prompt_tokens
    starts = np.where(of_text, np.maximum(tokens.starts - chars, 0), -1).astype(np.int32)
    stops = np.where(of_text, tokens.stops - chars, -1).astype(np.int32)
    return replace(tokens, starts=starts, stops=stops)


def _behind_marker(tokens: TokenizedTexts, marker: int) -> TokenizedTexts:
    """Returns tokens with the marker, which is no character, before those of each text."""
    begins = tokens.row_splits[:-1]
    columns: list[Any] = [
        np.insert(column, begins, value) if len(column) == len(tokens.ids) else column
        for column, value in ((tokens.starts, -1), (tokens.stops, -1), (tokens.continues, False))
    ]
    splits = tokens.row_splits + np.arange(len(tokens.row_splits))
    return TokenizedTexts(np.insert(tokens.ids, begins, marker), splits, *columns)


def words_of(documents: TokenizedDocuments) -> tuple[TextWords, np.ndarray]:
    """The words of all texts, among their tokens; bool `[words]`, which are the caller's."""
    found, listed = _words_of_texts(documents), documents.words
    if listed is None:
        return found, np.zeros(len(found.texts), bool)
    own = [word for words in listed for word in words or ()]
    counts = np.array([len(words or ()) for words in listed], np.int64)
    lengths, splits = np.array(list(map(len, own)), np.int64), splits_of(counts)
    begins = splits_of(lengths + 1)  # in all words joined by spaces
    starts = begins[:-1] - np.repeat(begins[splits[:-1]], counts)
    stops = starts + lengths
    (at, token_splits), tokens = documents.text_tokens(), documents.tokens
    spans = tokens.starts[at], tokens.stops[at], token_splits
    first, last = overlapping_tokens(*spans, splits, starts, stops)
    both = TextWords(
        np.append(found.splits, found.splits[-1] + splits[1:]),
        np.append(found.starts, starts),
        np.append(found.stops, stops),
        found.texts + own,
        np.append(found.first, first),
        np.append(found.last, last),
        np.zeros(len(found.texts) + len(own), bool),
    )
    is_own = np.array([words is not None for words in listed], bool)
    words = take_column(both, np.arange(len(listed)) + len(listed) * is_own)
    return words, np.repeat(is_own, np.diff(words.splits))


def _words_of_texts(documents: TokenizedDocuments) -> TextWords:
    tokens, (at, token_splits) = documents.tokens, documents.text_tokens()
    splits, first, last = word_ranges(tokens.continues[at], token_splits)
    starts = tokens.starts[at][first].astype(np.int64)
    stops = tokens.stops[at][last - 1].astype(np.int64)
    rows = np.repeat(np.arange(len(documents)), np.diff(splits))
    texts = [
        documents.texts[row][start:stop]
        for row, start, stop in zip(rows.tolist(), starts.tolist(), stops.tolist(), strict=True)
    ]
    return TextWords(splits, starts, stops, texts, first, last, np.zeros(len(texts), bool))


@dataclass(frozen=True)
class TokenRows:
    """Rows of token ids, end to end, as the model takes them."""

    input_ids: np.ndarray  # int32 [tokens], special tokens included
    row_splits: np.ndarray  # int64 [rows + 1], where each row begins and ends
    # int32 [tokens], 1 for all but a row's first text; None: all 0
    token_type_ids: np.ndarray | None = None
    # bool [rows], whether tokens of the row's text were cut off; empty where nobody asks
    truncated: np.ndarray = field(default_factory=partial(np.zeros, 0, bool))
    # int32 [tokens], 0 for tokens that no other token sees, for models with `needs_mask`; None: all
    # tokens are seen.
    attended: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.row_splits) - 1

    @cached_property
    def lengths(self) -> np.ndarray:
        """int64 `[rows]`."""
        return np.diff(self.row_splits)


def build_rows(
    ids: np.ndarray, row_splits: np.ndarray, max_seq_length: int, cls_id: int, sep_id: int
) -> TokenRows:
    """Builds `[CLS] text [SEP]` of at most `max_seq_length` tokens.

    `ids` are int32 `[tokens]`, all texts end to end, `row_splits` int64 `[rows + 1]`. Rows hold
    texts alone where `cls_id` is `NO_TOKEN`.

    >>> build_rows(np.array([7, 8, 9]), np.array([0, 1, 3]), 3, 101, 102).input_ids.tolist()
    [101, 7, 102, 101, 8, 102]
    """
    special = SPECIAL_TOKENS * (cls_id != NO_TOKEN)
    lengths = np.diff(row_splits)
    kept = np.minimum(lengths, max_seq_length - special)
    truncated = kept < lengths
    texts = ids[places(row_splits[:-1], kept)] if truncated.any() else ids
    splits = splits_of(kept + special)
    out, inner = np.full(splits[-1], sep_id, np.int32), np.ones(splits[-1], bool)
    if special:
        out[splits[:-1]] = cls_id
        inner[splits[:-1]] = inner[splits[1:] - 1] = False
    out[inner] = texts
    return TokenRows(out, splits, None, truncated)


Ragged = tuple[np.ndarray, np.ndarray]  # ids of texts end to end, and their splits


def build_pairs(
    first: Ragged,
    second: Ragged,
    max_seq_length: int,
    marks: TextTokenizer,
    is_pair: np.ndarray | None = None,
) -> TokenRows:
    """Builds `[CLS] a [SEP] b [SEP]` of at most `max_seq_length` tokens, `[CLS] a [SEP]` of no `b`.

    `marks` says what a row has beside its texts, and whose rules say how these are cut.
    Pairs lose tokens from the end of the longer text, until both are equally long, and then of both
    in turn, first of the second as in `_truncate_seq_pair` of google-research/bert, or with
    `of_library` of the one that was shorter. `is_pair`, bool `[rows]`, says which rows are pairs,
    None those with tokens of a second text. What is left empty of one has a [SEP] `of_library`.
    """
    (ids_a, splits_a), (ids_b, splits_b) = first, second
    begin = int(marks.cls_id != NO_TOKEN)
    special = begin * SPECIAL_TOKENS
    if max_seq_length < special + marks.separators:
        raise InputError(f"max_seq_length must leave room for a pair, got {max_seq_length}")
    lengths_a, lengths_b = np.diff(splits_a), np.diff(splits_b)
    is_pair = lengths_b > 0 if is_pair is None else is_pair
    capacity = max_seq_length - special - marks.separators * is_pair
    half_b = (capacity + (marks.of_library & (lengths_b >= lengths_a))) // 2
    kept_b = np.minimum(lengths_b, np.maximum(half_b, capacity - lengths_a))
    kept_a = np.minimum(lengths_a, capacity - kept_b)
    sizes_a = kept_a + special
    sizes_b = kept_b + marks.separators * (is_pair & (marks.of_library | (kept_b > 0)))
    splits = splits_of(sizes_a + sizes_b)
    starts = splits[:-1]
    out = np.full(splits[-1], marks.sep_id, np.int32)
    if begin:
        out[starts] = marks.cls_id
    out[places(starts + begin, kept_a)] = ids_a[places(splits_a[:-1], kept_a)]
    starts_b = starts + sizes_a + marks.separators - begin
    out[places(starts_b, kept_b)] = ids_b[places(splits_b[:-1], kept_b)]
    pattern = np.tile(np.array([0, 1], np.int32), len(starts))
    types = np.repeat(pattern, np.stack([sizes_a, sizes_b], axis=1).reshape(-1))
    return TokenRows(out, splits, types, kept_a + kept_b < lengths_a + lengths_b)


def fill_rows(rows: TokenRows, length: int, fill_id: int) -> TokenRows:
    """Returns single texts' rows of at least `length` tokens; those added are not `attended`.

    >>> filled = fill_rows(TokenRows(np.array([1, 2, 3], np.int32), np.array([0, 1, 3])), 2, 9)
    >>> filled.input_ids.tolist(), filled.attended.tolist()
    ([1, 9, 2, 3], [1, 0, 1, 1])
    """
    lengths = rows.lengths
    splits = splits_of(np.maximum(lengths, length))
    ids = np.full(splits[-1], fill_id, np.int32)
    is_text = np.zeros(splits[-1], np.int32)
    at = places(splits[:-1], lengths)
    ids[at], is_text[at] = rows.input_ids, 1
    return TokenRows(ids, splits, None, rows.truncated, is_text)


def unique_rows(rows: TokenRows, key: np.ndarray) -> tuple[TokenRows, np.ndarray]:
    """Rows distinct by `key`, int32 `[tokens]`, and int32 `[rows]`, which of these each equals."""
    data, borders = key.tobytes(), (rows.row_splits * key.itemsize).tolist()
    numbers: dict[bytes, int] = {}
    first: list[int] = []
    row = np.empty(len(borders) - 1, np.int32)
    for place, (start, stop) in enumerate(pairwise(borders)):
        number = numbers.setdefault(data[start:stop], len(numbers))
        if number == len(first):
            first.append(place)
        row[place] = number
    if len(first) == len(row):
        return rows, row
    at, splits = take_rows(rows.row_splits, np.array(first))
    types = None if rows.token_type_ids is None else rows.token_type_ids[at]
    return TokenRows(rows.input_ids[at], splits, types, rows.truncated[first]), row
