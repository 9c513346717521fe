"""Runs with static models, which have neither layers nor special tokens."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

from tests.support.models.static import ENTRIES, GOLDEN, LONG, TEXTS, write_static

SOURCE = {"in.txt": "\n".join([*TEXTS, LONG])}


@pytest.fixture(scope="module")
def bundle(model_of):
    return model_of(write_static, "plain")


def test_a_run_gives_the_librarys_vectors_of_texts_of_any_length(run, bundle, command):
    output = run(SOURCE, model=bundle.path, granularity="sentence,token")
    assert "texts of any length" in run.err
    table = pq.read_table(output / "embeddings")
    found = np.array(table["embedding"].to_pylist(), np.float32)
    wanted = np.load(GOLDEN)["plain"][[bool(text) for text in (*TEXTS, LONG)]]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    tokens = pq.read_table(output / "tokens").to_pylist()[0]
    assert [token["token"] for token in tokens["tokens"]] == ["the", "bank", "of", "the", "river"]
    assert table["num_tokens"][0].as_py() == 5
    said = command("search", output, "\u200b").err
    assert said.startswith("note: 1 of 1 query without a known token: ")
    assert command("search", output, "bank").err == ""


def test_vectors_of_zeros_are_told_of(tmp_path, run, here):
    """As of a text of words that the table of a static model has no numbers for."""
    write_static(tmp_path / "source", "plain")
    weights = tmp_path / "source" / "0_StaticEmbedding" / "model.safetensors"
    table = load_file(weights)["embedding.weight"].copy()
    table[ENTRIES.index("money")] = 0
    save_file({"embedding.weight": table}, weights)
    output = run({"in.txt": "the bank\nmoney\nmoney money\n"}, model=tmp_path / "source")
    assert "2 vectors are all zeros: their cosine with any other is 0 here" in run.out
    assert json.loads((output / "run.json").read_text())["zero_vectors"] == 2
    assert "2 of zeros" in (output / "report.html").read_text("utf-8")
