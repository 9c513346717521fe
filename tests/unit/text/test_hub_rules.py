"""Ids and offsets of hub models are those of the `tokenizers` library, on every code point.

The tests compare all characters; as a program it compares all code points in all places, an hour on
one core; a kind on its command line compares that alone.
"""

import random
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from bert_embed.text.json_tokenizer import JsonTokenizer
from bert_embed.text.tokenizer import Tokenizer

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
CHUNK = 4096
POINTS = [*range(0xD800), *range(0xE000, 0x110000)]
CHUNKS = [POINTS[at : at + CHUNK] for at in range(0, len(POINTS), CHUNK)]
# Unicode has given characters to these planes alone; all points of others are treated alike.
PLANES_IN_USE = (0, 1, 2, 3, 14)
SOME_OF_OTHERS = 16  # one chunk in so many
SPACES = "".join(filter(str.isspace, map(chr, POINTS))).translate(
    dict.fromkeys(range(0x1C, 0x20))  # which Python alone calls white space
)
# Places of a character: alone, at each place of a word, between words, twice, behind a capital,
# and around marks, which canonical order may move.
PLACES = (
    *("{0}", "{0}a", "a{0}b", "a{0}", "a {0} b", "{0}{0}", "S{0}s"),
    *("a{0}\u0301b", "a\u0323{0}b", "\u302e{0}\u0334"),
)
WORD_PLACES = ("{0}a", "a{0}b", "a{0}", "a {0} b")  # of all points, for the other kinds
PROGRAM_CHUNK = 60_000
# A bullet of PDFs, marks and punctuation that are new or move, ideographs, Hangul, letters that
# several others become or that become several.
ODD = (
    "\uf0b7\uf8ff\U0002b820\U0002b91f\u2e5d\u061d\U0001f6dd\u1c89\ua7cb\u08d4\u1dfb\u1b44\u302e\u302f"
    "\u0334\u0345\u0301\u0323\ufe0f\u200d\u00ad\ufeff\ufffd\u2028\x85\x1c\xa0\u3000\0\t\n "
    "\U0001d165\U0001d16d\U0001d15e\U0001d160\u0f71ΣσςİıſẞßÅKﬁ…½㍿한각힣豈一鿿aAbB.'-\U0010ffff\ue000"
)


def library_of(entries: list[str], lower_case: bool) -> tokenizers.Tokenizer:
    """What transformers makes of a vocab.txt of BERT's."""
    vocab = {entry: number for number, entry in enumerate(entries)}
    library = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=lower_case)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return library


def both_rows(
    tokenizer: Tokenizer | JsonTokenizer, library: tokenizers.Tokenizer, texts: list[str]
) -> Iterator[tuple]:
    """Each text, and the id and span of each token, ours and the library's."""
    seen = tokenizer.encode_with_offsets(texts)
    encodings = library.encode_batch(texts, add_special_tokens=False)
    rows = list(zip(seen.ids.tolist(), seen.starts.tolist(), seen.stops.tolist(), strict=True))
    splits = pairwise(seen.row_splits.tolist())
    for text, one, (first, last) in zip(texts, encodings, splits, strict=True):
        right = [(number, *span) for number, span in zip(one.ids, one.offsets, strict=True)]
        yield text, rows[first:last], right


def different(tokenizer: Tokenizer, library: tokenizers.Tokenizer, texts: list[str]) -> list[tuple]:
    """Texts whose ids or spans differ, with both."""
    every = both_rows(tokenizer, library, texts)
    return [(ascii(text), ours, right) for text, ours, right in every if ours != right]


def entries_for(points: list[int], lower_case: bool) -> list[str]:
    """A vocabulary with every character that may come of these, so that none hides in [UNK]."""
    normalize = normalizers.BertNormalizer(lowercase=lower_case).normalize_str
    chars = {*"abs.,\u0301\u0323\u302e\u0334", *map(chr, points)}
    chars |= {*normalize(" ".join(sorted(chars)))}  # each by itself, all in one call
    kept = sorted(char for char in chars if char != "\n")
    return [*SPECIALS, *kept, *(f"##{char}" for char in kept)]


def found(points: list[int], lower_case: bool, places: Sequence[str]) -> list[tuple]:
    """What differs of characters in all places, a hundred in a text."""
    entries = entries_for(points, lower_case)
    tokenizer = Tokenizer(entries, lower_case, 100, rules="hub")
    texts = [
        " ".join(place.format(chr(point)) for point in points[at : at + 100])
        for place in places
        for at in range(0, len(points), 100)
    ]
    return different(tokenizer, library_of(entries, lower_case), texts)


def check(points: list[int], lower_case: bool, places: Sequence[str] = PLACES) -> None:
    assert found(points, lower_case, places) == [], points[0]


@pytest.mark.parametrize("lower_case", [True, False])
def test_odd_characters_are_those_of_the_library(lower_case):
    check(list(map(ord, ODD)), lower_case)


@pytest.mark.slow
@pytest.mark.parametrize("lower_case", [True, False])
def test_all_characters_are_those_of_the_library(lower_case):
    """In one place, and a sample of them in every place."""
    for number in random.Random(42).sample(range(len(CHUNKS)), 8):
        check(CHUNKS[number], lower_case)
    for number, chunk in enumerate(CHUNKS):
        if chunk[-1] >> 16 in PLANES_IN_USE or number % SOME_OF_OTHERS == 0:
            check(chunk, lower_case, ["a{0}b"])


