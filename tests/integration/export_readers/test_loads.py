"""The examples `load_*.py`, with PostgreSQL, OpenSearch, Qdrant's client, Iceberg and Delta Lake.

Run by `make test-export`.
"""

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import urllib.request
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config
from qdrant_client import QdrantClient

from examples import load_qdrant, output_rows
from tests.support.command import ROOT
from tests.support.outputs import finished_run, run_of_kinds
from tests.support.servers.gcs import answers, free_port, running
from tests.support.servers.postgres import PASSWORD

JAVA = ROOT / "tests" / "integration" / "export_readers" / "java"
PAGE = (ROOT / "docs" / "export.md").read_text("utf-8")


def run(example, *words):
    """Runs an example as on a command line; SystemExit has the sentence with which it ends."""
    assert f"python -m examples.{example} " in PAGE
    with mock.patch.object(sys, "argv", [example, *map(str, words)]):
        runpy.run_module(f"examples.{example}", run_name="__main__")


def ends(capsys, example, *words):
    with pytest.raises(SystemExit) as ended:
        run(example, *words)
    assert PASSWORD not in str(ended.value)
    assert not capsys.readouterr().out
    return str(ended.value)


class PgVector:
    def __init__(self, request, folder):
        self.words = request.getfixturevalue("server"), f"of_{folder.name.lower()}"

    def rows(self):
        return {key: (text, json.loads(vector)) for key, text, vector in self.ask("embedding")}

    def state(self):
        return self.ask("xmin")  # the transaction that wrote a row

    def ask(self, column):
        with psycopg.connect(self.words[0]) as connection:
            query = f"SELECT key, text, {column}::text FROM {self.words[1]} ORDER BY key"
            return connection.execute(query).fetchall()


class OpenSearch:
    def __init__(self, request, folder):
        self.words = (f"{request.getfixturevalue('node')}/of_{folder.name.lower()}",)

    def rows(self):
        found = (hit["_source"] for hit in self.hits())
        return {row["key"]: (row["text"], row["embedding"]) for row in found}

    def state(self):
        return sorted((hit["_id"], hit["_version"]) for hit in self.hits())

    def hits(self):
        return sent(f"{self.words[0]}/_search", {"size": 1000, "version": True})["hits"]["hits"]


class Qdrant:
    words = ()

    def __init__(self, request, folder):
        self.client = QdrantClient(":memory:")

    def load(self, output):
        load_qdrant.load(str(output), self.client, "books")

    def rows(self):
        points, _ = self.client.scroll("books", limit=1000, with_vectors=True)
        return {point.payload["key"]: (point.payload["text"], point.vector) for point in points}

    def state(self):
        return {key: text for key, (text, _) in self.rows().items()}


class Lake:
    def rows(self):
        columns = ("key", "text", "embedding")
        read = (self.arrow()[name].to_pylist() for name in columns)
        return {key: (text, vector) for key, text, vector in zip(*read, strict=True)}


class Iceberg(Lake):
    def __init__(self, request, folder):
        patch = request.getfixturevalue("monkeypatch")
        patch.setenv("PYICEBERG_CATALOG__DEFAULT__URI", f"sqlite:///{folder}/catalog.db")
        patch.setenv("PYICEBERG_CATALOG__DEFAULT__WAREHOUSE", f"file://{folder}")
        patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # it reads them when imported
        self.words = ("days.books",)

    def table(self):
        return load_catalog().load_table("days.books")

    def arrow(self):
        return self.table().scan().to_arrow()

    def state(self):
        return self.table().metadata.current_snapshot_id


class Delta(Lake):
    def __init__(self, request, folder):
        self.words = (str(folder / "table"),)

    def arrow(self):
        return DeltaTable(self.words[0]).to_pyarrow_table()

    def state(self):
        return DeltaTable(self.words[0]).version()


