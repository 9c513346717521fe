"""Tokenizes texts as a tokenizer.json says, with the `tokenizers` library."""

import functools
import hashlib
import json
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_embed.base.arrays import splits_of
from bert_embed.base.errors import InputError
from bert_embed.base.threads import native_call
from bert_embed.text.documents import NO_TOKEN, TextTokenizer, TokenizedTexts
from bert_embed.text.normalizer import SURROGATES, Normalizer, hub_rules

if TYPE_CHECKING:
    import tokenizers


_WORD = "a"  # of the pair that shows what is put around texts
_MOST_ENTRIES = 1 << 24  # there is a text for each id
_PADDING = ("<pad>", "[PAD]")
_NEVER = "\U0010ffff "  # no tokenizer leaves a space in what it looks up
_SPACES = ("▁", "Ġ")  # how entries of Metaspace and of byte-level BPE write a space before a word


class JsonTokenizer(TextTokenizer):
    """A tokenizer of Hugging Face's: Unigram, byte-level BPE, or another WordPiece than BERT's.

    Ids equal those of the library, but special tokens in a text are text: "</s>" becomes several
    tokens, never the one that ends a row. A lone surrogate, which no UTF-8 has, is read as U+FFFD.

    Args:
        text: That of a tokenizer.json. Without a post-processor its rows are texts alone.

    Attributes:
        kind: "Unigram", "BPE", "WordPiece" or "WordLevel".
        never_in_texts: Special tokens.

    Raises:
        InputError: It cannot be read, or puts around a text other than one token on each side.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        whole = _read(text)
        numbers = whole.get_vocab(with_added_tokens=True)
        entries = {number: entry for entry, number in numbers.items()}
        if (last := max(entries, default=-1)) >= _MOST_ENTRIES:
            raise InputError(f"ids of entries must be below {_MOST_ENTRIES:,}, got {last:,}")
        self.vocab = tuple(entries.get(number, "") for number in range(last + 1))
        values = json.loads(text)
        self.kind: str = values["model"].get("type", "WordPiece")
        self.unk_id = _unknown_id(values["model"], numbers)
        self.cls_id, self.sep_id, self.separators, self.has_segments = NO_TOKEN, NO_TOKEN, 0, False
        if values.get("post_processor") is not None:
            with library_errors("post_processor cannot be followed"):
                single, pair = whole.encode(_WORD), whole.encode(_WORD, _WORD)
            self.cls_id, self.sep_id = ends = _ends(single)
            if max(ends) > last:
                raise InputError(
                    f"post_processor must put entries around texts, got id {max(ends)}"
                )
            self.separators = _separators(single, pair)
            self.has_segments = bool(self.separators) and any(pair.type_ids)
        self.of_library = True
        self.pad_id: int = next((numbers[name] for name in _PADDING if name in numbers), 0)
        self.never_in_texts = _never_in_texts(values)
        renamed = _without_special_entries(values, self.never_in_texts)
        self._tokenizer = _read(json.dumps(renamed))
        self._words = Normalizer(hub_rules(lower_case=False, clean=False))

    def __repr__(self) -> str:
        return f"JsonTokenizer({len(self)} entries)"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._text,)

    @property
    def settings(self) -> dict[str, Any]:
        """As `TextTokenizer.settings`: the kind of its pieces, and the hash of the file."""
        digest = hashlib.sha256(self._text.encode()).hexdigest()
        return {"kind": self.kind, "sha256": digest}

    @property
    def file_text(self) -> str:
        return self._text

    @functools.cached_property
    def continues_word(self) -> np.ndarray:
        if prefix := json.loads(self._text)["model"].get("continuing_subword_prefix"):
            return np.array([entry.startswith(prefix) for entry in self.vocab])

        def continues(entry: str) -> bool:
            is_word = any(unicodedata.category(char)[0] in "LNM" for char in entry)
            return is_word and not entry.startswith(_SPACES)

        return np.array([*map(continues, self.vocab)])

    def tokenize_texts(self, texts: list[str], offsets: bool = True) -> TokenizedTexts:
        """Returns the tokens of texts; without `offsets`, starts, stops and continues are empty."""
        texts = [SURROGATES.sub("\ufffd", text) for text in texts]
        library = self._tokenizer
        encode = library.encode_batch if offsets else library.encode_batch_fast
        with native_call(), library_errors("the model's tokenizer.json cannot split a text"):
            encoded = encode(texts, add_special_tokens=False)
        splits = splits_of(np.fromiter(map(len, encoded), np.int64, len(encoded)))
        ids = np.fromiter(chain.from_iterable(one.ids for one in encoded), np.int32, splits[-1])
        if not offsets:
            nothing = np.empty(0, np.int32)
            return TokenizedTexts(ids, splits, nothing, nothing, np.empty(0, bool))
        flat = chain.from_iterable(chain.from_iterable(one.offsets for one in encoded))
        starts, stops = np.fromiter(flat, np.int32, 2 * len(ids)).reshape(-1, 2).T.copy()
        starts, stops, word = self._trim(texts, splits, starts, stops)
        continues = np.append(False, word[1:] == word[:-1])[: len(ids)]
        continues[splits[:-1][np.diff(splits) > 0]] = False
        return TokenizedTexts(ids, splits, starts, stops, continues)

    def _trim(
        self, texts: Sequence[str], splits: np.ndarray, starts: np.ndarray, stops: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Returns starts and stops behind white space, and int64 `[tokens]`, each token's word."""
        # A token that begins in white space belongs to the word behind it; one of white space alone
        # is moved to where that word begins, or, empty, behind the last word, to which it belongs.
        words = self._words.words(texts)
        ends = words.came_from(words.stops - 1) + 1
        origins = np.repeat(words.origins, np.diff(splits))
        word = np.searchsorted(ends, origins + starts, side="right")
        last = np.repeat(np.cumsum(words.counts), np.diff(splits))
        behind = np.append(words.came_from(words.starts), 0)[word] - origins
        followed = word < last
        stops = np.where(followed & (behind >= stops), behind, stops)
        has_words = np.repeat(words.counts > 0, np.diff(splits))
        end = np.append(ends, 0)[np.maximum(last - 1, 0)] - origins
        stops = np.where(has_words & ~followed, end, stops)
        starts = np.where(followed, np.maximum(starts, behind), stops)
        return starts.astype(np.int32), stops.astype(np.int32), np.minimum(word, last - 1)


