"""Runs of other models: static ones, those with other tokenizers, numbers of many sizes in int8."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

import bert_embed
from bert_embed.encoder import Encoder
from tests.support.command import record, vectors, write_json
from tests.support.models import static
from tests.support.models.architectures import write_architecture
from tests.support.models.folder import imported
from tests.support.models.tiny import small_vocabulary, write_tiny_huggingface

TEXTS = ("The bank, of the river!", "北京大学", "</s> Straße \U0001f389", "two  spaces. Is it?")
SECOND = ("of the </s> river [SEP]", "two  spaces", "a", "the river")
PAIRS = list(zip(TEXTS, SECOND, strict=True))
PROMPT = "query: "
SOURCE = {"in.txt": "\n".join([*static.TEXTS, static.LONG])}


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


def test_a_run_gives_the_librarys_vectors_of_texts_of_any_length(run, model_of, command):
    model = model_of(static.write_static, "plain").path
    output = run(SOURCE, model=model, granularity="sentence,token")
    assert "texts of any length" in run.err
    table = pq.read_table(output / "embeddings")
    found = np.array(table["embedding"].to_pylist(), np.float32)
    wanted = np.load(static.GOLDEN)["plain"][[bool(text) for text in (*static.TEXTS, static.LONG)]]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    tokens = pq.read_table(output / "tokens").to_pylist()[0]
    assert [token["token"] for token in tokens["tokens"]] == ["the", "bank", "of", "the", "river"]
    assert table["num_tokens"][0].as_py() == 5
    said = command("search", output, "\u200b").err
    assert said.startswith("note: 1 of 1 query without a known token: ")
    assert command("search", output, "bank").err == ""


def test_vectors_of_zeros_are_told_of(tmp_path, run):
    """As of a text of words that the table of a static model has no numbers for."""
    static.write_static(tmp_path / "source", "plain")
    weights = tmp_path / "source" / "0_StaticEmbedding" / "model.safetensors"
    table = load_file(weights)["embedding.weight"].copy()
    table[static.ENTRIES.index("money")] = 0
    save_file({"embedding.weight": table}, weights)
    output = run({"in.txt": "the bank\nmoney\nmoney money\n"}, model=tmp_path / "source")
    assert "2 vectors are all zeros: their cosine with any other is 0 here" in run.out
    assert record(output)["zero_vectors"] == 2
    assert "2 of zeros" in (output / "report.html").read_text("utf-8")


def test_a_word_of_small_numbers_is_as_exact_as_one_of_large_numbers(tmp_path):
    random = np.random.default_rng(5)
    count = len(small_vocabulary())
    words = random.normal(size=(count, 32)) * 10.0 ** -(np.arange(count) % 4)[:, None]
    changes = {
        "embeddings.word_embeddings.weight": words.astype(np.float32),
        "embeddings.position_embeddings.weight": np.zeros((64, 32), np.float32),
        "embeddings.token_type_embeddings.weight": np.zeros((2, 32), np.float32),
    }
    write_tiny_huggingface(tmp_path / "source", changes=changes)
    bundle = imported(tmp_path)
    text = " ".join(small_vocabulary()[60:110])
    exact, int8 = (
        Encoder(bundle, precision=precision, threads=1).units([text], layers=0)[0].vectors
        for precision in ("float32", "int8")
    )
    errors = np.linalg.norm(exact - int8, axis=1) / np.linalg.norm(exact, axis=1)
    assert errors.max() < 0.02