KINDS = {
    "load_pgvector": PgVector,
    "load_opensearch": OpenSearch,
    "load_qdrant": Qdrant,
    "load_iceberg": Iceberg,
    "load_delta": Delta,
}


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """The address of an OpenSearch of one node."""
    jars = sorted((ROOT / "build" / "readers" / "opensearch").glob("*.jar"))
    if not jars:
        pytest.skip("there are no jars of opensearch: make readers, with Maven")
    homes = [Path(os.environ.get("JAVA_HOME", "nowhere")), *sorted(Path("/usr/lib/jvm").glob("*"))]
    paths = [shutil.which("java"), *(shutil.which(home / "bin" / "java") for home in homes)]
    java = next((path for path in paths if path and version_of(path) >= 17), None)
    if java is None:
        pytest.skip("there is no Java 17 or newer here")
    folder, port = tmp_path_factory.mktemp("node"), free_port()
    url = f"http://127.0.0.1:{port}"
    words = [java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    words += ["-cp", ":".join(map(str, jars)), str(JAVA / "OpenSearchNode.java"), str(folder)]
    health = f"{url}/_cluster/health"
    with running([*words, str(port)], folder / "log", lambda: answers(health), patience=120):
        yield url


def version_of(java):
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    number = re.search(r'version "(\d+)', said)
    return int(number[1]) if number else 0


def sent(url, body, method="POST"):
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


@pytest.fixture(params=list(KINDS))
def database(request, tmp_path):
    """What an example loads into; `load` runs it."""
    made = KINDS[request.param](request, tmp_path)
    if not hasattr(made, "load"):
        made.load = lambda output: run(request.param, output, *made.words)
    return made


def test_a_database_follows_a_feed(days, database, capsys):
    """Five days of documents that come, change, grow, shrink, go and return."""
    for day in "12345":
        database.load(days / "days" / day)
        before = database.state()
        capsys.readouterr()
        database.load(days / "days" / day)
        said = capsys.readouterr().out
        assert not said or re.search(" 0 .*written, 0 deleted|nothing new", said)
        assert database.state() == before
    [place] = (path for path in (days / "fresh").iterdir() if path.name in output_rows.FOLDERS)
    fresh = output_rows.rows(ds.dataset(place)).to_table()
    found = database.rows()
    assert sorted(found) == sorted(fresh["key"].to_pylist())
    for row in fresh.to_pylist():
        assert found[row["key"]][0] == row["text"]
        vector = np.array(row["embedding"])
        if isinstance(database, Qdrant):  # which keeps directions alone
            vector /= np.linalg.norm(vector)
        np.testing.assert_allclose(found[row["key"]][1], vector, atol=1e-5)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({"dtype": "float16"}, "is no complete output of float32 vectors"),
        ({"status": "running"}, "is no complete output of float32 vectors"),
        ({"output_format": "jsonl"}, "has not the files in Parquet"),
        (None, "holds no vectors of documents"),
    ],
)
def test_what_is_not_whole_or_no_array_is_refused(tmp_path, capsys, made, said):
    if made is None:
        output = run_of_kinds(tmp_path / "run", ["sparse"], [3])
    else:
        output = finished_run(tmp_path / "run", [3], **made)
    assert said in ends(capsys, "load_delta", output, tmp_path / "table")
    assert not (tmp_path / "table").exists()


def test_equal_ids_are_refused(tmp_path, capsys):
    def changed(block):
        return replace(block, ids=pa.array(["a", "b", "a"]))

    output = finished_run(tmp_path / "run", [3], changed=changed)
    assert "1 rows whose key another one has" in ends(capsys, "load_delta", output, tmp_path / "t")


def test_long_texts_are_cut_into_bodies_by_bytes():
    lines = [b"x" * 6000] * 21_000 + [b"y" * (40 << 20), b"z"]  # 126 MB, then one of 40 MiB
    bodies = list(output_rows.bodies(lines))
    assert [line for body in bodies for line in body] == lines
    sizes = [sum(map(len, body)) for body in bodies]
    assert sorted(sizes)[-2] <= output_rows.BODY < sizes[-2] == 40 << 20
    assert len(sizes) == 10


