"""Outputs as tables of Iceberg and Delta Lake, in other programs: run by `make test-export`."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from duckdb_extensions import import_extension
from pyiceberg.catalog.sql import SqlCatalog

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import ROOT, Hold, embed, finish
from tests.support.outputs import contents, export, finished_run, run_of_kinds

WIDTH = 16
LAKES = ["iceberg", "delta"]
DELTA = "org.apache.spark.sql.delta"
JARS = ROOT / "build" / "readers" / "lakes"


def iceberg(dest, table="embeddings"):
    catalog = SqlCatalog(
        "bert_embed", uri=f"sqlite:///{dest}/catalog.db", warehouse=f"file://{dest}"
    )
    return catalog.load_table(f"default.{table}")


def table_of(lake, dest):
    """The rows of a table, by its own library."""
    if lake == "iceberg":
        return iceberg(dest).scan().to_arrow()
    return DeltaTable(dest).to_pyarrow_table()


def commits(lake, dest):
    """The runs of its commits, the oldest first; of one commit each once."""
    if lake == "delta":
        noted = [commit.get("bert-embed.run") for commit in reversed(DeltaTable(dest).history())]
    else:
        noted = [snapshot.summary["bert-embed.run"] for snapshot in iceberg(dest).snapshots()]
    return list(dict.fromkeys(filter(None, noted)))


def files_of(lake, dest):
    if lake == "delta":
        return sorted(map(os.path.realpath, DeltaTable(dest).file_uris()))
    return sorted(task.file.file_path for task in iceberg(dest).scan().plan_files())


def vectors_by_id(table):
    return dict(
        zip(table["id"].to_pylist(), map(tuple, table["embedding"].to_pylist()), strict=True)
    )


@pytest.fixture(params=LAKES)
def lake(request):
    return request.param


@pytest.fixture
def dest(lake, tmp_path):
    """A table's folder: of Delta Lake it lies above the outputs."""
    return tmp_path / "lake" if lake == "iceberg" else tmp_path


def with_run(folder, name, parts=(300, 0, 7), dtype="float32", **more):
    run = finished_run(folder / name, parts, WIDTH, dtype, **more)
    for path in (run / "run.json", *run.glob("_state/blocks/*.json")):
        content = json.loads(path.read_text())
        path.write_text(json.dumps(content | {"run": name}))
    return run


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_files_are_registered_as_they_lie_once(lake, dest, tmp_path, dtype, capsys):
    run = with_run(tmp_path, "a run", dtype=dtype)
    before = contents(run)
    assert export(run, dest, lake) == 0
    said = f"{dest}: registered {run}, 307 rows in 2 files\n"
    assert capsys.readouterr().out == said
    assert contents(run) == before
    table = table_of(lake, dest)
    assert files_of(lake, dest) == sorted(map(str, (run / "embeddings").iterdir()))
    ids, vectors = bert_embed.read(run)
    assert table["id"].to_pylist() == ids
    stored = np.array(table["embedding"].to_pylist(), np.float32)
    if dtype == "int8":
        stored *= np.array(table["scale"].to_pylist(), np.float32)[:, None]
    np.testing.assert_allclose(stored, vectors, atol=1e-6)
    assert table["tags"][1].as_py() == ["bank", "all"]
    for _ in range(2):
        assert export(run, dest, lake) == 0
        assert capsys.readouterr().out == f"{dest}: {run} is already registered\n"
    assert commits(lake, dest) == ["a run"]
    assert table_of(lake, dest).num_rows == 307


@pytest.fixture(scope="module")
def feed(tmp_path_factory, tiny_bundle):
    """Two days: on the second a text changed, two are gone and one is new."""
    folder = tmp_path_factory.mktemp("feed")
    texts = {"one": "the river", "two": "the bank", "three": "money", "four": "red vault"}
    for day, (gone, changed) in enumerate([((), {}), (("three", "four"), {"two": "the money"})]):
        texts = {name: text for name, text in (texts | changed).items() if name not in gone}
        if day:
            texts["five"] = "river money"
        lines = [json.dumps({"id": name, "text": text}) for name, text in texts.items()]
        (folder / f"{day}.jsonl").write_text("\n".join(lines))
        earlier = {"skip_existing": folder / "out" / "0", "max_deleted": 2} if day else {}
        output = folder / "out" / str(day)
        assert embed(output, tiny_bundle, folder / f"{day}.jsonl", report=False, **earlier) == 0
    return folder / "out"


@pytest.fixture
def days(feed, tmp_path):
    """The outputs of the feed, in a folder of the test's own."""
    subprocess.run(["cp", "-r", str(feed), str(tmp_path / "d ä%20s")], check=True)
    return tmp_path / "d ä%20s"


