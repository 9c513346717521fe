"""The tokenizer equals the reference: on golden texts, on generated ones, for any vocabulary."""

import functools
import json
import pickle
import random
import sys
import unicodedata
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bert_embed.base.errors import InputError
from bert_embed.bundle.bundle import Bundle
from bert_embed.text.tokenizer import Tokenizer

Letter = tuple[str, int]  # a character and the position it came from


def reference_tokens(
    text: str, vocab: dict[str, int], lower_case: bool, max_word_chars: int
) -> list[tuple[int, int, int]]:
    """Returns id, start and stop of each token of a text."""
    tokens = []
    for word in basic_words(text, lower_case):
        tokens.extend(word_pieces(word, vocab, max_word_chars))
    return tokens


def basic_words(text: str, lower_case: bool) -> list[list[Letter]]:
    """Cleans, isolates CJK, splits on whitespace, folds, splits at punctuation."""
    letters: list[Letter] = []
    for position, char in enumerate(text):
        code = ord(char)
        if code in (0, 0xFFFD) or is_control(char):
            continue
        if is_whitespace(char):
            letters.append((" ", position))
        elif any(code in block for block in CJK):
            letters += [(" ", position), (char, position), (" ", position)]
        else:
            letters.append((char, position))
    words = []
    for word in split(letters):
        words += split_at_punctuation(fold(word) if lower_case else word)
    return [word for run in words for word in split(run)]


def split(letters: list[Letter]) -> list[list[Letter]]:
    """`str.split()` for characters that know their positions."""
    words: list[list[Letter]] = [[]]
    for letter in letters:
        if letter[0].isspace():
            words.append([])
        else:
            words[-1].append(letter)
    return [word for word in words if word]


def fold(word: list[Letter]) -> list[Letter]:
    """Lower case without accents; Python folds the word, each character tells its positions.

    Context changes which characters come out (final sigma) or their order (canonical order of
    marks), never their number, so the n-th character that comes out has the n-th position.
    """
    chars = strip_accents("".join(char for char, _ in word).lower())
    positions = [at for char, at in word for _ in strip_accents(char.lower())]
    return list(zip(chars, positions, strict=True))


def strip_accents(text: str) -> str:
    decomposed = unicodedata.normalize("NFD", text)
    return "".join(char for char in decomposed if unicodedata.category(char) != "Mn")


def split_at_punctuation(word: list[Letter]) -> list[list[Letter]]:
    runs: list[list[Letter]] = [[]]
    for letter in word:
        if is_punctuation(letter[0]):
            runs += [[letter], []]
        else:
            runs[-1].append(letter)
    return [run for run in runs if run]


def word_pieces(
    word: list[Letter], vocab: dict[str, int], max_word_chars: int
) -> list[tuple[int, int, int]]:
    """Greedy longest match first; a word without pieces is one [UNK]."""
    chars = "".join(char for char, _ in word)
    unknown = [(vocab["[UNK]"], word[0][1], word[-1][1] + 1)]
    if len(chars) > max_word_chars:
        return unknown
    pieces = []
    start = 0
    while start < len(chars):
        for stop in range(len(chars), start, -1):
            piece = ("##" if start else "") + chars[start:stop]
            if piece in vocab:
                break
        else:
            return unknown
        pieces.append((vocab[piece], word[start][1], word[stop - 1][1] + 1))
        start = stop
    return pieces


def is_whitespace(char: str) -> bool:
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def is_control(char: str) -> bool:
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def is_punctuation(char: str) -> bool:
    code = ord(char)
    ascii_symbol = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return ascii_symbol or unicodedata.category(char)[0] == "P"


CJK = (
    *(range(0x4E00, 0xA000), range(0x3400, 0x4DC0), range(0x20000, 0x2A6E0)),
    *(range(0x2A700, 0x2B740), range(0x2B740, 0x2B820), range(0x2B820, 0x2CEB0)),
    *(range(0xF900, 0xFB00), range(0x2F800, 0x2FA20)),
)

