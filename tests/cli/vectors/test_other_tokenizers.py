"""Models with Unigram, byte-level BPE or another WordPiece: whole runs, from folder to vectors."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_embed
from tests.support.command import vectors, write_json
from tests.support.models.architectures import write_architecture

TEXTS = ("The bank, of the river!", "北京大学", "</s> Straße \U0001f389", "two  spaces. Is it?")
SECOND = ("of the </s> river [SEP]", "two  spaces", "a", "the river")
PAIRS = list(zip(TEXTS, SECOND, strict=True))
PROMPT = "query: "


@pytest.mark.parametrize("flags", [{"prompt": PROMPT}, {"text_b_column": "b"}], ids=["one", "pair"])
@pytest.mark.parametrize("kind", ["xlm-roberta", "roberta", "word_piece"])
def test_kept_examples_give_the_vectors_of_the_texts(tmp_path, run, command, model_of, kind, flags):
    """They know where a prompt ends."""
    model, examples = model_of(write_architecture, kind).path, tmp_path / "examples"
    rows = [{"id": str(row), "text": a, "b": b} for row, (a, b) in enumerate(PAIRS)]
    source = write_json(tmp_path / "in.jsonl", *rows)
    command("tokenize", input=source, output=examples, model=model, **flags)
    granularity = {"model": model, "granularity": "sentence,token"}
    output = run(examples, input_format="tfrecord", **granularity)
    direct = run(source, "direct", **granularity, **flags)
    for name in ("embeddings", "tokens"):
        assert pq.read_table(output / name) == pq.read_table(direct / name)
    encoder, second = bert_embed.load(model), SECOND if "text_b_column" in flags else None
    wanted = encoder.encode(TEXTS, second, prompt=flags.get("prompt"))
    np.testing.assert_allclose(vectors(output), wanted, atol=1e-5)
    if "prompt" in flags:
        settings = json.loads((examples / "examples.json").read_text())
        starts = encoder.units(TEXTS[0], prompt=PROMPT).starts
        assert settings["prompt_tokens"] == int((starts[1:] >= 0).argmax())