@pytest.mark.slow
@pytest.mark.parametrize("lower_case", [True, False])
def test_random_texts_are_those_of_the_library(lower_case):
    draw = random.Random(7)
    points = [*map(ord, ODD), *draw.sample(POINTS, 2000), *range(0x20, 0x600)]
    entries = entries_for(points, lower_case)
    tokenizer = Tokenizer(entries, lower_case, 100, rules="hub")
    chars = list(map(chr, points))

    def text() -> str:
        pool = ODD if draw.random() < 0.5 else chars
        if draw.random() < 0.02:
            return draw.choice(ODD) * draw.choice([99, 100, 101, 102, 200])
        return "".join(draw.choices(pool, k=draw.choice([1, 2, 5, 10, 20, 40])))

    texts = [text() for _ in range(20_000)]
    assert different(tokenizer, library_of(entries, lower_case), texts) == []


def test_a_bullet_of_a_pdf_leaves_the_word_that_it_touches():
    entries = [*SPECIALS, "first", "##first"]
    tokenizer = Tokenizer(entries, rules="hub")
    assert tokenizer.encode("\uf0b7 first first\uf0b7first") == [2, 4, 4, 5, 3]
    assert tokenizer.encode("\ud83dfirst") == [2, 4, 3]  # half of an emoji
    assert Tokenizer(entries).encode("\uf0b7first") == [2, 1, 3]  # google-research's rule


def herbert() -> tokenizers.Tokenizer:
    """BPE with BERT's pre-tokenizer, one entry a character."""
    kept = sorted({*ODD, *map(chr, range(0x20, 0x600))} - {"\n"})
    names = ["<s>", "<pad>", "</s>", "<unk>", *kept, *(f"{char}</w>" for char in kept)]
    vocab = {name: number for number, name in enumerate(names)}
    library = tokenizers.Tokenizer(
        models.BPE(vocab, [], unk_token="<unk>", end_of_word_suffix="</w>")
    )
    library.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.post_processor = tokenizers.processors.BertProcessing(("</s>", 2), ("<s>", 0))
    return library


KINDS = ("unigram", "byte_level", "herbert")


def both(kind: str) -> tuple[tokenizers.Tokenizer, JsonTokenizer]:
    """The library and the tokenizer under test, of one tokenizer.json."""
    path = Path(__file__).parents[2] / "data" / "tokenizers" / f"{kind}.json"
    text = herbert().to_str() if kind == "herbert" else path.read_text("utf-8")
    return tokenizers.Tokenizer.from_str(text), JsonTokenizer(text)


def other_differences(
    tokenizer: JsonTokenizer, library: tokenizers.Tokenizer, texts: list[str]
) -> Iterator[tuple]:
    """Texts whose ids or spans differ, with both; a span begins behind white space."""
    for text, got, right in both_rows(tokenizer, library, texts):
        for at, (number, first, last) in enumerate(right):
            inside = text[first:last]
            if stripped := inside.lstrip(SPACES):
                right[at] = (number, last - len(stripped), last)
            elif at < len(got):  # white space alone has any place
                right[at] = (number, *got[at][1:])
        if got != right:
            yield ascii(text), got, right


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_other_tokenizers_have_the_ids_and_places_of_the_library(kind):
    library, tokenizer = both(kind)
    draw = random.Random(9)
    points = [*map(ord, ODD), *draw.sample(POINTS, 4000)]
    texts = [place.format(chr(point)) for place in PLACES for point in points]
    assert next(other_differences(tokenizer, library, texts), None) is None


def test_lone_surrogates_keep_the_places_of_what_follows():
    tokenizer = JsonTokenizer(herbert().to_str())
    found = tokenizer.encode_with_offsets(["\ud83d\ude00 ab"])
    assert np.stack([found.starts, found.stops]).T.tolist()[-2:] == [[3, 4], [4, 5]]


def compare(kind: str) -> Iterator[tuple]:
    """Compares all points of a kind; yields what differs."""
    if kind in ("uncased", "cased"):
        for part in CHUNKS:
            yield from found(part, kind == "uncased", PLACES)
        return
    library, tokenizer = both(kind)
    for place in WORD_PLACES:
        for at in range(0, len(POINTS), PROGRAM_CHUNK):
            texts = [place.format(chr(point)) for point in POINTS[at : at + PROGRAM_CHUNK]]
            yield from other_differences(tokenizer, library, texts)


def main(kinds: list[str]) -> int:
    """Prints a line a kind, and some of what differs; 1 if anything does."""
    failed = 0
    for kind in kinds or ("uncased", "cased", *KINDS):
        start, differing = time.monotonic(), list(compare(kind))
        places = PLACES if kind in ("uncased", "cased") else WORD_PLACES
        seconds = time.monotonic() - start
        sys.stdout.write(
            f"{kind}: {len(POINTS):,} points, {len(places)} places, {len(differing):,} differing, "
            f"{seconds:.0f} s\n" + "".join(f"{row}\n" for row in differing[:10])
        )
        sys.stdout.flush()
        failed |= bool(differing)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