GOLDEN = Path(__file__).parents[2] / "data" / "tokenization.jsonl"
SETTINGS = [(True, 200), (True, 100), (False, 200), (False, 100)]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
# What makes tokenizers differ: sigma in all its forms, marks that move, marks that stay, spaces
# that are not spaces, characters that vanish, that grow, that shrink, that are two words.
ODD = (
    "ΣσςΑ'’·.\u0345\u00ad\u200b\u200d\ufeff\0\ufffd\u2028\u2029\x85\x1c\x0b\xa0\u3000\u1680\t\n\r "
    "\u0301\u0327\u0338\u302e\u302f\U0001d165\U0001d16d\U0001d15e\u1b44\U00016ff0\u0f71\u093f"
    "İıſẞßÅΩKﬁ…½™①㍿Ⅷ\u037e\u1fef\u2260\u212b한각힣豈\U0002f800一鿿\U0002ceaf\ud800\udfff\U0010ffff"
)
ASCII = "".join(map(chr, range(128)))
LETTERS = "etaoinshrdlu" * 3 + "ETAOINSHRDLU" + "  ,.-'0123456789"
SCRIPTS = [
    (0xA0, 0x250), (0x300, 0x370), (0x370, 0x400), (0x400, 0x530), (0x590, 0x600), (0x600, 0x700),
    (0x900, 0x980), (0xE00, 0xE80), (0x1100, 0x1200), (0x1E00, 0x2000), (0x2000, 0x2070),
    (0x3040, 0x3100), (0x4E00, 0x5000), (0xAC00, 0xAE00), (0x1D100, 0x1D200), (0x1F600, 0x1F650),
]  # fmt: skip


@pytest.fixture(scope="session")
def vocab(minilm: Bundle) -> list[str]:
    return Path(minilm.path, "vocab.txt").read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="session")
def wide_vocab(vocab: list[str]) -> list[str]:
    """The real vocabulary and every character: else most odd words are [UNK] whatever is done."""
    known = set(vocab)
    chars = [char for char in map(chr, range(sys.maxunicode + 1)) if is_assigned(char)]
    return vocab + [e for char in chars for e in (char, f"##{char}") if e not in known]


@pytest.fixture(scope="session")
def wide(wide_vocab: list[str]) -> Callable[[bool, int], Tokenizer]:
    """The tokenizer of `wide_vocab`, each once: it takes a second."""
    return functools.cache(functools.partial(Tokenizer, wide_vocab))


def is_assigned(char: str) -> bool:
    return unicodedata.category(char) not in ("Cn", "Co")


def differences(
    texts: list[str], tokenizer: Tokenizer, lower_case: bool, max_word_chars: int
) -> list:
    """Texts whose ids or offsets are not the reference's, with both."""
    ids = entry_ids(tokenizer.vocab)
    seen = tokenizer.encode_with_offsets(texts)
    flat, splits = tokenizer.encode_flat(texts)
    assert np.array_equal(flat, seen.ids)
    assert np.array_equal(splits, seen.row_splits)
    columns = np.stack([seen.ids, seen.starts, seen.stops], axis=1).tolist()
    wrong = []
    for text, (start, stop) in zip(texts, pairwise(splits.tolist()), strict=True):
        expected = reference_tokens(text, ids, lower_case, max_word_chars)
        if [tuple(row) for row in columns[start:stop]] != expected:
            wrong.append((text, columns[start:stop], expected))
    return wrong


@functools.lru_cache(maxsize=4)
def entry_ids(vocab: tuple[str, ...]) -> dict[str, int]:
    return {entry: row for row, entry in enumerate(vocab)}


def generated_text(draw: random.Random, pages: list[int]) -> str:
    """A text of one of several kinds, mostly short; any code points are of these pages of 256."""
    kind = draw.randrange(8)
    length = draw.choice([0, 1, 2, 5, 10, 20, 40])
    if kind == 0:
        return "".join(chr(draw.choice(pages) * 256 + draw.randrange(256)) for _ in range(length))
    if kind == 1:
        return "".join(draw.choices(ASCII, k=length))
    if kind == 2 and draw.random() < 0.1:
        # The reference takes time that grows with the square of a word: seldom, and at the limits.
        length = draw.choice([95, 99, 100, 101, 199, 200, 201, 204])
        return draw.choice(["a", "ab", "é", "Σ", "한", "\u0301", "="]) * length
    if kind == 3:
        return "".join(draw.choices(ODD, k=length))
    if kind == 4:
        return "".join(draw.choices(LETTERS, k=length))
    script = range(*draw.choice(SCRIPTS))
    another = chr(draw.choice(range(*draw.choice(SCRIPTS))))
    other = [" ", draw.choice(ODD), draw.choice(LETTERS), another]
    return "".join(
        draw.choice(other) if draw.random() < 0.3 else chr(draw.choice(script))
        for _ in range(length)
    )


