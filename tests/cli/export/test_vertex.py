"""A batch root keeps every documented rule of Vertex AI Vector Search.

https://cloud.google.com/vertex-ai/docs/vector-search/setup/format-structure
"""

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import bert_embed
from bert_embed.pipeline.export.source import open_source
from bert_embed.pipeline.export.vertex import rows_per_file
from bert_embed.pipeline.options.commands import ExportOptions
from tests.support.outputs import contents, finished_run, run_of_kinds, sparse_rows, write_output

FIELDS = {"id", "embedding", "restricts", "numeric_restricts", "crowding_tag", "embedding_metadata"}
FIELDS.add("sparse_embedding")
NUMBERS = {"value_int": int, "value_float": float, "value_double": float}
COLUMNS = {"restricts": "lang,new,tags", "numeric_restricts": "year,price"}


def check_point(point, width):
    """A datapoint has documented fields only, each of its type."""
    assert set(point) <= FIELDS
    assert isinstance(point["id"], str)
    assert point["id"]
    assert len(vector := point.get("embedding", [])) == width
    assert all(type(number) is float and math.isfinite(number) for number in vector)
    for restrict in point.get("restricts", []):
        assert set(restrict) == {"namespace", "allow"}
        assert restrict["allow"]
        assert all(isinstance(token, str) for token in restrict["allow"])
    for restrict in point.get("numeric_restricts", []):
        (field,) = set(restrict) - {"namespace"}
        assert type(restrict[field]) is NUMBERS[field]
    names = [each["namespace"] for each in point.get("restricts", [])]
    assert len(names) == len(set(names))
    assert isinstance(point.get("embedding_metadata", {}), dict)
    assert isinstance(point.get("crowding_tag", ""), str)


def read_root(folder, width=12):
    """All datapoints by id."""
    files = contents(folder)
    data = {name: content for name, content in files.items() if "/" not in name}
    assert 0 < len(data) <= 5000
    assert all(name.endswith(".json") for name in data)
    assert len(data) == len(files)
    points, count = {}, 0
    for name in sorted(data):
        assert not data[name].startswith(b"\x1f\x8b")  # gzip
        for line in data[name].decode("utf-8").split("\n")[:-1]:
            point = json.loads(line)
            check_point(point, width)
            points[point["id"]] = point
            count += 1
    assert len(points) == count  # each id once
    return points


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return finished_run(tmp_path_factory.mktemp("vertex") / "run", [2000, 500], dtype="int8")


def test_a_root_holds_all_points(run, tmp_path, export):
    export(run, tmp_path / "root", "vertex", **COLUMNS, embedding_metadata="text,day")
    points = read_root(tmp_path / "root")
    ids, vectors = bert_embed.read(run)
    assert list(points) == ids
    found = np.array([point["embedding"] for point in points.values()], np.float32)
    np.testing.assert_array_equal(found, vectors)
    assert {key: value for key, value in points["d/7"].items() if key != "embedding"} == {
        "id": "d/7",
        "restricts": [
            {"namespace": "lang", "allow": ["bank"]},
            {"namespace": "new", "allow": ["false"]},
            {"namespace": "tags", "allow": ["bank", "all"]},
        ],
        "numeric_restricts": [
            {"namespace": "year", "value_int": 7},
            {"namespace": "price", "value_double": 1.75},
        ],
        "embedding_metadata": {
            "text": "Text\t7\nwith ümlaut",
            "day": "1970-01-08T00:00:00.000000Z",
        },
    }
    assert [each["namespace"] for each in points["d/5"]["restricts"]] == ["new", "tags"]  # null
    export(run, tmp_path / "plain", "vertex")
    assert {*read_root(tmp_path / "plain")["d/7"]} == {"id", "embedding"}


@pytest.mark.parametrize("rows", [1, 10**8 + 1, 10**10 + 1])
def test_files_stay_within_the_limit_of_objects(run, tmp_path, rows):
    source = open_source(ExportOptions(str(run), str(tmp_path / "root"), "vertex"))
    assert math.ceil(rows / rows_per_file(replace(source, rows=rows))) <= 5000


