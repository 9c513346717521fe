"""Models with Unigram, byte-level BPE or another WordPiece: whole runs, from folder to vectors."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_embed
from tests.support.command import embed, record, vectors, write_json
from tests.support.models.architectures import write_architecture

TEXTS = ("The bank, of the river!", "北京大学", "</s> Straße \U0001f389", "two  spaces. Is it?")
SECOND = ("of the </s> river [SEP]", "two  spaces", "a", "the river")
PROMPT = "query: "


@pytest.fixture(scope="module", params=["xlm-roberta", "roberta", "word_piece"])
def folder(request, tmp_path_factory):
    """A model, an input, and its output in sentences, tokens and words, with a prompt."""
    folder = tmp_path_factory.mktemp(request.param)
    write_architecture(folder / "model", request.param)
    pairs = enumerate(zip(TEXTS, SECOND, strict=True))
    source = write_json(
        folder / "in.jsonl", *({"id": str(row), "text": a, "b": b} for row, (a, b) in pairs)
    )
    flags = {"granularity": "sentence,token,word", "prompt": PROMPT}
    assert embed(folder / "out", str(folder / "model"), source, **flags) == 0
    return folder


@pytest.fixture
def model(folder):
    return str(folder / "model")


@pytest.fixture
def encoder(model):
    return bert_embed.load(model)


def test_vectors_and_words_are_those_of_the_texts(folder, encoder):
    wanted = encoder.encode(TEXTS, prompt=PROMPT)
    np.testing.assert_allclose(vectors(folder / "out"), wanted, atol=1e-5)
    found = pq.read_table(folder / "out" / "words").to_pylist()[0]["words"]
    assert [word["word"] for word in found] == ["The", "bank", ",", "of", "the", "river", "!"]


@pytest.mark.parametrize("flags", [{"prompt": PROMPT}, {"text_b_column": "b"}], ids=["one", "pair"])
def test_kept_examples_give_the_vectors_of_the_texts(tmp_path, run, command, folder, model, flags):
    """They know where a prompt ends."""
    source, examples = folder / "in.jsonl", tmp_path / "examples"
    command("tokenize", input=source, output=examples, model=model, **flags)
    granularity = {"model": model, "granularity": "sentence,token"}
    output = run(examples, input_format="tfrecord", **granularity)
    direct = run(source, "direct", **granularity, **flags)
    for kind in ("embeddings", "tokens"):
        assert pq.read_table(output / kind) == pq.read_table(direct / kind)
    assert record(output)["counts"]["embedded"] == len(TEXTS)
    if "prompt" in flags:
        settings = json.loads((examples / "examples.json").read_text())
        starts = bert_embed.load(model).units(TEXTS[0], prompt=PROMPT).starts
        assert settings["prompt_tokens"] == int((starts[1:] >= 0).argmax())
