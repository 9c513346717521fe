"""Tokens, words, windows, pairs and prompts: records in, files out, through the door."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_embed
from tests.support.command import embed, record, rejected, rows, vectors, write_json
from tests.support.models.sentence_transformers import (
    dense,
    write_chain,
    write_sentence_transformers,
)
from tests.support.models.tiny import bundle_of
from tests.support.rounding import UNIT_ROUNDOFF, assert_near, relative_error

LONG = " ".join(["the bank of the river", "and the money of the bank"] * 9)


@pytest.fixture(scope="module")
def encoder(tiny_bundle):
    return bert_embed.load(tiny_bundle)


def test_tokens_as_extract_features_writes_them(tmp_path, encoder):
    """A bar in plain text is part of it."""
    lines = ["the bank", "", "  a ||| b ||| money  ", "river of"]
    (tmp_path / "in.txt").write_text("\n".join(lines))
    flags = {"granularity": "token", "layers": "-1,-2", "layer_combine": "stack"}
    flags |= {"output_format": "jsonl"}
    assert embed(tmp_path / "out", encoder.bundle.path, tmp_path / "in.txt", **flags) == 0
    (path,) = tmp_path.glob("out/tokens/part-*.jsonl")
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [list(each) for each in found] == [["features", "id"]] * 3
    assert [each["id"] for each in found] == [f"{tmp_path}/in.txt:{at}" for at in (0, 10, 32)]
    wanted = encoder.units(
        ["the bank", "  a ||| b ||| money  ", "river of"],
        layers=[-1, -2],
        layer_combine="concat",
    )
    for line, tokens in zip(found, wanted, strict=True):
        assert [each["token"] for each in line["features"]] == tokens.texts
        for feature, vector in zip(line["features"], tokens.vectors, strict=True):
            assert [each["index"] for each in feature["layers"]] == [-1, -2]
            values = [each["values"] for each in feature["layers"]]
            within = 5e-7 + np.linalg.norm(vector) * 2 * relative_error()  # six decimals
            np.testing.assert_allclose(np.concatenate(values), vector, rtol=0, atol=within)
            assert all(round(value, 6) == value for value in values[0])


def test_token_lines_of_records_with_ids_carry_them(tmp_path, tiny_bundle):
    source = write_json(tmp_path / "in.jsonl", {"id": "x", "text": "bank"})
    flags = {"granularity": "token", "output_format": "jsonl"}
    assert embed(tmp_path / "out", tiny_bundle, source, **flags) == 0
    (line,) = map(json.loads, next(tmp_path.glob("out/tokens/part-*")).read_text().splitlines())
    assert line["id"] == "x"


def test_all_granularities_come_from_one_pass(tmp_path, encoder):
    source = write_json(
        tmp_path / "in.jsonl",
        {"id": 1, "text": "the river, money bank"},
        {"id": 2, "text": ["of", "", "banks", "\u200b"]},
    )
    flags = {"granularity": "sentence,token,word"}
    assert embed(tmp_path / "out", encoder.bundle.path, source, **flags) == 0
    assert record(tmp_path / "out")["computed_tokens"] == record(tmp_path / "out")["tokens"]
    texts = ["the river, money bank", "of  banks \u200b"]
    assert_near(vectors(tmp_path / "out"), encoder.encode(texts))
    tokens = list(bert_embed.read_tokens(tmp_path / "out"))
    for found, wanted in zip(tokens, encoder.units(texts), strict=True):
        assert list(found.texts) == wanted.texts
        assert_near(found.vectors, wanted.vectors)
    words = list(bert_embed.read_words(tmp_path / "out"))
    wanted = encoder.units([texts[0], ["of", "", "banks", "\u200b"]], "word")
    assert [list(each.texts) for each in words] == [each.texts for each in wanted]
    for found, one in zip(words, wanted, strict=True):
        assert found.starts.tolist() == one.starts.tolist()
        assert_near(found.vectors, one.vectors)
    assert np.isnan(words[1].vectors[[1, 3]]).all()


def test_words_say_what_truncation_cut(tmp_path, tiny_bundle):
    source = write_json(
        tmp_path / "in.jsonl",
        {"id": "given", "text": ["the", "of", "banks", "river"]},
        {"id": "own", "text": "the of banks river"},
    )
    flags = {"granularity": "word", "max_seq_length": 5}
    assert embed(tmp_path / "out", tiny_bundle, source, **flags) == 0
    given, own = pq.read_table(next(tmp_path.glob("out/words/part-*")))["words"].to_pylist()
    assert [word["truncated"] for word in given] == [False, False, True, True]
    assert [word["embedding"] is None for word in given] == [False, False, False, True]
    assert [word["word"] for word in own] == ["the", "of", "banks"]
    assert [word["truncated"] for word in own] == [False, False, True]


def test_long_texts_in_windows(tmp_path, encoder):
    (tmp_path / "in.txt").write_text(f"short\n{LONG}\n")
    flags = {"long_text": "window", "max_seq_length": 16, "overlap": 4}
    assert embed(tmp_path / "merged", encoder.bundle.path, tmp_path / "in.txt", **flags) == 0
    wanted = encoder.encode(["short", LONG], max_seq_length=16, long_text="window", overlap=4)
    assert_near(vectors(tmp_path / "merged"), wanted)
    assert rows(tmp_path / "merged")["truncated"] == [False, False]
    flags["long_text"] = "windows"
    assert embed(tmp_path / "kept", encoder.bundle.path, tmp_path / "in.txt", **flags) == 0
    kept = rows(tmp_path / "kept")
    assert kept["window"] == [0, *range(len(kept["id"]) - 1)]
    assert len(set(kept["id"])) == 2
    texts = [LONG[start:stop] for start, stop in zip(kept["start"], kept["stop"], strict=True)]
    assert texts[1].startswith("the bank of")
    assert max(kept["num_tokens"]) == 16
    found = vectors(tmp_path / "kept")
    assert_near(found[1:], encoder.encode(texts[1:]))
    ids, read = bert_embed.read(tmp_path / "kept")
    assert ids == kept["id"]
    np.testing.assert_array_equal(read, found)


def test_long_texts_refused(tmp_path, tiny_bundle):
    (tmp_path / "in.txt").write_text(f"short\n{LONG}\n")
    flags = {"long_text": "reject", "max_seq_length": 16}
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", **flags) == 0
    assert len(rows(tmp_path / "out")["id"]) == 1
    assert [(each["stage"], each["reason"]) for each in rejected(tmp_path / "out")] == [
        ("tokenize", "text too long")
    ]


def test_second_texts_from_a_column(tmp_path, encoder):
    source = write_json(
        tmp_path / "in.jsonl",
        {"id": 1, "question": "the bank", "answer": "of the river"},
        {"id": 2, "question": "the bank", "answer": None},
        {"id": 3, "question": "the bank", "answer": "of money"},
    )
    flags = {"text_column": "question", "text_b_column": "answer"}
    assert embed(tmp_path / "out", encoder.bundle.path, source, **flags) == 0
    wanted = encoder.encode(["the bank"] * 2, ["of the river", "of money"])
    wanted = np.insert(wanted, 1, encoder.encode("the bank"), axis=0)
    assert_near(vectors(tmp_path / "out"), wanted)
    assert len(set(rows(tmp_path / "out")["text_hash"])) == 3


def test_a_prompt_is_part_of_the_run(tmp_path, encoder, capsys):
    (tmp_path / "in.txt").write_text("the bank\nriver\n")
    model = encoder.bundle.path
    assert embed(tmp_path / "out", model, tmp_path / "in.txt", prompt="money: ") == 0
    wanted = encoder.encode(["money: the bank", "money: river"])
    assert_near(vectors(tmp_path / "out"), wanted)
    assert embed(tmp_path / "out", model, tmp_path / "in.txt") == 2
    assert "(--prompt changed since)" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "ubinary"])
def test_every_output_type_reads_back(tmp_path, encoder, dtype):
    (tmp_path / "in.txt").write_text("the bank\nriver of money\n")
    exact = encoder.encode(["the bank", "river of money"])
    # A number is stored with one rounding; int8 has 254 steps from the least to the largest.
    largest = np.abs(exact).max()
    within = {name: largest * unit for name, unit in UNIT_ROUNDOFF.items()}
    within |= {"int8": largest / 254, "ubinary": 0}
    for kind in ("parquet", "jsonl"):
        flags = {"output_dtype": dtype, "output_format": kind}
        output = tmp_path / kind
        assert embed(output, encoder.bundle.path, tmp_path / "in.txt", **flags) == 0
        _, found = bert_embed.read(output)
        wanted = np.where(exact > 0, 1, -1) if dtype == "ubinary" else exact
        allowed = within[dtype] + largest * 2 * relative_error()
        np.testing.assert_allclose(found, wanted, rtol=0, atol=allowed)


def test_a_document_of_a_hundred_thousand_words(tmp_path, encoder):
    """It runs in windows, in batches as small as any, and every token of it is covered."""
    words = ["bank", "river", "money", "embeddings", "of", "the"]
    text = " ".join(np.random.default_rng(5).choice(words, 100_000).tolist())
    (tmp_path / "in.txt").write_text(f"{text}\nshort\n")
    model = encoder.bundle.path
    flags = {"long_text": "window", "overlap": 0, "layers": 0}
    assert embed(tmp_path / "out", model, tmp_path / "in.txt", **flags) == 0
    tokens = len(encoder.tokenizer.encode(text)) - 2
    short = len(encoder.tokenizer.encode("short")) - 2
    assert rows(tmp_path / "out")["num_tokens"] == [tokens + 2, short + 2]
    done = record(tmp_path / "out")
    assert done["counts"]["embedded"] == 2
    assert done["padded_tokens"] <= 1024 * done["batches"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"granularity": "letter"}, "--granularity must be one of sentence, token, word, got"),
        (
            {"granularity": "token,token"},
            "--granularity must name at least one kind, and each once",
        ),
        ({"granularity": "token", "pooling": "cls"}, "--pooling is for vectors of sentences"),
        ({"granularity": "token", "dim": 33}, "--dim must be between 1 and 32"),
        ({"granularity": "word", "text_b_column": "b"}, "word is for single texts"),
        ({"granularity": "token", "long_text": "windows"}, "--long_text windows is for vectors of"),
        ({"pooling": "cls,cls"}, "--pooling must name each once, got cls,cls"),
        (
            {"long_text": "window", "overlap": 62},
            "--overlap must be at least 0 and below 62, the tokens of a text that fit a row of "
            "--max_seq_length 64, got 62",
        ),
        ({"long_text": "window", "text_b_column": "b"}, "window is for single texts"),
        ({"text_b_column": "b"}, "--text_b_column is for JSON lines"),
        ({"prompt": "name:query"}, "--prompt name:query is none of this model's prompts"),
        ({"prompt": "find"}, "--prompt 'find' would run into the first word of a text"),
        ({"prompt": "a " * 62}, "--prompt has 62 tokens, which leaves no room"),
        ({"pooling": "mean,pooler"}, "--pooling pooler cannot be joined with others"),
        ({"output_dtype": "int4"}, "--output_dtype must be one of"),
        (
            {"granularity": "token", "output_format": "jsonl", "output_dtype": "int8"},
            "--output_dtype int8 conflicts with JSON lines of tokens",
        ),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_cannot_be_is_said_before_work(tmp_path, tiny_bundle, capsys, flags, message):
    (tmp_path / "in.txt").write_text("the bank\n")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", **flags) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert message in said
    assert not (tmp_path / "out").exists()


def test_the_order_of_granularities_is_no_other_run(tmp_path, tiny_bundle, capsys):
    (tmp_path / "in.txt").write_text("the bank\n")
    for granularity in ("sentence,word", "word,sentence"):
        flags = {"granularity": granularity}
        assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", **flags) == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "least", "report"),
    [
        ({}, (0.2, 0.9), "Cut after they were normalized"),
        ({"normalize": True}, (1, 1), "every length is 1"),
        ({"normalize": True, "granularity": "token"}, None, ""),
        ({"normalize": False}, (1.5, 99), "Not normalized"),
    ],
)
def test_norms_are_measured(tmp_path, flags, least, report):
    """Of a model whose file says truncate_dim, with and without what the caller says."""
    model = bundle_of(tmp_path, write_chain, "pooled_unit", 8)
    source = write_json(
        tmp_path / "in.jsonl", *({"id": n, "text": "a bank " * n} for n in (1, 2, 3))
    )
    assert embed(tmp_path / "out", model, source, part_docs=1, **flags) == 0
    norms = record(tmp_path / "out").get("norms")
    if least is None:
        assert norms is None
        return
    written = np.linalg.norm(vectors(tmp_path / "out"), axis=1)
    np.testing.assert_allclose(norms, [written.min(), written.max()], atol=1e-4)
    assert least[0] <= norms[0] <= norms[1] <= least[1]
    assert report in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_dense_modules_do_not_bar_tokens(tmp_path):
    """They take vectors of texts: tokens may be of several layers, and wider than they give."""
    model = bundle_of(tmp_path, write_sentence_transformers, modules=[dense(32, 16)])
    (tmp_path / "in.txt").write_text("the bank\n")
    flags = {"granularity": "token", "layers": "-1,-2", "layer_combine": "concat", "dim": 50}
    assert embed(tmp_path / "out", model, tmp_path / "in.txt", **flags) == 0
    (found,) = bert_embed.read_tokens(tmp_path / "out")
    (wanted,) = bert_embed.load(model).units(
        ["the bank"], layers=[-1, -2], layer_combine="concat", dim=50
    )
    assert_near(found.vectors, wanted.vectors)


def test_pairs_of_records_without_them(tmp_path, tiny_bundle, capsys):
    source = write_json(tmp_path / "in.jsonl", {"id": 1, "text": "a"})
    assert embed(tmp_path / "out", tiny_bundle, source, text_b_column="b") == 2
    assert "--text_b_column b is not in the first record" in capsys.readouterr().err


def test_the_plan_says_what_will_be_written(tmp_path, tiny_bundle, capsys):
    (tmp_path / "in.txt").write_text("the bank\n")
    flags = {"granularity": "sentence,token", "long_text": "window", "dry_run": True}
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", **flags) == 0
    out = capsys.readouterr().out
    assert "pooling mean, 32 numbers a document, 32 numbers a token, texts in windows of 64" in out