@pytest.mark.parametrize("at_once", [False, True])
def test_an_increment_replaces_and_deletes_in_one_commit(lake, dest, days, at_once, capsys):
    if at_once:  # in any order: what is continued comes first
        assert main(["export", str(days / "1"), str(days / "0"), str(dest), f"--to={lake}"]) == 0
    else:
        assert export(days / "0", dest, lake) == 0
        assert table_of(lake, dest).num_rows == 4
        assert export(days / "1", dest, lake) == 0
    assert "registered" in capsys.readouterr().out
    ids, vectors = bert_embed.read([days / "0", days / "1"])
    wanted = dict(zip(ids, map(tuple, vectors.tolist()), strict=True))
    assert sorted(wanted) == ["five", "one", "two"]
    assert vectors_by_id(table_of(lake, dest)) == wanted
    runs = [json.loads((days / day / "run.json").read_text())["run"] for day in "01"]
    assert commits(lake, dest) == runs
    assert export(days, dest, lake) == 0
    assert capsys.readouterr().out.count("already registered") == 2
    assert vectors_by_id(table_of(lake, dest)) == wanted
    kept = bert_embed.read(days / "0")[0]
    assert len(kept) == 4  # no file of a run was changed


def test_an_output_is_not_registered_without_one_that_it_continues(lake, dest, days, capsys):
    assert export(days / "1", dest, lake) == 2
    assert f"which {days / '1'} continues: register that first" in capsys.readouterr().err
    assert export(days / "0", dest, lake) == 0
    assert export(days / "1", dest, lake) == 0
    assert export(days / "0", dest, lake) == 0
    assert table_of(lake, dest).num_rows == 3


def test_integer_ids_and_whole_files_go(lake, dest, tmp_path, tiny_bundle, capsys):
    """A second day has every document of the first anew; the output is named twice."""
    flags = {"report": False, "id_column": "id"}
    for day, text in enumerate(("the river", "the bank")):
        lines = [json.dumps({"id": number, "text": f"{text} {number}"}) for number in range(5)]
        (tmp_path / f"{day}.jsonl").write_text("\n".join(lines))
        earlier = {"skip_existing": tmp_path / "0"} if day else {}
        source = tmp_path / f"{day}.jsonl"
        assert embed(tmp_path / str(day), tiny_bundle, source, **flags, **earlier) == 0
    outputs = [str(tmp_path / day) for day in ("0", "0", "1")]
    assert main(["export", *outputs, str(dest), f"--to={lake}"]) == 0
    assert capsys.readouterr().out.endswith("5 rows in 1 file, 5 rows replaced or deleted\n")
    table = table_of(lake, dest)
    ids, vectors = bert_embed.read(tmp_path / "1")
    assert vectors_by_id(table) == dict(zip(ids, map(tuple, vectors.tolist()), strict=True))
    assert (table.num_rows, len(files_of(lake, dest))) == (5, 1)


def test_a_second_export_into_a_table_waits_for_the_first(lake, dest, tmp_path, capsys):
    run = finished_run(tmp_path / "run", [3])
    function = {
        "iceberg": "pyiceberg.catalog.sql|SqlCatalog|create_table",
        "delta": "deltalake.table|DeltaTable|create",
    }
    hold = Hold(tmp_path / "hold", 0, function[lake])
    first = hold.start("export", str(run), str(dest), "--to", lake)
    assert export(run, dest, lake) == 1
    assert f"another export writes to {dest} at this moment" in capsys.readouterr().err
    hold.go()
    finish(first)
    assert export(run, dest, lake) == 0
    assert "is already registered" in capsys.readouterr().out
    assert table_of(lake, dest).num_rows == 3


def test_outputs_that_do_not_continue_each_other_keep_all_their_rows(lake, dest, tmp_path):
    for name in ("x", "y"):
        assert export(with_run(tmp_path, name, [5]), dest, lake) == 0
    assert table_of(lake, dest).num_rows == 10
    assert commits(lake, dest) == ["x", "y"]


