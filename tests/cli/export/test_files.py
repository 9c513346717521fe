"""Exports to files: what is in them, in every number type and format."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_embed
from tests.support.command import embed, write_json
from tests.support.daily import state_of
from tests.support.outputs import contents, extra_of, finished_run

ROWS = (1500, 0, 700, 3)
TOTAL = sum(ROWS)
FORMATS = ("parquet", "jsonl")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs by format and number type, made when they are asked for."""
    folder, made = tmp_path_factory.mktemp("runs"), {}

    def run(output_format="parquet", dtype="float32", width=20, **more):
        key = "-".join(map(str, (output_format, dtype, width, *more.items())))
        if key not in made:
            made[key] = finished_run(folder / key, ROWS, width, dtype, output_format, **more)
        return made[key]

    return run


def expected(dtype, vectors):
    """What a reader of arrays gets for a run's decoded vectors."""
    if dtype == "ubinary":
        return np.packbits(vectors > 0, axis=1)
    return vectors.astype(np.float16 if dtype == "float16" else np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "ubinary"])
def test_npy_files_map_into_memory_and_their_tables_go_with_them(runs, tmp_path, dtype, export):
    source, dest = runs(dtype=dtype), tmp_path / "npy"
    assert export(source, dest) == f"{dest}: {TOTAL:,} rows of 20 numbers\n"
    assert sorted(contents(dest)) == ["emb_0000.npy", "export.json", "metadata_0000.parquet"]
    found = np.load(dest / "emb_0000.npy", mmap_mode="r")
    ids, vectors = bert_embed.read(source)
    assert isinstance(found, np.memmap)
    before = state_of(dest)
    said = bert_embed.export([source], dest, "npy")  # in Python, once more
    assert said == [f"{dest}: {TOTAL:,} rows of 20 numbers, nothing to do"]
    assert state_of(dest) == before
    np.testing.assert_array_equal(found, expected(dtype, vectors), strict=True)
    table = pq.read_table(dest / "metadata_0000.parquet")
    assert table["id"].to_pylist() == ids
    assert table.select(extra_of(np.arange(1)).column_names) == extra_of(np.arange(TOTAL))
    assert table["text"][5].as_py() == "Text\t5\nwith ümlaut"
    assert not {"num_tokens", "text_hash", "embedding"} & set(table.column_names)


@pytest.mark.slow  # TensorFlow decodes records
def test_outputs_of_several_formats_are_one_export(tmp_path, export):
    for name in ("parquet", "jsonl", "tfrecord"):
        settings = {"chunks": True, "extra": False, "run": name}
        run = finished_run(tmp_path / "runs" / name, [5], output_format=name, **settings)
        shutil.rmtree(run / "_state")
    export(tmp_path / "runs", tmp_path / "npy")
    table = pq.read_table(tmp_path / "npy" / "metadata_0000.parquet")
    assert table.column_names == ["id", "chunk", "start", "stop", "text"]
    ids, vectors = bert_embed.read(tmp_path / "runs")
    assert table["id"].to_pylist() == ids
    assert table.slice(2, 2).to_pylist() == [
        {"id": "d/1", "chunk": 0, "start": 0, "stop": 4, "text": "Text"},
        {"id": "d/1", "chunk": 1, "start": 4, "stop": 9, "text": "\t1\nwi"},
    ]
    np.testing.assert_array_equal(np.load(tmp_path / "npy" / "emb_0000.npy"), vectors)


def test_json_lines_give_the_same_export_as_parquet(runs, tmp_path, export):
    for each in FORMATS:
        export(runs(each, "int8"), tmp_path / each)
    one, other = (contents(tmp_path / each)["emb_0000.npy"] for each in FORMATS)
    assert one == other
    tables = [pq.read_table(tmp_path / each / "metadata_0000.parquet") for each in FORMATS]
    assert tables[1]["day"][1].as_py() == "1970-01-02T00:00:00.000000Z"  # as JSON has times
    assert tables[0].drop_columns("day") == tables[1].drop_columns("day")


@pytest.mark.slow
def test_ids_are_each_there_once_and_can_be_deleted(tmp_path, tiny_bundle, command):
    def run(name, texts, pairs=(), **flags):
        pairs = pairs or texts.items()
        rows = [{"id": id, "text": text, "position": 7} for id, text in pairs]
        source = write_json(tmp_path / f"{name}.jsonl", *rows)
        flags = {"extra_columns": "position:int64", "max_deleted": "100%", **flags}
        assert embed(tmp_path / name, tiny_bundle, source, **flags) == 0
        return tmp_path / name

    one = run("one", {"a": "bank", "b": "river"})
    command("export", one, tmp_path / "first", to="vertex")
    [data] = (tmp_path / "first").iterdir()
    assert json.loads(data.read_text().splitlines()[0])["id"] == "a"
    # Neither output continues the other, so both have "a".
    other = run("other", {"a": "money"})
    twice = run("twice", {}, [("a", "bank"), ("b", "river"), ("a", "money")])
    for outputs in ([one, other], [twice]):
        said = command("export", *outputs, tmp_path / "both", to="vertex", code=2).err
        assert f"{outputs[-1]} has 1 row whose document's id another one has" in said
    broken = run("broken", {"a\nb": "vault", "c": "river"})
    last = run("last", {"c": "vault"}, skip_existing=broken)
    said = command("export", last, tmp_path / "last.export", to="vertex", code=2).err
    assert "deletes the document 'a\\nb'" in said


@pytest.mark.parametrize("target", ["npy", "vertex"])
def test_gs_in_and_out_gives_the_files_of_a_local_export(gcs, tmp_path, export, target):
    rows = 60_000 if target == "npy" else 600  # of which npy makes two files
    run = finished_run(tmp_path / "run", [rows, rows], 4, kept=False)
    source = gcs.put_folder(run, f"runs-{target}", "run")
    gcs.client.create_bucket(f"exports-{target}")
    export(run, tmp_path / "dest", target)
    dest = f"gs://exports-{target}/batch/dest"
    export(source, dest, target)
    made = contents(gcs.root / f"exports-{target}" / "batch" / "dest")
    assert made == contents(tmp_path / "dest")
    export(source, dest, target)


def test_a_bucket_that_is_not_there_is_named(gcs, runs, export):
    export(runs(), "gs://no-such-bucket/dest", refused="no-such-bucket")