def test_numbers_that_are_not_finite_are_no_restricts(tmp_path, export):
    def with_nan(block):
        prices = pa.array([math.nan, math.inf, None, 1.5])
        return replace(block, extra=block.extra.set_column(2, "price", prices))

    run = finished_run(tmp_path / "run", [4], changed=with_nan)
    export(run, tmp_path / "root", "vertex", **COLUMNS)
    points = read_root(tmp_path / "root")
    restricts = [point["numeric_restricts"][1:] for point in points.values()]
    assert restricts == [[], [], [], [{"namespace": "price", "value_double": 1.5}]]


def test_columns_that_a_field_cannot_hold_are_refused(run, tmp_path, export):
    for flag, column, message in (
        ("restricts", "price", "restricts cannot take price, which is double"),
        ("numeric_restricts", "lang", "numeric_restricts cannot take lang, which is string"),
        ("restricts", "nope", "restricts names nope, but the output has id, text, lang, year"),
        ("embedding_metadata", "vector", "embedding_metadata names vector"),
    ):
        export(run, tmp_path / "root", "vertex", f"--{message}", **{flag: column})
        with pytest.raises(bert_embed.InputError, match=f"^{message}"):
            bert_embed.export(run, tmp_path / "root", "vertex", **{flag: [column]})
    assert not (tmp_path / "root").exists()


def test_a_call_names_its_arguments_and_takes_one_column_as_a_text(run, tmp_path):
    with pytest.raises(bert_embed.InputError, match=r"^index is for to faiss, not for vertex"):
        bert_embed.export(run, tmp_path / "root", "vertex", index="flat")
    with pytest.raises(bert_embed.SettingError, match=r"^dest must be a text"):
        bert_embed.export(run, None, "vertex")
    bert_embed.export(run, tmp_path / "root", "vertex", restricts="lang")
    points = read_root(tmp_path / "root")
    assert [each["namespace"] for each in points["d/1"]["restricts"]] == ["lang"]


ROWS = (30, 0, 12)


def test_vertex_has_sparse_embeddings_beside_dense_ones(tmp_path, export):
    run = run_of_kinds(tmp_path / "run", ["dense", "sparse"], ROWS)
    export(run, tmp_path / "dest", "vertex", restricts="lang")
    points = read_root(tmp_path / "dest").values()
    weights = [
        vectors[np.array([row])]
        for number, rows in enumerate(ROWS)
        for vectors in [sparse_rows(number, rows)]
        for row in range(rows)
    ]
    for point, wanted in zip(points, weights, strict=True):
        found = point.get("sparse_embedding", {"dimensions": [], "values": []})
        assert found["dimensions"] == wanted.indices.tolist()
        np.testing.assert_array_equal(np.float32(found["values"]), wanted.values)
    alone = run_of_kinds(tmp_path / "alone", ["sparse"], ROWS)
    export(alone, tmp_path / "sparse", "vertex")
    first, second, *_ = read_root(tmp_path / "sparse", width=0).values()
    assert (first, set(second)) == ({"id": "d/0"}, {"id", "sparse_embedding"})


def test_chunks_have_ids_and_sparse_vectors_of_their_own_and_crowd_by_document(tmp_path, export):
    run = run_of_kinds(tmp_path / "run", ["dense", "sparse"], [5], chunks=True)
    export(run, tmp_path / "dest", "vertex")
    points = [*read_root(tmp_path / "dest").values()]
    assert [point["id"] for point in points[:3]] == ["d/0#0", "d/0#1", "d/1#0"]
    assert points[3]["crowding_tag"] == "d/1"
    lengths = np.diff(sparse_rows(0, 10).splits)
    found = [len(point.get("sparse_embedding", {"values": ()})["values"]) for point in points]
    assert found == lengths.tolist()


def test_an_empty_id_is_refused(tmp_path, export):
    run = write_output(tmp_path / "run", np.ones((2, 8), np.float32), ["a", ""], 1)
    export(run, tmp_path / "dest", "vertex", "has a document whose id is empty, but Vector Search")


@pytest.mark.parametrize(
    ("kind", "to", "taken"), [("sparse", "npy", "dense"), ("multi", "vertex", "dense or sparse")]
)
def test_what_a_target_does_not_take_is_refused(tmp_path, export, kind, to, taken):
    run = run_of_kinds(tmp_path / "run", [kind], ROWS)
    message = f"--to {to} takes {taken} vectors, {run} holds {kind} ones: embed with"
    export(run, tmp_path / "dest", to, message)
    assert not (tmp_path / "dest").exists()
