"""A tokenizer is called as Hugging Face's, and gives what BertTokenizerFast 5.23 gave for this.

`make test-ecosystem` compares with that package itself. `lower_100` of the golden texts are ids of
google-research/bert with the longest word of Hugging Face's models.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import bert_embed
from bert_embed.bundle.bundle import Bundle
from bert_embed.storage.errors import SettingError

MASK = [1, 1, 1, 0]
GOLDEN = Path(__file__).parents[2] / "data" / "tokenization.jsonl"


@pytest.fixture(scope="module")
def tokenizer(minilm: Bundle) -> bert_embed.Tokenizer:
    return bert_embed.Tokenizer.from_pretrained(minilm.path)


def test_golden_texts_have_the_ids_of_the_reference_in_python_s_lists(tokenizer):
    golden = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").split("\n") if line]
    found = tokenizer([row["text"] for row in golden])
    rows = [[101, *row["lower_100"], 102] for row in golden]
    assert found == {
        "input_ids": rows,
        "token_type_ids": [[0] * len(row) for row in rows],
        "attention_mask": [[1] * len(row) for row in rows],
    }
    assert found.input_ids == tokenizer.encode([row["text"] for row in golden]) == rows


@pytest.mark.parametrize(
    ("texts", "settings", "ids", "types", "mask"),
    [
        ("a", {}, [101, 1037, 102], [0, 0, 0], [1, 1, 1]),
        ("a", {"add_special_tokens": False}, [1037], [0], [1]),
        (("a", "b c"), {}, [101, 1037, 102, 1038, 1039, 102], [0, 0, 0, 1, 1, 1], [1] * 6),
        (
            (["a b c", "d"],),
            {"padding": True, "truncation": True, "max_length": 4},
            [[101, 1037, 1038, 102], [101, 1040, 102, 0]],
            [[0] * 4] * 2,
            [[1] * 4, MASK],
        ),
        ("a", {"padding": "max_length", "max_length": 4}, [101, 1037, 102, 0], [0] * 4, MASK),
        ("a b", {"truncation": True, "max_length": 2}, [101, 102], [0, 0], [1, 1]),
    ],
    ids=["text", "no special tokens", "pair", "longest", "max_length", "nothing left"],
)  # fmt: skip
def test_calls(tokenizer, texts, settings, ids, types, mask):
    found = tokenizer(*([texts] if isinstance(texts, str) else texts), **settings)
    assert found == {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}


@pytest.mark.parametrize(
    ("first", "second", "truncation", "max_length", "ids"),
    [
        ("a b c d", "c d e f", True, 8, [101, 1037, 1038, 102, 1039, 1040, 1041, 102]),
        ("a b c d e", "c d e f", True, 8, [101, 1037, 1038, 1039, 102, 1039, 1040, 102]),
        ("a b c d e", "c d e f", True, 4, [101, 1037, 102, 102]),
        ("a", "b c d e f g h i", True, 8, [101, 1037, 102, 1038, 1039, 1040, 1041, 102]),
        ("a b c", "d", "only_first", 5, [101, 1037, 102, 1040, 102]),
        ("a", "b c d", "only_second", 5, [101, 1037, 102, 1038, 102]),
    ],
)
def test_pairs_are_cut(tokenizer, first, second, truncation, max_length, ids):
    found = tokenizer.encode(first, second, truncation=truncation, max_length=max_length)
    assert found == ids


def test_rows_of_one_length_are_arrays(tokenizer):
    found = tokenizer(["a", "b c"], padding=True, return_tensors="np")
    assert {name: (array.dtype, array.shape) for name, array in found.items()} == dict.fromkeys(
        ("input_ids", "token_type_ids", "attention_mask"), (np.dtype(np.int64), (2, 4))
    )
    assert tokenizer("a", return_tensors="np")["input_ids"].tolist() == [[101, 1037, 102]]
    assert tokenizer([], return_tensors="np").attention_mask.shape == (0, 0)
    assert tokenizer([]) == {"input_ids": [], "token_type_ids": [], "attention_mask": []}


@pytest.mark.slow
def test_rows_are_tensors_of_tensorflow(tokenizer):
    found = tokenizer(["a", "b c"], padding=True, return_tensors="tf")
    assert found["input_ids"].dtype.name == "int32"
    assert found["input_ids"].numpy().tolist() == [[101, 1037, 102, 0], [101, 1038, 1039, 102]]


def test_the_length_of_the_model_is_the_default(tokenizer, minilm, vocab_of):
    text = "bank " * 600
    assert len(tokenizer.encode(text, truncation=True)) == minilm.max_seq_length
    assert len(tokenizer.encode(text)) == 602
    encoder = bert_embed.load("minilm", max_seq_length=7)
    assert len(encoder.tokenizer.encode(text, truncation=True)) == 7
    with pytest.raises(SettingError, match="max_length is missing: this tokenizer has no model_ma"):
        bert_embed.Tokenizer(vocab_of)(text, truncation=True)


@pytest.fixture(scope="module")
def vocab_of(minilm) -> Path:
    return Path(minilm.path, "vocab.txt")


def test_pairs_of_mpnet_have_two_separators_and_no_types():
    entries = ["<s>", "<pad>", "</s>", "[UNK]", "a", "b"]
    tokenizer = bert_embed.Tokenizer(entries, special_tokens="mpnet", model_max_length=8)
    assert tokenizer("a", "b", padding="max_length") == {
        "input_ids": [0, 4, 2, 2, 5, 2, 1, 1],
        "attention_mask": [1, 1, 1, 1, 1, 1, 0, 0],
    }


def test_tokens_and_ids(tokenizer):
    assert tokenizer.tokenize("Playing with embeddings") == [
        "playing", "with", "em", "##bed", "##ding", "##s",
    ]  # fmt: skip
    assert tokenizer.tokenize("a", "b", add_special_tokens=True) == [
        "[CLS]", "a", "[SEP]", "b", "[SEP]",
    ]  # fmt: skip
    assert tokenizer.convert_ids_to_tokens(5000) == "knight"
    assert tokenizer.convert_ids_to_tokens([101, 5000, 0], skip_special_tokens=True) == ["knight"]
    assert tokenizer.convert_ids_to_tokens(101, skip_special_tokens=True) == "[CLS]"
    assert tokenizer.convert_tokens_to_ids("no entry") == 100
    assert tokenizer.convert_tokens_to_ids(["[CLS]", "knight"]) == [101, 5000]
    assert tokenizer.vocab_size == len(tokenizer) == len(tokenizer.get_vocab()) == 30522
    names = ("pad", "unk", "cls", "sep", "mask")
    assert [getattr(tokenizer, f"{name}_token_id") for name in names] == [0, 100, 101, 102, 103]


def test_ids_become_words_again(tokenizer):
    ids = tokenizer.encode("Playing, with  embeddings!")
    assert tokenizer.decode(ids) == "[CLS] playing, with embeddings! [SEP]"
    skipped = tokenizer.decode([*ids, 0, 100], skip_special_tokens=True)
    assert skipped == "playing, with embeddings!"
    assert tokenizer.decode(tokenizer.encode_flat(["isn't it"])[0]) == "isn ' t it"
    assert tokenizer.batch_decode([[101, 2003], [5], []]) == ["[CLS] is", "[unused4]", ""]
    for wrong, message in (
        ([30522], "ids must be between 0 and 30521, got 30522 to 30522"),
        ([-1, 5], "ids must be between 0 and 30521, got -1 to 5"),
        ([0.5], "ids must be an integer, got 0.5"),
        ("101", "ids must be integers"),
    ):
        with pytest.raises(SettingError, match=message):
            tokenizer.decode(wrong)


@pytest.mark.parametrize(
    ("texts", "settings", "message"),
    [
        (["a", "b c"], {"return_tensors": "np"}, "return_tensors requires rows of one length: giv"),
        (["a"], {"return_tensors": "jax"}, "return_tensors must be one of np, pt, tf, got 'jax'"),
        (["a"], {"max_length": 5}, "max_length requires truncation=True or padding='max_length'"),
        (["a"], {"padding": "always"}, "padding must be one of longest, max_length, do_not_pad"),
        (["a"], {"truncation": 5}, "truncation must be one of longest_first, only_first"),
        (["a"], {"truncation": True, "max_length": 1}, "max_length must be at least 2, got 1"),
        (["a"], {"text_pair": "b"}, "text_pair must be a list of texts, as text is"),
        (["a"], {"text_pair": ["b", "c"]}, "text_pair must be 1 text, got 2"),
        ("a", {"text_pair": ["b"]}, r"text_pair must be a str, got \['b'\]"),
        ([("a", "b")], {}, "text must be str, number 0 is tuple; pairs are two lists of texts"),
        (3, {}, "text must be a list of texts, got a int"),
        ("a", {"add_special_tokens": 1}, "add_special_tokens must be True or False, got 1"),
        ("a", {"return_offsets_mapping": True}, "mapping is not offered: call encode_with_offsets"),
        ("a", {"paddding": True}, r"paddding is not a setting; did you mean padding\?"),
        (
            "a",
            {"text_pair": "b c d", "truncation": "only_first", "max_length": 5},
            "max_length is too short for truncation='only_first', got 5",
        ),
    ],
)
def test_what_is_wrong_is_named(tokenizer, texts, settings, message):
    with pytest.raises(SettingError, match=message):
        tokenizer(texts, **settings)
