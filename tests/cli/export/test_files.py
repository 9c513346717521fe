"""Exports to files: what is in them, in every number type and format."""

import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_embed
from tests.support.daily import state_of
from tests.support.outputs import contents, extra_of, finished_run

ROWS = (1500, 0, 700, 3)
TOTAL = sum(ROWS)


def expected(dtype, vectors):
    """What a reader of arrays gets for a run's decoded vectors."""
    if dtype == "ubinary":
        return np.packbits(vectors > 0, axis=1)
    return vectors.astype(np.float16 if dtype == "float16" else np.float32)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", "ubinary"])
def test_npy_files_map_into_memory_and_their_tables_go_with_them(tmp_path, dtype, export):
    source, dest = finished_run(tmp_path / "run", ROWS, 20, dtype), tmp_path / "npy"
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


def test_json_lines_give_the_same_export_as_parquet(tmp_path, export):
    tables, vectors = [], []
    for name in ("parquet", "jsonl"):
        run = finished_run(tmp_path / name, ROWS, dtype="int8", output_format=name)
        export(run, tmp_path / f"of_{name}")
        tables.append(pq.read_table(tmp_path / f"of_{name}" / "metadata_0000.parquet"))
        vectors.append((tmp_path / f"of_{name}" / "emb_0000.npy").read_bytes())
    assert vectors[0] == vectors[1]
    assert tables[1]["day"][1].as_py() == "1970-01-02T00:00:00.000000Z"  # as JSON has times
    assert tables[0].drop_columns("day") == tables[1].drop_columns("day")


@pytest.mark.slow
def test_ids_are_each_there_once_and_can_be_deleted(tmp_path, run, command):
    def texts(name, *ids, **flags):
        rows = [{"id": each, "text": "bank"} for each in ids]
        return run({f"{name}.jsonl": rows}, name, max_deleted="100%", **flags)

    # Neither of the first two continues the other, so both have "a".
    pair = [texts("one", "a", "b"), texts("other", "a")]
    for outputs in (pair, [texts("twice", "a", "b", "a")]):
        said = command("export", *outputs, tmp_path / "both", to="vertex", code=2).err
        assert f"{outputs[-1]} has 1 row whose document's id another one has" in said
    last = texts("last", "c", "d", skip_existing=texts("broken", "a\nb", "c"))
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
    export(run, "gs://no-such-bucket/dest", refused="no-such-bucket")