def test_postgresql_keeps_nothing_of_a_load_that_fails(server, tmp_path, capsys, monkeypatch):
    def changed(block):
        return replace(block, texts=pa.array(["a", "b\0c", "d"]))

    output = finished_run(tmp_path / "run", [3], changed=changed)
    said = ends(capsys, "load_pgvector", output, server, "failed")
    assert f"PostgreSQL refuses {output}, nothing is loaded: " in said
    with psycopg.connect(server) as connection:
        assert connection.execute("SELECT to_regclass('failed')").fetchone() == (None,)
    monkeypatch.setenv("PGPASSWORD", "wrong")
    assert "authentication failed" in ends(capsys, "load_pgvector", output, server, "failed")


def test_opensearch_ends_at_the_first_error(node, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(output_rows, "BODY", 20_000)
    output = finished_run(tmp_path / "run", [300])
    mapping = {"mappings": {"properties": {"lang": {"type": "integer"}}}}  # it has texts
    sent(f"{node}/strict", mapping, method="PUT")
    said = ends(capsys, "load_opensearch", output, f"{node}/strict")
    assert f"{node}/strict refuses the document d/1: failed to parse field [lang]" in said
    assert sent(f"{node}/strict/_count", {})["count"] < 20  # of 60 without a language
    said = ends(capsys, "load_opensearch", output, f"{node}/a/b/c")
    assert re.search(r"/a/b/c refuses \d+ bytes: 4\d\d ", said)
    said = ends(capsys, "load_opensearch", output, "http://127.0.0.1:9/books")
    assert "http://127.0.0.1:9/books does not answer: " in said


def test_qdrant_that_does_not_answer_is_told_of(tmp_path, capsys):
    output = finished_run(tmp_path / "run", [3])
    said = ends(capsys, "load_qdrant", output, "http://127.0.0.1:9", "books")
    assert f"Qdrant refuses {output}: " in said


@pytest.mark.parametrize("change", ["renamed", "dropped", "added again", "other columns"])
def test_a_table_of_iceberg_whose_columns_changed_is_refused(request, tmp_path, capsys, change):
    lake = Iceberg(request, tmp_path)
    run("load_iceberg", finished_run(tmp_path / "run", [3]), *lake.words)
    capsys.readouterr()
    output = finished_run(tmp_path / "other", [9], extra=change != "other columns")
    if change == "renamed":
        with lake.table().update_schema() as update:
            update.rename_column("text", "body")
    elif change != "other columns":
        vectors = lake.table().schema().find_field("embedding").field_type
        with lake.table().update_schema() as update:
            update.delete_column("embedding")
        if change == "added again":
            with lake.table().update_schema() as update:
                update.add_column("embedding", vectors)
    before = lake.state()
    said = ends(capsys, "load_iceberg", output, *lake.words)
    assert "days.books was made with the columns key, " in said
    assert "load into another table" in said
    assert lake.state() == before


@pytest.mark.parametrize("change", ["dropped", "mapped"])
def test_a_table_of_delta_lake_whose_columns_changed_is_refused(request, tmp_path, capsys, change):
    lake = Delta(request, tmp_path)
    [place] = lake.words
    run("load_delta", finished_run(tmp_path / "run", [3]), place)
    capsys.readouterr()
    if change == "dropped":
        held = lake.arrow().drop_columns("text")
        write_deltalake(place, held, mode="overwrite", schema_mode="overwrite")
    else:  # as Spark does before it renames or drops a column
        log = Path(place, "_delta_log")
        lines = map(json.loads, (log / f"{0:020}.json").read_text().splitlines())
        [metadata] = (line["metaData"] for line in lines if "metaData" in line)
        mapping = "delta.columnMapping"
        metadata["configuration"] = {f"{mapping}.mode": "name", f"{mapping}.maxColumnId": "99"}
        schema = json.loads(metadata["schemaString"])
        for number, field in enumerate(schema["fields"], 1):
            names = {f"{mapping}.id": number, f"{mapping}.physicalName": field["name"]}
            field["metadata"] |= names
        metadata["schemaString"] = json.dumps(schema)
        protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
        lines = [{"protocol": protocol}, {"metaData": metadata}]
        (log / f"{2:020}.json").write_text("\n".join(map(json.dumps, lines)))
    before = lake.state()
    said = ends(capsys, "load_delta", finished_run(tmp_path / "other", [9]), place)
    assert "load into another table" in said
    assert lake.state() == before