@pytest.mark.parametrize("fails", ["commit", "killed"])
def test_a_commit_that_did_not_come_about_is_repeated_whole(
    lake, dest, days, fails, monkeypatch, capsys
):
    assert export(days / "0", dest, lake) == 0
    before = vectors_by_id(table_of(lake, dest))
    target, name = {
        "iceberg": ("pyiceberg.catalog.sql.SqlCatalog", "commit_table"),
        "delta": ("deltalake.DeltaTable", "create_write_transaction"),
    }[lake]
    words = ["export", str(days / "1"), str(dest), f"--to={lake}"]
    if fails == "commit":
        error = OSError("no space left on device")
        with monkeypatch.context() as patch:
            patch.setattr(f"{target}.{name}", lambda *_, **__: (_ for _ in ()).throw(error))
            assert main(words) == 2
        assert "error: no space left on device" in capsys.readouterr().err
    else:
        module, _, kind = target.rpartition(".")
        code = (
            f"import os, signal\nfrom {module} import {kind}\n"
            f"{kind}.{name} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
            f"from bert_embed.pipeline.cli import main\nmain({words!r})\n"
        )
        killed = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False)
        assert killed.returncode == -signal.SIGKILL
    assert vectors_by_id(table_of(lake, dest)) == before
    assert main(words) == 0
    assert sorted(vectors_by_id(table_of(lake, dest))) == ["five", "one", "two"]
    assert len(commits(lake, dest)) == 2


@pytest.mark.parametrize(
    ("make", "flags", "message"),
    [
        ({"dtype": "float16"}, {}, "column embedding is of halffloat (float16), which {} has no"),
        ({"dtype": "bfloat16"}, {}, "column embedding is of uint16 (bfloat16)"),
        ({"dtype": "ubinary"}, {}, "embed with --output_dtype float32 or int8"),
        ({"output_format": "jsonl"}, {}, "holds .jsonl files, {} registers Parquet"),
        ({"output_format": "tfrecord", "kept": False}, {}, "holds .tfrecord files, {} registers"),
        ({"status": "running"}, {}, "the run is not complete (status running)"),
        ({"status": "running"}, {"partial": True}, "--partial is not for --to"),
        ({}, {"granularity": "word"}, "none of word"),
        ({}, {"index": "hnsw"}, "--index is for --to"),
    ],
)
def test_what_no_table_can_hold_is_refused_by_name(
    lake, dest, tmp_path, make, flags, message, capsys
):
    names = {"iceberg": "Iceberg", "delta": "Delta Lake"}
    run = with_run(tmp_path, "run", **make)
    assert export(run, dest, lake, **flags) == 2
    assert message.format(names[lake]) in capsys.readouterr().err
    assert not (dest / "_delta_log").exists()
    assert not (dest / "catalog.db").exists()


def test_other_vectors_and_other_tables_are_refused(lake, dest, tmp_path, capsys):
    assert export(with_run(tmp_path, "one"), dest, lake) == 0
    other = with_run(tmp_path, "two", settings={"model": "fedcba9876543210"})
    assert export(other, dest, lake) == 2
    assert f"is a table of other vectors than {other}: " in capsys.readouterr().err
    assert export(with_run(tmp_path, "three", kept=False), dest, lake) == 2
    assert "columns day, embedding, id," in capsys.readouterr().err
    assert commits(lake, dest) == ["one"]


def test_outputs_for_a_new_table_have_the_same_columns(lake, dest, tmp_path, capsys):
    runs = [with_run(tmp_path, "one"), with_run(tmp_path, "two", kept=False)]
    assert main(["export", *map(str, runs), str(dest), f"--to={lake}"]) == 2
    assert f"{runs[0]} holds other vectors than {runs[1]}: columns " in capsys.readouterr().err
    assert not (dest / "_delta_log").exists()
    assert not (dest / "catalog.db").exists()


def test_places_that_a_lake_cannot_take_are_refused(tmp_path, capsys):
    run = with_run(tmp_path, "run")
    assert export(run, tmp_path / "beside", "delta") == 2
    assert "give a folder above the outputs" in capsys.readouterr().err
    assert export(run, "gs://bucket/lake", "iceberg") == 2
    assert "DEST must be a local folder" in capsys.readouterr().err
    assert main(["export", str(run), str(tmp_path / "a"), "--to=iceberg", "--table=a.c"]) == 2
    assert "give a name without dots" in capsys.readouterr().err
    for lake in LAKES:
        assert export(with_run(tmp_path / "x%41", "run"), tmp_path / "x%41", lake) == 2
        assert "takes no folder with %41 in its name" in capsys.readouterr().err
        assert export(run, run / "lake", lake) == 2
        assert "lies in the output itself" in capsys.readouterr().err
    DeltaTable.create(tmp_path / "mine", schema=pa.schema([("id", pa.string())]))
    assert export(with_run(tmp_path / "mine", "run"), tmp_path / "mine", "delta") == 2
    assert "is a table that no export made" in capsys.readouterr().err


def test_an_empty_output_makes_no_table_but_is_a_commit_of_one(lake, dest, tmp_path, capsys):
    empty = with_run(tmp_path, "empty", [])
    assert export(empty, dest, lake) == 2
    assert "holds no vectors to export" in capsys.readouterr().err
    assert export(with_run(tmp_path, "whole"), dest, lake) == 0
    assert export(empty, dest, lake) == 0
    assert table_of(lake, dest).num_rows == 307
    assert export(empty, dest, lake) == 0
    assert "already registered" in capsys.readouterr().out


