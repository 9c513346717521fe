"""Token lines are what extract_features.py of google-research/bert would have written."""

import json
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bert_embed.models.heads.kinds import KINDS
from bert_embed.results.json_lines import token_rows
from bert_embed.transforms.write import vector_table
from tests.support.blocks import (
    IDS,
    TOKENS,
    described,
    embedding_block,
    token_vectors,
    write,
)


def extract_features_lines(vectors_by_layer):
    """Its output loop in small: one value of a token and a layer after the other, through json.

    Args:
        vectors_by_layer: Index of a layer as asked for, to float32 `[tokens, hidden]`.
    """
    lines, at = [], 0
    for tokens in TOKENS:
        features = []
        for token in tokens:
            layers = []
            for index, vectors in vectors_by_layer.items():
                values = [round(float(x), 6) for x in vectors[at].flat]
                layers.append(OrderedDict([("index", index), ("values", values)]))
            features.append(OrderedDict([("token", token), ("layers", layers)]))
            at += 1
        lines.append(json.dumps(OrderedDict([("features", features)])))
    return lines


def written(tmp_path, **more):
    block = embedding_block(tokens=token_vectors())
    return write(tmp_path, block, described(block, **more), "jsonl")["tokens"].splitlines()


def keeping_order(line):
    return json.loads(line, object_pairs_hook=list)


@pytest.mark.parametrize(
    ("layers", "width"), [([-1], 12), ([-1, -2, -3, -4], 3)], ids=["one layer", "four layers"]
)
def test_a_stack_equals_extract_features(tmp_path, layers, width):
    found = written(tmp_path, layers=layers, layer_combine="stack")
    by_layer = token_vectors().vectors.reshape(-1, len(layers), width)
    expected = extract_features_lines(
        {layer: by_layer[:, place] for place, layer in enumerate(layers)}
    )
    without_ids = [keeping_order(line)[:1] for line in found]
    assert without_ids == [keeping_order(line) for line in expected]


@pytest.mark.parametrize(
    ("layers", "combine", "index"),
    [
        ([3, 5], "last", 5),
        ([-1, 2], "last", -1),
        ([-1, -2], "sum", [-1, -2]),
        ([0, -1], "mean", [0, -1]),
        ([-1, -2, -3, -4], "concat", [-1, -2, -3, -4]),
        ([-3], "sum", -3),
    ],
)
def test_combined_layers_share_an_entry(tmp_path, layers, combine, index):
    asked = {"layers": layers, "layer_combine": combine, "num_hidden_layers": 6}
    rows = [json.loads(line) for line in written(tmp_path, **asked)]
    entries = [token["layers"] for row in rows for token in row["features"]]
    assert [[layer["index"] for layer in each] for each in entries] == [[index]] * 9
    values = [each[0]["values"] for each in entries]
    np.testing.assert_allclose(values, token_vectors().vectors, atol=5e-7)


def test_the_id_comes_last_and_numbers_are_those_of_the_output_type(tmp_path):
    rows = [json.loads(line) for line in written(tmp_path, dtype="float16")]
    assert [list(row) for row in rows] == [["features", "id"]] * 3
    assert [row["id"] for row in rows] == IDS
    expected = token_vectors().vectors[0].astype(np.float16).astype(float)
    found = rows[0]["features"][0]["layers"][0]["values"]
    assert found == [round(x, 6) for x in expected.tolist()]


halves = st.integers(-(2**20), 2**20).map(lambda n: n / 128)  # odd n: exactly half a millionth
any_float = st.floats(-1e6, 1e6, width=32) | st.floats(-1, 1, width=32) | halves


@given(arrays(np.float32, (9, 4), elements=any_float))
def test_numbers_are_rounded_as_python_rounds(vectors):
    tokens = token_vectors(4)
    tokens.vectors[:] = vectors
    block = embedding_block(tokens=tokens)
    settings = described(block, token_shape=[4])
    table = vector_table(block, "token", settings)
    values = [
        token["layers"][0]["values"].tolist()
        for row in token_rows(table, KINDS["token"], settings)
        for token in row["features"]
    ]
    assert values == [[round(float(x), 6) for x in row] for row in vectors]
