"""Tokenizers of a tokenizer.json: Unigram over Metaspace, byte-level BPE, WordPiece."""

import base64
import json
import pickle
import struct

import numpy as np
import pytest
import tokenizers
from tokenizers import processors

from bert_embed.base.errors import InputError, SettingError
from bert_embed.encoder import Encoder
from bert_embed.text.json_tokenizer import JsonTokenizer
from bert_embed.transforms import EmbedDocuments
from tests.support.models.architectures import GOLDEN, LONG, SCRIPTS, write_architecture
from tests.support.models.folder import imported

TOKENIZERS = GOLDEN.parent / "tokenizers"
KINDS = {"unigram": "xlm-roberta", "byte_level": "roberta", "word_piece": "word_piece"}
# With "a" behind it, one word.
JOINED = {"unigram": "stand", "byte_level": "cl", "word_piece": "cl"}
TEXTS = (
    "The river, banks... don't!",
    "  two  spaces\tand a tab ",
    "北京大学 \U0001f389\U0001f389 Straße",
    "",
    " ",
    "12.5% of x_y",
)


@pytest.fixture(scope="module", params=KINDS)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(name):
    return JsonTokenizer((TOKENIZERS / f"{name}.json").read_text("utf-8"))


@pytest.fixture(scope="module")
def encoder(model_of, name):
    return Encoder(model_of(write_architecture, KINDS[name]), threads=1)


def library_of(name):
    return tokenizers.Tokenizer.from_file(str(TOKENIZERS / f"{name}.json"))


def test_white_space_at_the_end_of_a_text_is_in_no_word(encoder):
    texts = ["the bank\n", "the bank", "the bank \n "]
    assert [words.texts for words in encoder.units(texts, "word")] == [["the", "bank"]] * 3


def test_special_tokens_in_a_text_are_text(tokenizer):
    special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id}
    begin, end, padding = (tokenizer.vocab[number] for number in sorted(special))
    ids, _ = tokenizer.encode_flat([f"{begin} a {end}{padding}", end])
    assert not special & set(ids.tolist())
    assert len(tokenizer.encode(end)) > 3


def test_ids_are_those_of_the_library(tokenizer, name):
    library = library_of(name)
    texts = [*TEXTS, SCRIPTS, LONG, "a <user>'s question"]
    for text in texts:
        assert tokenizer.encode(text) == library.encode(text).ids
    alone = [library.encode(text, add_special_tokens=False).ids for text in texts]
    seen, again = tokenizer.encode_with_offsets(texts), pickle.loads(pickle.dumps(tokenizer))
    for ids, splits in (again.encode_flat(texts), (seen.ids, seen.row_splits)):
        assert ids.tolist() == [number for row in alone for number in row]
        assert np.diff(splits).tolist() == [len(row) for row in alone]
    assert tokenizer.encode("a\ud800b") == tokenizer.encode("a\ufffdb")  # lone surrogates


@pytest.mark.parametrize("entry", ["!", "Ġ", "h", "Ġthe", "er"])
def test_a_special_token_that_byte_pairs_are_made_of_leaves_the_others_alone(entry):
    values = json.loads((TOKENIZERS / "byte_level.json").read_text("utf-8"))
    usual = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    token = {"id": values["model"]["vocab"][entry], "content": entry, "special": True, **usual}
    text = json.dumps({**values, "added_tokens": [*values["added_tokens"], token]})
    library = tokenizers.Tokenizer.from_str(text)
    library.encode_special_tokens = True
    tokenizer = JsonTokenizer(text)
    for text in [*TEXTS, "hello! !!the! x!y", LONG]:
        assert tokenizer.encode(text) == library.encode(text).ids
    assert entry not in tokenizer.never_in_texts
    assert "</s>" in tokenizer.never_in_texts


def test_a_panic_of_the_library_is_told_in_a_sentence():
    values = json.loads((TOKENIZERS / "unigram.json").read_text("utf-8"))
    # A table that is cut: it has no rows for bytes from 240 on, with which emoji begin.
    table = base64.b64encode(struct.pack("<I", 960) + bytes(960) + b"a\0").decode()
    values["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": table}
    tokenizer = JsonTokenizer(json.dumps(values))
    assert len(tokenizer.encode("the bank"))
    for offsets in (True, False):
        with pytest.raises(InputError, match=r"tokenizer\.json cannot split a text: index out of"):
            tokenizer.tokenize_texts(["the bank", "\U0001f389"], offsets)


def test_entries_that_continue_a_word_are_those_without_a_space(tokenizer, name):
    texts = ["the riverside. Understandable"]
    found = tokenizer.encode_with_offsets(texts)
    assert found.continues.any()
    assert tokenizer.continues_word[found.ids[1:]].tolist() == found.continues[1:].tolist()


def test_a_pair_is_put_together_as_the_library_does(encoder, name):
    library, texts_b = library_of(name), ["of the river", "", " "]
    for text_b, pair in zip(texts_b, encoder.units(["the bank"] * 3, texts_b=texts_b), strict=True):
        assert pair.texts == encoder.tokenizer.tokens(library.encode("the bank", text_b).ids)


