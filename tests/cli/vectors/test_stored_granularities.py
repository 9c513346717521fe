"""What a run wrote of tokens and words reads back alike from both formats."""

import json

import numpy as np
import pytest

import bert_embed
from tests.support.command import embed

pytestmark = pytest.mark.slow

RECORDS = [
    {"id": "a", "text": "the bank of the river"},
    {"id": "blank", "text": ""},
    {"id": "b", "text": ["Calls", "", "way"]},
]


@pytest.fixture(scope="module")
def outputs(tiny_bundle, tmp_path_factory):
    """The same run as Parquet and as JSON lines."""
    folder = tmp_path_factory.mktemp("granularities")
    (folder / "in.jsonl").write_text("".join(json.dumps(each) + "\n" for each in RECORDS))
    flags = {"granularity": "sentence,token,word", "layers": "1,-1", "layer_combine": "last"}
    for output_format in ("parquet", "jsonl"):
        arguments = {**flags, "output_format": output_format}
        assert embed(folder / output_format, tiny_bundle, folder / "in.jsonl", **arguments) == 0
    return folder


def test_both_formats_hold_the_same_words(outputs):
    read = map(bert_embed.read_words, (outputs / "parquet", outputs / "jsonl"))
    for one, other in zip(*read, strict=True):
        assert (one.id, one.texts) == (other.id, other.texts)
        assert one.vectors.flags.writeable
        np.testing.assert_array_equal(one.starts, other.starts)
        np.testing.assert_array_equal(one.stops, other.stops)
        np.testing.assert_array_equal(one.vectors, other.vectors)


def test_own_words_are_kept_and_empty_ones_have_no_vector(outputs):
    texts, own = bert_embed.read_words(outputs / "parquet")
    assert texts.texts == ["the", "bank", "of", "the", "river"]
    assert own.texts == ["Calls", "", "way"]
    assert np.isnan(own.vectors).any(axis=1).tolist() == [False, True, False]


def test_token_lines_name_the_layer_that_was_taken(outputs):
    path = next((outputs / "jsonl").glob("tokens/part-*"))
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [row["id"] for row in rows] == ["a", "b"]
    exact = list(bert_embed.read_tokens(outputs / "parquet"))
    for row, document in zip(rows, exact, strict=True):
        assert [token["token"] for token in row["features"]] == document.texts
        layers = [token["layers"] for token in row["features"]]
        assert [[layer["index"] for layer in each] for each in layers] == [[-1]] * len(layers)
        values = [each[0]["values"] for each in layers]
        assert values == [[round(float(x), 6) for x in vector] for vector in document.vectors]
