"""Counts the words that a model's vocabulary lacks or has in pieces, by file and by script."""

import unicodedata
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bert_embed.text.documents import TextTokenizer
from bert_embed.transforms.parts import UnknownWords

_MOST_FILES = 5  # of a part; those with most such words, then the largest
_SAMPLED_TEXTS, _SAMPLED_CHARS = 64, 1000  # of a part, whose scripts are looked at
_OFFSET = r":[0-9]+$"  # after the file, in the place of a document


def unknown_words(
    ids: np.ndarray,
    splits: np.ndarray,
    sources: pa.StringArray,
    unk_id: int | None,
    texts: list[str] | None = None,
    tokenizer: TextTokenizer | None = None,
) -> UnknownWords:
    """Counts [UNK], and tokens that continue a word, in `ids`, int32 `[tokens]`, of `[documents]`.

    The scripts of the words are counted where the texts and their tokenizer are there. No `unk_id`:
    the tokenizer can write every text.
    """
    continuing = 0 if tokenizer is None else int(np.count_nonzero(tokenizer.continues_word[ids]))
    if unk_id is None:
        return UnknownWords(len(ids), continuing=continuing)
    places = np.flatnonzero(ids == unk_id)
    lengths = np.diff(splits)
    counts = np.bincount(np.searchsorted(splits, places, side="right") - 1, minlength=len(lengths))
    paths = pc.replace_substring_regex(sources, _OFFSET, "").dictionary_encode()
    file = paths.indices.to_numpy()
    by_file = np.bincount(file, counts).astype(np.int64)
    tokens = np.bincount(file, lengths).astype(np.int64)
    # Those without [UNK] count, too: another part of the file may have some.
    worst = np.lexsort((-tokens, -by_file))[:_MOST_FILES].tolist()
    scripts: Counter[str] = Counter()
    if len(places) and texts is not None and tokenizer is not None:
        rows = np.flatnonzero(counts)
        rows = rows[:: -(-len(rows) // _SAMPLED_TEXTS)].tolist()
        scripts = unknown_scripts([texts[row][:_SAMPLED_CHARS] for row in rows], tokenizer)
    return UnknownWords(
        len(ids),
        len(places),
        continuing,
        {paths.dictionary[row].as_py(): (int(by_file[row]), int(tokens[row])) for row in worst},
        dict(scripts),
    )


def unknown_scripts(texts: list[str], tokenizer: TextTokenizer) -> Counter[str]:
    """Counts the words of texts that become [UNK], by the script of their first letter."""
    tokens = tokenizer.tokenize_texts(texts, offsets=True)
    places = np.flatnonzero(tokens.ids == tokenizer.unk_id)
    rows = np.searchsorted(tokens.row_splits, places, side="right") - 1
    words = zip(rows.tolist(), tokens.starts[places], tokens.stops[places], strict=True)
    return Counter(script_of(texts[row][start:stop]) for row, start, stop in words)


def script_of(word: str) -> str:
    """The script of a word's first letter, as Unicode names letters; `symbols` without letters.

    >>> script_of("«жар"), script_of("\\N{GRINNING FACE}")
    ('Cyrillic', 'symbols')
    """
    letter = next((letter for letter in word if letter.isalpha()), "")
    name = unicodedata.name(letter, "") if letter else ""
    script = name.split(" ")[0].split("-")[0].capitalize()
    return {"": "symbols", "Cjk": "Han"}.get(script, script)
