"""The tokenizer gives what Hugging Face's gives: lists, arrays and tensors, cut and filled."""

import itertools
import json
from pathlib import Path

import pytest
import torch
from transformers import BertTokenizerFast

import bert_embed

GOLDEN = Path(__file__).parents[1] / "data" / "tokenization.jsonl"
# Special tokens in a text, a sigma at the end of a word, and code points without a character.
DIFFERENT = ("[SEP]", "Σίσυφος", "\ufdd0")


@pytest.fixture(scope="module")
def ours():
    return bert_embed.Tokenizer.from_pretrained("minilm")


@pytest.fixture(scope="module")
def theirs(ours):
    vocabulary = Path(bert_embed.load("minilm").bundle.path, "vocab.txt")
    tokenizer = BertTokenizerFast(vocab=str(vocabulary))
    tokenizer.model_max_length = ours.model_max_length
    return tokenizer


@pytest.fixture(scope="module")
def texts():
    lines = [line for line in GOLDEN.read_text(encoding="utf-8").split("\n") if line]
    found = [json.loads(line)["text"] for line in lines]
    return [text for text in found if not any(part in text for part in DIFFERENT)]


@pytest.mark.parametrize("padding", [True, False, "max_length", "longest"])
def test_calls_give_the_same(ours, theirs, texts, padding):
    compared = 0
    for truncation, length, tensors, pair in itertools.product(
        (True, False, "longest_first"), (None, 5, 9, 16), (None, "np", "pt"), (False, True)
    ):
        settings = {"padding": padding, "truncation": truncation, "max_length": length}
        if length and not truncation and padding != "max_length":
            continue  # an error here, a warning there
        second = [*texts[5:], *texts[:5]] if pair else None
        for call in ((texts[1], texts[2] if pair else None), (texts, second)):
            try:
                wanted = theirs(*call, **settings, return_tensors=tensors)
            except ValueError:
                continue
            if tensors == "np" and wanted["input_ids"].dtype == object:
                continue
            given = ours(*call, **settings, return_tensors=tensors)
            assert given.keys() == wanted.keys()
            for name, rows in wanted.items():
                assert type(given[name]) is type(rows)
                if tensors is None:
                    assert given[name] == rows
                else:
                    assert given[name].dtype == rows.dtype
                    assert given[name].tolist() == rows.tolist()
            compared += 1
    assert compared >= 24


def test_ids_become_the_same_words(ours, theirs, texts):
    draw = torch.Generator().manual_seed(0)
    drawn = torch.randint(len(ours), (500, 20), generator=draw).tolist()
    assert ours.batch_decode(drawn) == theirs.batch_decode(drawn)
    for text in texts:
        ids = theirs(text)["input_ids"]
        for skip in (False, True):
            words = theirs.decode(ids, skip_special_tokens=skip)
            assert ours.decode(ids, skip_special_tokens=skip) == words
            names = theirs.convert_ids_to_tokens(ids, skip_special_tokens=skip)
            assert ours.convert_ids_to_tokens(ids, skip_special_tokens=skip) == names
        assert ours.tokenize(text) == theirs.tokenize(text)
    names = ["[CLS]", "no entry", "bank"]
    assert ours.convert_tokens_to_ids(names) == theirs.convert_tokens_to_ids(names)
    assert ours.get_vocab() == theirs.get_vocab()