@pytest.mark.parametrize(("lower_case", "max_word_chars"), SETTINGS)
def test_golden_texts_have_the_ids_of_google_research(vocab, lower_case, max_word_chars):
    golden = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").split("\n") if line]
    column = f"{'lower' if lower_case else 'cased'}_{max_word_chars}"
    texts = [row["text"] for row in golden]
    tokenizer = Tokenizer(vocab, lower_case, max_word_chars)
    assert [tokenizer.encode(text)[1:-1] for text in texts] == [row[column] for row in golden]
    ids = {entry: row for row, entry in enumerate(vocab)}
    reference = [reference_tokens(text, ids, lower_case, max_word_chars) for text in texts]
    assert [[token[0] for token in row] for row in reference] == [row[column] for row in golden]


@pytest.mark.slow
@pytest.mark.parametrize(("lower_case", "max_word_chars"), [SETTINGS[0], SETTINGS[-1]])
def test_generated_texts_have_the_ids_and_offsets_of_the_reference(
    wide, lower_case, max_word_chars
):
    tokenizer = wide(lower_case, max_word_chars)

    # A smaller seed is no smaller example.
    @settings(max_examples=12, deadline=None, database=None, phases=[Phase.generate])
    @given(seed=st.integers(0, 2**32))
    def check(seed):
        draw = random.Random(seed)
        # Not all 4352 pages: the tokenizer takes longer to learn one than to read ten texts.
        pages = draw.sample(range((sys.maxunicode + 1) // 256), 50)
        texts = [generated_text(draw, pages) for _ in range(1000)]
        assert differences(texts, tokenizer, lower_case, max_word_chars) == []

    check()


@pytest.mark.parametrize("lower_case", [True, False])
def test_small_texts_have_the_ids_and_offsets_of_the_reference(wide, lower_case):
    tokenizer = wide(lower_case, 12)

    @settings(max_examples=150, deadline=None)
    @given(texts=st.lists(st.text(st.sampled_from(ODD + LETTERS) | st.characters()), max_size=8))
    def check(texts):
        assert differences(texts, tokenizer, lower_case, 12) == []

    check()


@pytest.mark.slow
@pytest.mark.parametrize("lower_case", [True, False])
def test_every_code_point_is_read_as_the_reference_reads_it(wide, lower_case):
    # Of ideographs and Hangul syllables, all alike, one in 16.
    texts = [
        f"a{chr(code)}b"
        for code in range(sys.maxunicode + 1)
        if code % 16 == 0
        or (code not in range(0x3400, 0xD7A4) and code < 0x20000 and is_assigned(chr(code)))
    ]
    assert differences(texts, wide(lower_case, 200), lower_case, 200) == []


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data(), lower_case=st.booleans(), max_word_chars=st.integers(1, 6))
def test_any_vocabulary_gives_the_ids_of_the_reference(data, lower_case, max_word_chars):
    piece = st.text("abAé#-.Σσς \n", max_size=4)
    pieces = data.draw(st.lists(piece | piece.map("##".__add__), max_size=40))
    vocab = data.draw(st.permutations(SPECIALS + list("ab") + ["##a", "##b"] + pieces))
    texts = data.draw(st.lists(st.text("abABéÉ#-. Σ", max_size=12), max_size=20))
    tokenizer = Tokenizer(vocab, lower_case, max_word_chars)
    assert differences(texts, tokenizer, lower_case, max_word_chars) == []


def test_a_long_text_gives_what_its_words_give(vocab):
    words = ["unaffable", "ΟΔΟΣ", "日本語", "naïve", "it's"]
    text = " ".join(words * 20_000)
    tokenizer = Tokenizer(vocab)
    seen = tokenizer.encode_with_offsets(["a", text, "b"])
    few = tokenizer.encode_with_offsets([" ".join(words)])
    assert np.array_equal(seen.ids[1:-1], np.tile(few.ids, 20_000))
    steps = np.arange(20_000)[:, None] * (len(" ".join(words)) + 1)
    assert np.array_equal(seen.starts[1:-1], (steps + few.starts).ravel())
    assert seen.row_splits.tolist() == [0, 1, len(seen.ids) - 1, len(seen.ids)]


LONG_WORD = "x " + "a" * 300_000 + " y"  # longer than any chunk


@pytest.mark.parametrize(
    "texts", [[], ["", " \t", "\0\u200b"], ["[CLS] a [SEP]", "Cafe\u0301 한 ẞ日本", LONG_WORD]]
)
def test_chosen_texts_have_the_ids_and_offsets_of_the_reference(vocab, texts):
    """Special tokens are text there."""
    tokenizer = Tokenizer(vocab)
    assert differences(texts, tokenizer, True, 200) == []
    seen = tokenizer.encode_with_offsets(texts)
    columns = seen.ids, seen.starts, seen.stops, seen.row_splits
    assert [one.dtype for one in columns] == [np.int32, np.int32, np.int32, np.int64]


@pytest.mark.slow
def test_a_full_cache_changes_nothing(vocab):
    words = [f"{number:x}" for number in range(300_000)]
    ids = Tokenizer(vocab).encode_flat(words)[0]
    again = Tokenizer(vocab)
    parts = [again.encode_flat(words[at : at + 1000])[0] for at in range(0, 300_000, 1000)]
    assert np.array_equal(np.concatenate(parts), ids)


def test_a_vocabulary_file_is_read_as_the_reference_reads_it(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("[PAD]\r\n[UNK] \n[CLS]\n[SEP]\n\na\u2028b\n a\na\n".encode())
    tokenizer = Tokenizer(path)
    assert tokenizer.vocab == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "", "a\u2028b", "a", "a")
    assert tokenizer.encode("a b") == [2, 7, 1, 3]
    assert (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.unk_id) == (2, 3, 0, 1)


def test_the_special_tokens_of_mpnet_are_found_and_never_read_from_a_text():
    entries = ["<s>", "<pad>", "</s>", "[PAD]", "<", "s", ">", "/", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer = Tokenizer(entries, special_tokens="mpnet")
    assert (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.unk_id) == (0, 2, 1, 8)
    assert tokenizer.encode("<s> </s>") == [0, 4, 5, 6, 4, 7, 5, 6, 2]
    assert Tokenizer(entries).cls_id == 9
    with pytest.raises(ValueError, match=r"special_tokens must be .*, got 'roberta'"):
        Tokenizer(entries, special_tokens="roberta")


@pytest.mark.parametrize("lower_case", [True, False])
def test_odd_entries_are_as_in_the_reference(tmp_path, lower_case):
    """Of an entry that occurs twice the later id counts; blank ones, and NUL, match no word."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    odd = ["money", "", "", "##", "\0", "mon\0ey", "##\0", " ", "\t", "bank river", "\ufffd"]
    entries = [*special, *odd, "m", "##oney", "money", "##oney", "b", "##\0", "a"]
    path = tmp_path / "vocab.txt"
    path.write_text("".join(f"{entry}\n" for entry in entries), encoding="utf-8", newline="\n")
    texts = ["money m", "mon\0ey", "\0", "", " ", "b\0", "bank river", "\ufffd", "moneya", "\0a"]
    for vocabulary in (path, entries):
        tokenizer = Tokenizer(vocabulary, lower_case)
        assert differences(texts, tokenizer, lower_case, 200) == []
        assert len(tokenizer.vocab) == len(entries)
        assert tokenizer.encode("money")[1:-1] == [entries.index("money", 5)]


def test_a_vocabulary_that_is_none_is_named(tmp_path):
    for wrong, message in (
        (3, "vocab must be a list of texts, got a int"),
        (["[CLS]", 3], "vocab must be str, number 1 is int"),
        (tmp_path / "none", r"vocab .*none cannot be read.*; a model's is Tokenizer\.from"),
        (["[CLS]"], r"the vocabulary lacks \[SEP\], \[UNK\]"),
    ):
        with pytest.raises(InputError, match=message):
            Tokenizer(wrong)


def test_a_model_s_tokenizer_is_read_and_pickled(minilm):
    tokenizer = Tokenizer.from_pretrained(minilm.path)
    again = pickle.loads(pickle.dumps(tokenizer))
    for one in (tokenizer, again):
        assert one.encode("the river bank") == [101, 1996, 2314, 2924, 102]
    pieces = tokenizer.tokens(tokenizer.encode("embeddings"))[1:-1]
    assert pieces == ["em", "##bed", "##ding", "##s"]
    for wrong, message in (
        ([30522], "ids must be between 0 and 30521, got 30522 to 30522"),
        ([-1, 5], "ids must be between 0 and 30521, got -1 to 5"),
        ([0.5], "ids must be an integer, got 0.5"),
        (np.array([101.0]), r"ids must be an integer, got np\.float64\(101\.0\)"),
        (np.array([[101, 102]]), r"ids must be an integer, got array\(\[101"),
        ("101", "ids must be integers"),
    ):
        with pytest.raises(InputError, match=message):
            tokenizer.tokens(wrong)