@contextmanager
def library_errors(what: str) -> Iterator[None]:
    """InputError for whatever the tokenizers library raises, which may be a panic of Rust's."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, Exception) or type(error).__name__ == "PanicException":
            raise InputError(f"{what}: {error}") from error
        raise


def _read(text: str) -> "tokenizers.Tokenizer":
    import tokenizers

    with library_errors("cannot be read"):
        tokenizer = tokenizers.Tokenizer.from_str(text)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _never_in_texts(values: Mapping[str, Any]) -> set[str]:
    """Returns the special tokens of a tokenizer.json, but those that byte pairs are made of."""
    model, tokens = values["model"], values.get("added_tokens") or ()
    special = {token["content"] for token in tokens if token["special"]}
    if model.get("type") != "BPE":
        return special
    prefix = model.get("continuing_subword_prefix") or ""
    suffix = model.get("end_of_word_suffix") or ""
    merges = [one.split(" ") if isinstance(one, str) else one for one in model["merges"]]
    made = {part for merge in merges for part in merge}
    made |= {first + second.removeprefix(prefix) for first, second in merges}
    letters = {name for name in special if len(name.removeprefix(prefix).removesuffix(suffix)) == 1}
    return special - made - letters


def _without_special_entries(values: dict[str, Any], special: set[str]) -> dict[str, Any]:
    """Renames special tokens, which Unigram's own vocabulary would find in a text, too."""
    added = values.get("added_tokens") or ()
    model = {**values["model"]}
    vocab = model["vocab"]

    def name(entry: str) -> str:
        return f"{_NEVER}{entry}" if entry in special else entry

    if isinstance(vocab, dict):
        model["vocab"] = {name(entry): number for entry, number in vocab.items()}
    else:
        model["vocab"] = [[name(entry), score] for entry, score in vocab]
    if (unknown := model.get("unk_token")) is not None:
        model["unk_token"] = name(unknown)
    tokens = [{**token, "content": name(token["content"])} for token in added]
    return {**values, "model": model, "added_tokens": tokens, "post_processor": None}


def _ends(single: "tokenizers.Encoding") -> tuple[int, int]:
    before, *text, after = single.sequence_ids if len(single) > 1 else (0, 0)
    if before is not None or after is not None or None in text or any(single.type_ids):
        raise InputError(
            "must put one token before a text, and one after it, as BERT's does, all of type 0; "
            f"of {_WORD!r} it makes {' '.join(single.tokens)!r}"
        )
    return single.ids[0], single.ids[-1]


def _separators(single: "tokenizers.Encoding", pair: "tokenizers.Encoding") -> int:
    """Returns how many tokens part a pair; 0 where it is not put together as BERT's are."""
    length = len(single)
    second = [number for number, text in zip(pair.ids, pair.sequence_ids, strict=True) if text == 1]
    types = [0] * length + [1] * (len(pair) - length)
    usual = pair.sequence_ids[:length] == single.sequence_ids
    if usual and pair.type_ids in (types, [0] * len(pair)):
        end = single.ids[-1:]
        for count in (1, 2):
            if pair.ids == [*single.ids, *end * (count - 1), *second, *end]:
                return count
    return 0


def _unknown_id(model: Mapping[str, Any], numbers: Mapping[str, int]) -> int | None:
    if model.get("type") == "Unigram":
        if (number := model.get("unk_id")) is None:
            raise InputError("unk_id must be the id of an entry, else some texts have no ids")
        return number
    unknown = model.get("unk_token")
    if unknown is not None and unknown not in numbers:
        from tokenizers import pre_tokenizers

        # Byte-level pieces can write every text.
        if not numbers.keys() >= set(pre_tokenizers.ByteLevel.alphabet()):
            raise InputError(f"unk_token must be an entry of the vocabulary, got {unknown!r}")
    return None if unknown is None else numbers.get(unknown)