@pytest.mark.parametrize(
    "pair",
    [
        None,  # of a template for single texts alone, whose pairs have nothing around them
        "<s> $A </s> <s>:1 $B:1 </s>:1",  # Gemma's, and Llama's
        "<s> $A </s> $B",
        "<s> $B </s> $A </s>",
        "<s> $A </s> $B </s>:1",
        "<s> $A </s> </s> </s> $B </s>",
    ],
)
def test_a_template_of_pairs_decides_on_pairs_alone(tmp_path, name, pair):
    write_architecture(tmp_path / "source", KINDS[name])
    library = library_of(name)
    ends = ["[CLS]", "[SEP]"] if name == "word_piece" else ["<s>", "</s>"]
    begin, end = ends[pair is None], ends[1]  # one token may be both
    parts = {"single": f"{begin} $A {end}"}
    if pair is not None:
        parts["pair"] = pair.replace("<s>", begin).replace("</s>", end)
    special = [(token, library.token_to_id(token)) for token in {begin, end}]
    library.post_processor = processors.TemplateProcessing(**parts, special_tokens=special)
    library.save(str(tmp_path / "source" / "tokenizer.json"))
    slow = json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"})
    bundle = imported(tmp_path, files={"tokenizer_config.json": slow})
    encoder = Encoder(bundle, threads=1)
    assert encoder.tokenizer.encode("the bank") == library.encode("the bank").ids
    assert np.isfinite(encoder.encode(["the bank"])).all()
    for call in (encoder.encode, encoder.units):
        with pytest.raises(SettingError, match="texts_b is for pairs, which this model's tok"):
            call(["the bank"], texts_b=["of a river"])
    with pytest.raises(SettingError, match="text_b_column is for pairs"):
        EmbedDocuments(bundle.path, text_b_column="b")


def test_a_prompt_has_as_many_tokens_before_every_text(tokenizer, name):
    prompt = "query: "
    count = tokenizer.prompt_length(prompt)
    for text in ("river", "北京", "  two", "(x)", "\U0001f389"):
        found = tokenizer.encode_with_offsets([prompt + text])
        assert (found.stops <= len("query:")).sum() == count
        assert found.ids[:count].tolist() == tokenizer.encode_flat(["query:"])[0].tolist()
    with pytest.raises(ValueError, match="would run into the first word of a text"):
        tokenizer.prompt_length(f"query {JOINED[name]}")


@pytest.mark.parametrize("pooling", ["mean", "max", "lasttoken"])
def test_a_prompt_that_does_not_count_is_left_out_with_its_space(encoder, name, pooling):
    library = library_of(name)
    pool = {"mean": lambda x: x.mean(0), "max": lambda x: x.max(0), "lasttoken": lambda x: x[-1]}
    for prompt in ("", "query: ", "one  "):
        skipped = len(library.encode(prompt).ids) - 1 if prompt else 0  # as sentence-transformers
        for text in ("the bank", "", "(x)"):
            (tokens,) = encoder.units([prompt + text])
            settings = {"pooling": pooling, "pool_prompt": False, "normalize": False}
            found = encoder.encode(text, prompt=prompt, **settings)
            np.testing.assert_allclose(found, pool[pooling](tokens.vectors[skipped:]), atol=1e-5)


@pytest.mark.parametrize("prompt", ["", "query: ", "one  ", " "])
def test_a_vocabulary_without_the_words_beginning_takes_prompts(tmp_path, prompt):
    write_architecture(tmp_path / "source", "xlm-roberta")
    values = json.loads((tmp_path / "source" / "tokenizer.json").read_text("utf-8"))
    values["pre_tokenizer"] = values["pre_tokenizer"]["pretokenizers"][1]  # a space ends a prompt
    for number, (entry, score) in enumerate(values["model"]["vocab"]):
        if entry.startswith("▁a"):
            values["model"]["vocab"][number] = [f"\u2603{number}", score]
    encoder = Encoder(imported(tmp_path, files={"tokenizer.json": values}), threads=1)
    texts = ["the bank", "a", "", "another (a)"]
    found = encoder.encode(texts, prompt=prompt)
    np.testing.assert_allclose(found, encoder.encode([prompt + t for t in texts]), atol=1e-5)
    long = encoder.encode("the bank of a river " * 30, prompt=prompt, long_text="window")
    assert np.isfinite(long).all()


def test_words_and_windows_are_those_of_the_text(encoder):
    text = "The bank, of the river! It is 12.5 m wide. Is it?"
    wide = "  two\tx_y don't... 北京 \U0001f389\U0001f389 Straße"
    first, second = encoder.units([text, wide], "word")
    assert first.texts == [
        *("The", "bank", ",", "of", "the", "river", "!", "It", "is", "12", ".", "5", "m"),
        *("wide", ".", "Is", "it", "?"),
    ]
    letters = ["two", "x", "y", "don", "t", "北", "京", "Straße"]  # a token may be several marks
    assert [word for word in second.texts if word.isalnum()] == letters
    window = encoder.encode([text * 9], max_seq_length=40, long_text="window", overlap=8)
    assert np.linalg.norm(window[0]) == pytest.approx(1, abs=1e-5)


def test_a_tokenizer_that_puts_nothing_around_texts_has_no_special_tokens():
    values = json.loads((TOKENIZERS / "word_piece.json").read_text("utf-8"))
    tokenizer = JsonTokenizer(json.dumps(values | {"post_processor": None}))
    assert tokenizer.special_tokens == 0
    assert tokenizer.encode("a") == tokenizer.encode_flat(["a"])[0].tolist()