def test_days_whose_first_was_empty_are_registered_at_once(
    lake, dest, tmp_path, tiny_bundle, capsys
):
    path, days = tmp_path / "in.jsonl", [tmp_path / "first", tmp_path / "second"]
    path.write_text("")
    assert embed(days[0], tiny_bundle, path) == 0
    path.write_text('{"id": "a", "text": "the bank"}\n')
    assert embed(days[1], tiny_bundle, path, skip_existing=days[0]) == 0
    assert export(days[1], dest, lake) == 2
    assert "or both in one command" in capsys.readouterr().err
    assert main(["export", *map(str, days), str(dest), f"--to={lake}"]) == 0
    assert table_of(lake, dest)["id"].to_pylist() == ["a"]


@pytest.mark.parametrize("kind", ["sparse", "multi"])
def test_other_kinds_and_chunks_are_tables_too(lake, dest, tmp_path, kind):
    run = run_of_kinds(tmp_path / "kinds", (kind,), [20, 5])
    assert export(run, dest, lake) == 0
    assert table_of(lake, dest).num_rows == 25
    chunks = with_run(tmp_path / "more", "chunked", chunks=True)
    other = dest if lake == "iceberg" else tmp_path / "more"
    assert export(chunks, other, lake, **({"table": "chunks"} if lake == "iceberg" else {})) == 0
    found = (
        iceberg(dest, "chunks").scan().to_arrow() if lake == "iceberg" else table_of(lake, other)
    )
    assert found.num_rows == 614
    assert found["chunk"].to_pylist()[:3] == [0, 1, 0]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """A table of each lake with two runs, the second of which replaces rows of the first."""
    folder = tmp_path_factory.mktemp("read") / "a folder"
    one, two = with_run(folder, "one", [50, 7]), with_run(folder, "t w%20o", [9])
    record = json.loads((two / "run.json").read_text())
    record["input"]["skip_existing"] = [{"output": str(one), "run": "one", "listing": ""}]
    (two / "run.json").write_text(json.dumps(record))
    places = {"iceberg": folder / "iceberg", "delta": folder}
    for lake, dest in places.items():
        for run in (one, two):
            assert export(run, dest, lake) == 0
    ids, vectors = bert_embed.read([one, two])
    assert len(ids) == 57
    return places, dict(zip(ids, map(tuple, vectors.tolist()), strict=True))


def test_duckdb_reads_them(tables):
    places, wanted = tables
    connection = duckdb.connect()
    for name in ("avro", "iceberg", "delta"):
        import_extension(name)
        connection.execute(f"LOAD {name}")
    metadata = iceberg(places["iceberg"]).metadata_location.removeprefix("file://")
    for scan in (f"iceberg_scan('{metadata}')", f"delta_scan('{places['delta']}')"):
        rows = connection.sql(f"SELECT id, embedding FROM {scan}").fetchall()
        assert {id: tuple(vector) for id, vector in rows} == wanted
        assert len(rows) == len(wanted)


def test_polars_reads_them(tables):
    places, wanted = tables
    of_iceberg = pl.scan_iceberg(iceberg(places["iceberg"]), reader_override="pyiceberg").collect()
    of_delta = pl.read_delta(str(places["delta"]), use_pyarrow=True)
    for frame in (of_iceberg, of_delta):
        rows = frame.select("id", "embedding").rows()
        assert {id: tuple(vector) for id, vector in rows} == wanted
        assert len(rows) == len(wanted)


@pytest.mark.skipif(
    not JARS.exists(), reason="there are no jars of lakes: make readers, with Maven"
)
def test_spark_reads_them(tables):
    from pyspark.sql import SparkSession

    places, wanted = tables
    jars = ",".join(map(str, sorted(JARS.glob("*.jar"))))
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
        .getOrCreate()
    )
    try:
        metadata = iceberg(places["iceberg"]).metadata_location
        for form, place in (("iceberg", metadata), ("delta", str(places["delta"]))):
            rows = session.read.format(form).load(place).select("id", "embedding").collect()
            assert {row.id: tuple(row.embedding) for row in rows} == wanted
            assert len(rows) == len(wanted)
    finally:
        session.stop()


def test_a_vacuum_leaves_what_is_not_of_the_table(tmp_path):
    run = with_run(tmp_path, "run")
    before = contents(run)
    assert export(run, tmp_path, "delta") == 0
    DeltaTable(tmp_path).vacuum(dry_run=False)
    assert contents(run) == before
    assert Path(tmp_path, "run", "run.json").exists()
