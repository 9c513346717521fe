"""Tokens, words, windows, pairs, prompts and other models: records in, files out."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

import bert_embed
from bert_embed.encoder import Encoder
from tests.support.command import record, rows, vectors, write_json
from tests.support.models import static
from tests.support.models.architectures import write_architecture
from tests.support.models.folder import imported
from tests.support.models.sentence_transformers import (
    dense,
    write_chain,
    write_sentence_transformers,
)
from tests.support.models.tiny import small_vocabulary, write_tiny_huggingface
from tests.support.rounding import assert_near

LONG = " ".join(["the bank of the river", "and the money of the bank"] * 9)


@pytest.fixture(scope="module")
def encoder(tiny_bundle):
    return bert_embed.load(tiny_bundle)


def test_all_granularities_come_from_one_pass(run, encoder):
    own = ["of", "", "banks", "\u200b"]
    source = {"in.jsonl": [{"id": 1, "text": "the river, money bank"}, {"id": 2, "text": own}]}
    run(source, granularity="word,sentence,token", dry_run=True, long_text="window")
    plan = "pooling mean, 32 numbers a document, 32 numbers a token, 32 numbers a word"
    assert plan in run.out
    assert "texts in windows of 64" in run.out
    output = run(source, granularity="sentence,token,word")
    assert record(output)["computed_tokens"] == record(output)["tokens"]
    run(source, granularity="word,token,sentence")  # the order is no other run
    assert "nothing to do" in run.out
    texts = ["the river, money bank", "of  banks \u200b"]
    assert_near(vectors(output), encoder.encode(texts))
    tokens = list(bert_embed.read_tokens(output))
    for found, wanted in zip(tokens, encoder.units(texts), strict=True):
        assert list(found.texts) == wanted.texts
        assert_near(found.vectors, wanted.vectors)
    words = list(bert_embed.read_words(output))
    wanted = encoder.units([texts[0], own], "word")
    assert [list(each.texts) for each in words] == [each.texts for each in wanted]
    for found, one in zip(words, wanted, strict=True):
        assert found.starts.tolist() == one.starts.tolist()
        assert_near(found.vectors, one.vectors)
    assert np.isnan(words[1].vectors[[1, 3]]).all()


def test_long_texts_in_windows(run, encoder):
    texts = {"in.txt": f"short\n{LONG}\n"}
    flags = {"long_text": "window", "max_seq_length": 16, "overlap": 4}
    merged = run(texts, "merged", **flags)
    assert_near(vectors(merged), encoder.encode(["short", LONG], **flags))
    assert rows(merged)["truncated"] == [False, False]
    kept = rows(run(texts, "kept", **flags | {"long_text": "windows"}))
    assert kept["window"] == [0, *range(len(kept["id"]) - 1)]
    assert max(kept["num_tokens"]) == 16


def test_second_texts_from_a_column_and_a_prompt(run, encoder):
    answers = ["of the river", None, "of money"]
    lines = [{"id": n, "question": "the bank", "answer": each} for n, each in enumerate(answers)]
    output = run({"in.jsonl": lines}, text_column="question", text_b_column="answer")
    wanted = encoder.encode(["the bank"] * 2, ["of the river", "of money"])
    assert_near(vectors(output), np.insert(wanted, 1, encoder.encode("the bank"), axis=0))
    assert len(set(rows(output)["text_hash"])) == 3
    texts = {"in.txt": "the bank\nriver\n"}
    output = run(texts, "prompt", prompt="money: ")
    assert_near(vectors(output), encoder.encode(["money: the bank", "money: river"]))
    run.refused(texts, "(--prompt changed since)", "prompt")


def test_norms_are_measured(model_of, run):
    """Of a model whose file says truncate_dim, with and without what the caller says."""
    model = model_of(write_chain, "pooled_unit", 8).path
    texts = {"in.jsonl": [{"id": n, "text": "a bank " * n} for n in (1, 2, 3)]}
    for name, flags, least, most in (
        ("cut", {}, 0.2, 0.9),
        ("unit", {"normalize": True}, 1, 1),
        ("raw", {"normalize": False}, 1.5, 99),
    ):
        output = run(texts, name, model=model, part_docs=1, **flags)
        norms, written = record(output)["norms"], np.linalg.norm(vectors(output), axis=1)
        np.testing.assert_allclose(norms, [written.min(), written.max()], atol=1e-4)
        assert least <= norms[0] <= norms[1] <= most
    assert "norms" not in record(run(texts, model=model, granularity="token", normalize=True))


def test_dense_modules_do_not_bar_tokens(tmp_path, run):
    """They take vectors of texts: tokens may be of several layers, and wider than they give."""
    write_sentence_transformers(tmp_path / "source", modules=[dense(32, 16)])
    model = imported(tmp_path).path
    flags = {"granularity": "token", "layers": "-1,-2", "layer_combine": "concat", "dim": 50}
    (found,) = bert_embed.read_tokens(run({"in.txt": "the bank\n"}, model=model, **flags))
    asked = {"layers": [-1, -2], "layer_combine": "concat", "dim": 50}
    (wanted,) = bert_embed.load(model).units(["the bank"], **asked)
    assert_near(found.vectors, wanted.vectors)


TEXTS = ("The bank, of the river!", "北京大学", "</s> Straße \U0001f389", "two  spaces. Is it?")
SECOND = ("of the </s> river [SEP]", "two  spaces", "a", "the river")
PAIRS = list(zip(TEXTS, SECOND, strict=True))
PROMPT = "query: "
SOURCE = {"in.txt": "\n".join([*static.TEXTS, static.LONG])}


@pytest.mark.parametrize(
    ("kind", "flags"),
    [
        ("xlm-roberta", {"prompt": PROMPT}),
        ("xlm-roberta", {"text_b_column": "b"}),
        ("roberta", {"text_b_column": "b"}),
        ("word_piece", {"prompt": PROMPT}),
    ],
)
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
