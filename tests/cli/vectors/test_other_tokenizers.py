"""Models with Unigram, byte-level BPE or another WordPiece: whole runs, from folder to vectors."""

import json
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import embed, flags_of, record, rows, vectors, write_json
from tests.support.models.architectures import write_architecture

TEXTS = ("The bank, of the river!", "北京大学", "</s> Straße \U0001f389", "two  spaces. Is it?")


@pytest.fixture(scope="module", params=["xlm-roberta", "roberta", "word_piece"])
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / "model"
    write_architecture(folder, request.param)
    return str(folder)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in.jsonl"
    lines = [json.dumps({"id": str(row), "text": text}) for row, text in enumerate(TEXTS)]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_a_run_gives_the_vectors_of_the_encoder(tmp_path, model, source):
    assert embed(tmp_path / "out", model, source, prompt="query: ") == 0
    wanted = bert_embed.load(model).encode(TEXTS, prompt="query: ")
    np.testing.assert_allclose(vectors(tmp_path / "out"), wanted, atol=1e-5)
    assert record(tmp_path / "out")["counts"]["embedded"] == len(TEXTS)


def test_examples_of_pairs_give_the_vectors_of_the_pairs(tmp_path, model):
    pairs = [{"id": str(row), "text": text, "b": "the river"} for row, text in enumerate(TEXTS)]
    pairs = write_json(tmp_path / "in.jsonl", *pairs)
    words = flags_of(tmp_path / "examples", model, pairs, text_b_column="b")
    assert main(["tokenize", *words]) == 0
    assert embed(tmp_path / "out", model, tmp_path / "examples", granularity="sentence,token") == 0
    flags = {"granularity": "sentence,token", "text_b_column": "b"}
    assert embed(tmp_path / "direct", model, pairs, **flags) == 0
    for kind in ("embeddings", "tokens"):
        assert pq.read_table(tmp_path / "out" / kind) == pq.read_table(tmp_path / "direct" / kind)
    assert record(tmp_path / "out")["counts"]["embedded"] == len(TEXTS)


def test_words_and_tokens_name_the_characters_they_are_from(tmp_path, model, source):
    assert embed(tmp_path / "out", model, source, granularity="word,token") == 0
    (words,) = tmp_path.glob("out/words/part-*.parquet")
    found = [[word["word"] for word in row] for row in pq.read_table(words)["words"].to_pylist()]
    assert found[0] == ["The", "bank", ",", "of", "the", "river", "!"]
    assert found[1] == list("北京大学")
    assert [word for row in found for word in row if word != word.strip()] == []
    (tokens,) = tmp_path.glob("out/tokens/part-*.parquet")
    spans = [
        (token["start"], token["stop"])
        for token in pq.read_table(tokens)["tokens"].to_pylist()[0]
        if token["start"] is not None and token["start"] >= 0
    ]
    assert spans[0][0] == 0
    assert spans[-1][1] == len(TEXTS[0])


def test_chunks_are_sentences_of_the_text(tmp_path, model, source):
    assert embed(tmp_path / "out", model, source, chunk="sentence") == 0
    found = rows(tmp_path / "out")
    chunks = zip(found["id"], found["start"], found["stop"], strict=True)
    last = [TEXTS[3][start:stop] for row, start, stop in chunks if row == "3"]
    assert last == ["two  spaces.", "Is it?"]


def test_kept_examples_give_the_same_vectors(tmp_path, model, source):
    assert embed(tmp_path / "out", model, source) == 0
    assert main(["tokenize", *flags_of(tmp_path / "examples", model, source)]) == 0
    again = {"input_format": "tfrecord"}
    assert embed(tmp_path / "again", model, tmp_path / "examples", **again) == 0
    assert np.array_equal(vectors(tmp_path / "out"), vectors(tmp_path / "again"))


def test_kept_examples_know_where_a_prompt_ends(tmp_path, model, source):
    prompt = {"prompt": "query: "}
    assert embed(tmp_path / "out", model, source, granularity="token", **prompt) == 0
    assert main(["tokenize", *flags_of(tmp_path / "examples", model, source, **prompt)]) == 0
    again = {"input_format": "tfrecord", "granularity": "token"}
    assert embed(tmp_path / "again", model, tmp_path / "examples", **again) == 0
    settings = json.loads((tmp_path / "examples" / "examples.json").read_text())
    tokens = bert_embed.load(model).units(TEXTS[0], prompt="query: ")
    assert settings["prompt_tokens"] == int((tokens.starts[1:] >= 0).argmax())
    for name in ("out", "again"):
        (path,) = (tmp_path / name).glob("tokens/part-*.parquet")
        found = pq.read_table(path)["tokens"].to_pylist()[0]
        assert [token["start"] for token in found] == tokens.starts.tolist()


def test_cut_texts_are_marked_and_unknown_words_counted(tmp_path, model, source):
    assert embed(tmp_path / "out", model, source, max_seq_length=8) == 0
    found = rows(tmp_path / "out")
    tokenizer = bert_embed.load(model).tokenizer
    ids, splits = tokenizer.encode_flat(TEXTS)
    assert found["truncated"] == (np.diff(splits) > 6).tolist()
    assert found["num_tokens"] == np.minimum(np.diff(splits) + 2, 8).tolist()
    kept = [row[:6] for row in np.split(ids, splits[1:-1])]
    unknown = sum(int((row == tokenizer.unk_id).sum()) for row in kept)
    assert record(tmp_path / "out")["unknown"]["tokens"] == unknown


def test_pairs_are_rows_of_the_encoder(tmp_path, model):
    pairs = [("the bank", "of the </s> river [SEP]"), ("北京", "two  spaces"), ("</s>", "a")]
    lines = [json.dumps({"id": row, "text": a, "b": b}) for row, (a, b) in enumerate(pairs)]
    (tmp_path / "in.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    flags = {"text_b_column": "b", "granularity": "sentence,token"}
    assert embed(tmp_path / "out", model, tmp_path / "in.jsonl", **flags) == 0
    encoder = bert_embed.load(model)
    first, second = map(list, zip(*pairs, strict=True))
    np.testing.assert_allclose(vectors(tmp_path / "out"), encoder.encode(first, second), atol=1e-5)
    tokenizer = encoder.tokenizer
    for row, (a, b) in zip(encoder.units(first, texts_b=second), pairs, strict=True):
        around = 2 + tokenizer.separators
        assert len(row.texts) == sum(len(tokenizer.encode(text)) - 2 for text in (a, b)) + around


def test_windows_cover_a_long_text(tmp_path, model):
    text = " ".join(["The bank, of the river! Straße 北京."] * 12)
    (tmp_path / "in.txt").write_text(f"{text}\n", encoding="utf-8")
    flags = {"long_text": "window", "overlap": 5, "max_seq_length": 40}
    assert embed(tmp_path / "out", model, tmp_path / "in.txt", **flags) == 0
    wanted = bert_embed.load(model).encode([text], **flags)
    np.testing.assert_allclose(vectors(tmp_path / "out"), wanted, atol=1e-5)
    whole = {**flags, "long_text": "windows"}
    assert embed(tmp_path / "windows", model, tmp_path / "in.txt", **whole) == 0
    found = rows(tmp_path / "windows")
    spans = sorted(zip(found["start"], found["stop"], strict=True))
    assert len(spans) > 3
    assert spans[0][0] == 0
    assert spans[-1][1] == len(text)
    assert all(start <= stop for (_, stop), (start, _) in pairwise(spans))
