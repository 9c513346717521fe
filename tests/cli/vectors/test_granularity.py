"""Tokens, words, windows, pairs and prompts: records in, files out, through the door."""

import numpy as np
import pytest

import bert_embed
from tests.support.command import record, rows, vectors
from tests.support.models.folder import imported
from tests.support.models.sentence_transformers import (
    dense,
    write_chain,
    write_sentence_transformers,
)
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


def test_a_document_of_a_hundred_thousand_words(run, encoder):
    """It runs in windows, in batches as small as any, and every token of it is covered."""
    text = "bank of the river embeddings money " * 16_700
    output = run({"in.txt": f"{text}\nshort\n"}, long_text="window", overlap=0, layers=0)
    lengths = [len(encoder.tokenizer.encode(each)) for each in (text, "short")]
    assert rows(output)["num_tokens"] == lengths
    done = record(output)
    assert done["counts"]["embedded"] == 2
    assert done["padded_tokens"] <= 1024 * done["batches"]


def test_norms_are_measured(model_of, run):
    """Of a model whose file says truncate_dim, with and without what the caller says."""
    model = model_of(write_chain, "pooled_unit", 8).path
    texts = {"in.jsonl": [{"id": n, "text": "a bank " * n} for n in (1, 2, 3)]}
    for name, flags, least, most, report in (
        ("cut", {}, 0.2, 0.9, "Cut after they were normalized"),
        ("unit", {"normalize": True}, 1, 1, "every length is 1"),
        ("raw", {"normalize": False}, 1.5, 99, "Not normalized"),
    ):
        output = run(texts, name, model=model, part_docs=1, **flags)
        norms, written = record(output)["norms"], np.linalg.norm(vectors(output), axis=1)
        np.testing.assert_allclose(norms, [written.min(), written.max()], atol=1e-4)
        assert least <= norms[0] <= norms[1] <= most
        assert report in (output / "report.html").read_text("utf-8")
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
