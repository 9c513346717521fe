"""Models with Unigram, byte-level BPE or another WordPiece: whole runs, from folder to vectors."""

import json
from itertools import pairwise

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import flags_of, record, rows, vectors, write_json
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


def test_examples_of_pairs_give_the_vectors_of_the_pairs(tmp_path, run, model):
    pairs = [{"id": str(row), "text": text, "b": "the river"} for row, text in enumerate(TEXTS)]
    pairs = write_json(tmp_path / "in.jsonl", *pairs)
    words = flags_of(tmp_path / "examples", model, pairs, text_b_column="b")
    assert main(["tokenize", *words]) == 0
    flags = {"model": model, "granularity": "sentence,token"}
    output = run(tmp_path / "examples", **flags)
    direct = run(pairs, "direct", text_b_column="b", **flags)
    for kind in ("embeddings", "tokens"):
        assert pq.read_table(output / kind) == pq.read_table(direct / kind)
    assert record(output)["counts"]["embedded"] == len(TEXTS)


def test_words_and_tokens_name_the_characters_they_are_from(run, model, source):
    output = run(source, model=model, granularity="word,token")
    (words,) = output.glob("words/part-*.parquet")
    found = [[word["word"] for word in row] for row in pq.read_table(words)["words"].to_pylist()]
    assert found[0] == ["The", "bank", ",", "of", "the", "river", "!"]
    assert found[1] == list("北京大学")
    assert [word for row in found for word in row if word != word.strip()] == []
    (tokens,) = output.glob("tokens/part-*.parquet")
    tokens = pq.read_table(tokens)["tokens"].to_pylist()[0]
    spans = [(each["start"], each["stop"]) for each in tokens if (each["start"] or 0) >= 0]
    assert spans[0][0] == 0
    assert spans[-1][1] == len(TEXTS[0])


def test_chunks_are_sentences_of_the_text(run, model, source):
    found = rows(run(source, model=model, chunk="sentence"))
    chunks = zip(found["id"], found["start"], found["stop"], strict=True)
    last = [TEXTS[3][start:stop] for row, start, stop in chunks if row == "3"]
    assert last == ["two  spaces.", "Is it?"]


def test_cut_texts_are_marked_and_unknown_words_counted(run, model, source):
    output = run(source, model=model, max_seq_length=8)
    found, tokenizer = rows(output), bert_embed.load(model).tokenizer
    ids, splits = tokenizer.encode_flat(TEXTS)
    assert found["truncated"] == (np.diff(splits) > 6).tolist()
    assert found["num_tokens"] == np.minimum(np.diff(splits) + 2, 8).tolist()
    kept = [row[:6] for row in np.split(ids, splits[1:-1])]
    unknown = sum(int((row == tokenizer.unk_id).sum()) for row in kept)
    assert record(output)["unknown"]["tokens"] == unknown


def test_pairs_are_rows_of_the_encoder(run, model):
    pairs = [("the bank", "of the </s> river [SEP]"), ("北京", "two  spaces"), ("</s>", "a")]
    lines = {"in.jsonl": [{"id": row, "text": a, "b": b} for row, (a, b) in enumerate(pairs)]}
    output = run(lines, model=model, text_b_column="b", granularity="sentence,token")
    encoder = bert_embed.load(model)
    first, second = map(list, zip(*pairs, strict=True))
    np.testing.assert_allclose(vectors(output), encoder.encode(first, second), atol=1e-5)
    tokenizer = encoder.tokenizer
    for row, (a, b) in zip(encoder.units(first, texts_b=second), pairs, strict=True):
        around = 2 + tokenizer.separators
        assert len(row.texts) == sum(len(tokenizer.encode(text)) - 2 for text in (a, b)) + around


def test_windows_cover_a_long_text(run, model):
    text = " ".join(["The bank, of the river! Straße 北京."] * 12)
    flags = {"long_text": "window", "overlap": 5, "max_seq_length": 40}
    wanted = bert_embed.load(model).encode([text], **flags)
    found = vectors(run({"in.txt": f"{text}\n"}, model=model, **flags))
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    flags["long_text"] = "windows"
    found = rows(run({"in.txt": f"{text}\n"}, "kept", model=model, **flags))
    spans = sorted(zip(found["start"], found["stop"], strict=True))
    assert len(spans) > 3
    assert spans[0][0] == 0
    assert spans[-1][1] == len(text)
    assert all(start <= stop for (_, stop), (start, _) in pairwise(spans))


def test_a_run_and_kept_examples_give_the_vectors_of_the_encoder(tmp_path, run, model, source):
    """Kept examples know where a prompt ends."""
    flags = {"granularity": "sentence,token", "model": model}
    output = run(source, prompt="query: ", **flags)
    encoder = bert_embed.load(model)
    wanted = encoder.encode(TEXTS, prompt="query: ")
    np.testing.assert_allclose(vectors(output), wanted, atol=1e-5)
    assert record(output)["counts"]["embedded"] == len(TEXTS)
    examples = tmp_path / "examples"
    assert main(["tokenize", *flags_of(examples, model, source, prompt="query: ")]) == 0
    again = run(examples, "again", input_format="tfrecord", **flags)
    np.testing.assert_array_equal(vectors(output), vectors(again))
    settings = json.loads((examples / "examples.json").read_text())
    tokens = encoder.units(TEXTS[0], prompt="query: ")
    assert settings["prompt_tokens"] == int((tokens.starts[1:] >= 0).argmax())
    for folder in (output, again):
        (path,) = folder.glob("tokens/part-*.parquet")
        found = pq.read_table(path)["tokens"].to_pylist()[0]
        assert [token["start"] for token in found] == tokens.starts.tolist()
