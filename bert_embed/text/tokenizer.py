"""Turns texts into BERT's token ids: words, then WordPiece, for many texts at once."""

import copy
import functools
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

from bert_embed.base.arguments import one_of, switch, text_list, whole_number
from bert_embed.base.arrays import splits_of, sums_of
from bert_embed.base.errors import InputError, refusal
from bert_embed.base.threads import native_call
from bert_embed.bundle.bundle import TOKENIZER_JSON, Bundle
from bert_embed.storage.local import opened
from bert_embed.text.documents import NO_TOKEN, TextTokenizer, TokenizedTexts
from bert_embed.text.json_tokenizer import JsonTokenizer
from bert_embed.text.normalizer import Normalizer, Words, google_rules, hub_rules, safe_cut

_FEWEST = 1 << 14  # slots of an empty table


def word_keys(chars: np.ndarray, starts: np.ndarray, lengths: np.ndarray, width: int) -> np.ndarray:
    """Returns words' first `width` bytes, a multiple of 8, uint64 `[words, width / 8]`, then 0."""
    size = chars.itemsize
    data = np.zeros(len(chars) * size + width, np.uint8)
    data[: len(chars) * size] = chars.view(np.uint8)
    windows = np.ndarray((len(chars),), f"V{width}", data, strides=(size,))
    # `take` would first make a copy of all the windows.
    keys = windows[starts].view(np.uint64).reshape(-1, width // 8)
    keys &= _masks(width).take(np.minimum(lengths * size, width), axis=0)
    return keys


@functools.cache
def _masks(width: int) -> np.ndarray:
    """Returns the masks that keep 0, 1, ... `width` bytes, uint64 `[width + 1, width / 8]`."""
    return (np.tri(width + 1, width, -1, np.uint8) * np.uint8(255)).view(np.uint64)


class WordTable:
    """Open addressing with linear probing, at most half full; `columns` uint64s are a key."""

    def __init__(self, columns: int) -> None:
        # The columns of a key, then its value, which is 0 in an empty slot. NumPy copies rows of 32
        # bytes at once, but not those of 24.
        self._columns = columns
        self._slots = np.zeros((_FEWEST, max(columns + 1, 4)), np.uint64)
        self._used = 0
        # Random for each table, so that nobody can write a text that makes it slow.
        self._factors = np.random.default_rng().integers(1 << 63, size=columns, dtype=np.uint64)
        self._factors |= np.uint64(1)

    def __len__(self) -> int:
        return self._used

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Returns the value of each key, int64 `[keys]`; 0 where it has none."""
        at = self._home(keys)
        slots = self._slots.take(at, axis=0)
        values = slots[:, self._columns].view(np.int64)
        same = _same(slots, keys)
        entries = np.where(same, values, 0)
        rest = np.flatnonzero(~same & (values != 0))
        at, keys = at.take(rest), keys.take(rest, axis=0)
        while len(rest):
            at = (at + 1) & (len(self._slots) - 1)
            slots = self._slots.take(at, axis=0)
            values = slots[:, self._columns].view(np.int64)
            same = _same(slots, keys)
            entries[rest[same]] = values[same]
            going_on = np.flatnonzero(~same & (values != 0))
            rest, at, keys = rest.take(going_on), at.take(going_on), keys.take(going_on, axis=0)
        return entries

    def insert(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Adds keys that are different and not in the table, with values other than 0."""
        self._used += len(keys)
        if 2 * self._used > len(self._slots):
            old = self._slots[self._slots[:, self._columns] != 0]
            size = 1 << (4 * self._used - 1).bit_length()
            self._slots = np.zeros((size, self._slots.shape[1]), np.uint64)
            self._place(old)
        new = np.zeros((len(keys), self._slots.shape[1]), np.uint64)
        new[:, : self._columns], new[:, self._columns] = keys, values.astype(np.uint64)
        self._place(new)

    def _place(self, slots: np.ndarray) -> None:
        at = self._home(slots[:, : self._columns])
        numbers = np.arange(1, len(slots) + 1, dtype=np.uint64)
        values = self._slots[:, self._columns]
        # Rows as one item each are copied in half of the time.
        table, rest = _as_items(self._slots), _as_items(slots)
        while len(rest):
            free = values[at] == 0
            # Where several keys have the same slot, the last one that writes its number gets it.
            values[at[free]] = numbers[free]
            won = free & (values[at] == numbers)
            table[at[won]] = rest[won]
            lost = np.flatnonzero(~won)
            rest, numbers = rest[lost], numbers.take(lost)
            at = (at.take(lost) + 1) & (len(table) - 1)

    def distinct(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns different keys, and the number of each key among them, int64 `[keys]`."""
        order = np.argsort(self._mixed(keys))
        ordered = keys.take(order, axis=0)
        new = np.ones(len(keys), bool)
        new[1:] = ~_same(ordered[1:], ordered[:-1])
        number = np.empty(len(keys), np.int64)
        number[order] = np.cumsum(new) - 1
        return ordered[new], number

    def _home(self, keys: np.ndarray) -> np.ndarray:
        mixed = self._mixed(keys)
        mixed >>= np.uint64(65 - len(self._slots).bit_length())
        return mixed.view(np.int64)

    def _mixed(self, keys: np.ndarray) -> np.ndarray:
        mixed = keys[:, 0] * self._factors[0]
        for column in range(1, keys.shape[1]):
            mixed ^= mixed >> np.uint64(29)
            mixed += keys[:, column] * self._factors[column]
        mixed ^= mixed >> np.uint64(32)
        mixed *= self._factors[0]
        return mixed


def _as_items(rows: np.ndarray) -> np.ndarray:
    return rows.view(f"V{rows.strides[0]}")[:, 0]


def _same(slots: np.ndarray, keys: np.ndarray) -> np.ndarray:
    same = slots[:, 0] == keys[:, 0]
    for column in range(1, keys.shape[1]):
        same &= slots[:, column] == keys[:, column]
    return same


_MAX_ENTRIES = 1 << 19  # words and pieces together, about 30 MB; then the tables are emptied
_COUNT_BITS = 32  # an entry is one integer: where the pieces start, and their number
_NO_PIECES = 1  # row 0, one piece
_BEFORE = "\n"  # precedes each word where words are cut; no word contains it
_PIECE = itemgetter(0)  # of a match
_WHOLE_WORD = -1  # instead of the end of a piece: the end of the word
# Bytes of words that are looked up without a Python string: 16 ASCII characters, or 16 others below
# U+10000. Longer words are rare, and take a microsecond each.
_ASCII_WIDTH, _WIDE_WIDTH = 16, 32


@dataclass(frozen=True)
class Pieces:
    """The pieces of some words, end to end."""

    ids: np.ndarray  # int32 [pieces], ids in the vocabulary
    counts: np.ndarray  # int64 [words], how many pieces each word has
    starts: np.ndarray | None = None  # int64 [pieces], starts in `Words.chars`, if requested
    stops: np.ndarray | None = None  # int64 [pieces], where it stops


class WordPiece:
    """google-research/bert's WordpieceTokenizer, which keeps the pieces of words.

    `unk_token` stands for words that have no pieces, or more than `max_word_chars` characters.
    """

    def __init__(self, vocab: Mapping[str, int], unk_token: str, max_word_chars: int) -> None:
        entries = [(entry, row) for entry, row in vocab.items() if entry and _BEFORE not in entry]
        pieces = {_BEFORE + entry: row for entry, row in entries}
        # Where no entry begins a word: so each word has a first match.
        pieces[_BEFORE] = vocab[unk_token]
        begins = len(pieces)
        pieces |= {entry[2:]: row for entry, row in entries if entry[:2] == "##" != entry}
        encoded = list(map(_bytes, pieces))
        self._piece_ids = np.fromiter(pieces.values(), np.int32, len(pieces))
        self._begins = np.arange(len(pieces)) < begins
        self._chars = np.fromiter(map(len, pieces), np.int64, len(pieces)) - self._begins
        sizes = np.fromiter(map(len, encoded), np.int64, len(pieces))
        # Of no size, it leaves a gap.
        self._sizes = np.where(self._chars > 0, sizes, 0)
        # The leftmost longest match after the last one is the greedy choice.
        self._cutter = BytesAhoCorasick(
            encoded, MatchKind.LeftmostLongest, Implementation.ContiguousNFA
        )
        self._unk_id = vocab[unk_token]
        self._max_word_chars = max_word_chars
        self.forget()

    def empty_copy(self) -> "WordPiece":
        """One for another thread, which shares the vocabulary and has learned no word yet."""
        empty = copy.copy(self)
        empty.forget()
        return empty

    def pieces(self, words: Words, offsets: bool) -> Pieces:
        """Splits words into pieces."""
        if len(self._longer) + self._rows + sum(map(len, self._tables.values())) > _MAX_ENTRIES:
            self.forget()
        entries = self._find(words)
        counts = entries & ((1 << _COUNT_BITS) - 1)
        before = np.cumsum(counts) - counts
        rows = np.repeat((entries >> _COUNT_BITS) - before, counts)
        rows += np.arange(len(rows))
        ids = self._ids.take(rows)
        if not offsets:
            return Pieces(ids, counts)
        word_starts, stops = np.repeat(words.starts, counts), self._stops.take(rows)
        whole = stops == _WHOLE_WORD
        stops = np.where(whole, np.repeat(words.stops, counts), word_starts + stops)
        starts = np.empty_like(stops)
        starts[1:] = stops[:-1]
        starts[before] = words.starts
        return Pieces(ids, counts, starts, stops)

    def forget(self) -> None:
        """Empties the tables of words."""
        self._longer: dict[str, int] = {}
        self._tables = {1: WordTable(_ASCII_WIDTH // 8), 2: WordTable(_WIDE_WIDTH // 8)}
        self._ids = np.array([self._unk_id], np.int32)
        self._stops = np.array([_WHOLE_WORD], np.int64)
        self._rows = 1

    def _find(self, words: Words) -> np.ndarray:
        """Returns the table's entry of each word, int64 `[words]`, and adds missing ones."""
        lengths = words.stops - words.starts
        chars, width = words.chars, _ASCII_WIDTH
        if chars.itemsize > 1:
            chars, width = chars.astype(np.uint16), _WIDE_WIDTH
        table = self._tables[chars.itemsize]
        short = lengths <= width // chars.itemsize
        if chars is not words.chars:
            beyond = np.flatnonzero(words.chars > 0xFFFF)
            short[np.searchsorted(words.starts, beyond, side="right") - 1] = False
        keys = word_keys(chars, words.starts, lengths, width)
        entries_of = np.where(short, table.find(keys), 0)
        missing = np.flatnonzero(entries_of == 0)
        new, longer = missing[short[missing]], missing[~short[missing]]
        if len(new):
            distinct, number = table.distinct(keys.take(new, axis=0))
            entries = self._learn(_lines_of(distinct.view(chars.dtype)))
            table.insert(distinct, entries)
            entries_of[new] = entries.take(number)
        if len(longer):
            entries_of[longer] = self._find_longer(words.strings(longer))
        return entries_of

    def _find_longer(self, words: list[str]) -> list[int]:
        most, known = self._max_word_chars, self._longer
        new = list(dict.fromkeys(word for word in words if len(word) <= most and word not in known))
        if new:
            entries = self._learn(_bytes("".join(_BEFORE + word for word in new)))
            known.update(zip(new, entries.tolist(), strict=True))
        return [known.get(word, _NO_PIECES) for word in words]

    def _learn(self, lines: bytes) -> np.ndarray:
        """Returns the entries of new words, int64 `[words]`; each is UTF-8 behind `_BEFORE`."""
        # The other two of each match, its start and stop, would take longer than all that follows.
        matches = self._cutter.find_matches_as_indexes(lines)
        pieces = np.fromiter(map(_PIECE, matches), np.int64, len(matches))
        firsts = np.flatnonzero(self._begins.take(pieces))
        chars, sizes = self._chars.take(pieces), self._sizes.take(pieces)
        lengths = np.add.reduceat(chars, firsts)
        begins = np.flatnonzero(np.frombuffer(lines, np.uint8) == ord(_BEFORE))
        # Pieces do not overlap, so those of a word have all its bytes only if they leave no gap.
        covered = np.add.reduceat(sizes, firsts) == np.diff(begins, append=len(lines))
        whole = covered & (lengths <= self._max_word_chars)
        counts = np.diff(firsts, append=len(pieces))
        of_whole = np.repeat(whole, counts)
        pieces, chars, counts = pieces[of_whole], chars[of_whole], counts * whole
        stops = np.cumsum(chars) - np.repeat(splits_of(lengths * whole)[:-1], counts)
        starts = self._rows + splits_of(counts)[:-1]
        self._ids = _extended(self._ids, self._rows, self._piece_ids.take(pieces))
        self._stops = _extended(self._stops, self._rows, stops)
        self._rows += len(pieces)
        return np.where(whole, starts << _COUNT_BITS | counts, _NO_PIECES)


def _lines_of(words: np.ndarray) -> bytes:
    """Returns the argument of `_learn` for words of code points `[words, width]`, then zeros."""
    lines = np.full((len(words), words.shape[1] + 1), ord(_BEFORE), words.dtype)
    lines[:, 1:] = words
    points = lines[lines > 0]
    if points.itemsize == 1:
        return points.tobytes()
    return _bytes(points.astype("<u4").tobytes().decode("utf-32-le", "surrogatepass"))


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _extended(array: np.ndarray, used: int, values: np.ndarray) -> np.ndarray:
    """Writes values after the used part of an array, or of a larger copy if they do not fit."""
    stop = used + len(values)
    if stop > len(array):
        array = np.concatenate([array, np.empty(stop, array.dtype)])
    array[used:stop] = values
    return array


_CHUNK_CHARS = 1 << 17  # the arrays of one chunk stay in a core's cache


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
    "none": SpecialTokens("", "", "[PAD]", 0),  # rows are texts alone
}
# Settings that fingerprints of models with these values do not have.
_LATER = {"special_tokens": "bert", "rules": "google"}
_RULES = {"google": google_rules, "hub": hub_rules}


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
        special_tokens: "bert", "mpnet", whose rows begin with <s> and end with </s>, or "none".
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
        self.lower_case = switch("lower_case", lower_case)
        longest = whole_number("max_word_chars", max_word_chars, least=1)
        self._settings = self.lower_case, longest, special_tokens, rules
        ids = {entry: row for row, entry in enumerate(self.vocab)}
        special = SPECIAL_TOKENS[one_of("special_tokens", special_tokens, SPECIAL_TOKENS)]
        needed = (special.begin, special.end, "[UNK]")
        missing = [token for token in needed if token and token not in ids]
        if missing:
            raise InputError(f"the vocabulary lacks {', '.join(missing)}")
        self.cls_id, self.sep_id, self.unk_id = (
            ids[token] if token else NO_TOKEN for token in needed
        )
        self.pad_id = ids.get(special.padding, 0)
        self.separators, self.has_segments = special.separators, True
        self.of_library = rules == "hub"
        characters = _RULES[one_of("rules", rules, _RULES)]
        self._normalizer = partial(Normalizer, characters(self.lower_case))
        self._first = _Tables(self._normalizer(), _word_piece(self.vocab, longest).empty_copy())
        # Those that no call uses now: calls on several threads run side by side, and a process that
        # is forked in the middle of one never finds its half-changed tables.
        self._idle = [self._first]

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
        named = zip(("lower_case", "max_word_chars", *_LATER), self._settings, strict=True)
        return {name: value for name, value in named if _LATER.get(name) != value}

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

    def tokenize_texts(self, texts: list[str], offsets: bool = True) -> TokenizedTexts:
        """Returns what `encode_with_offsets` does; without `offsets` ids and row splits alone."""
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


@functools.lru_cache(maxsize=2)
def _word_piece(vocab: tuple[str, ...], max_word_chars: int) -> WordPiece:
    """Each step of a run and each search has a tokenizer of its own, mostly of one vocabulary."""
    return WordPiece({entry: row for row, entry in enumerate(vocab)}, "[UNK]", max_word_chars)


def load_tokenizer(bundle: Bundle) -> TextTokenizer:
    """Returns the model's tokenizer."""
    path = Path(bundle.path, bundle.tokenizer_file)
    if bundle.tokenizer_file == TOKENIZER_JSON:
        with io.TextIOWrapper(opened(path), "utf-8") as file:
            return JsonTokenizer(file.read())
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
        with io.TextIOWrapper(opened(path), "utf-8", newline="\n") as lines:
            return [line.removesuffix("\n") for line in lines]
    except (OSError, UnicodeDecodeError) as error:
        hint = "" if Path(path).exists() else "; a model's is Tokenizer.from_pretrained(model)"
        message = f"vocab {os.fspath(path)} cannot be read: {error}{hint}"
        raise refusal(error, message, "vocab") from error
