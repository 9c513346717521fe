"""A feed of five days in PostgreSQL, Qdrant and others is what a fresh export of the last day is.

Run by `make test-export`.
"""

import json

import faiss
import numpy as np
import psycopg
import pyarrow.parquet as pq
import pytest
from qdrant_client import QdrantClient, models

from tests.integration.export_readers.test_sparse import search_node, send
from tests.support.command import Hold, embed
from tests.support.daily import some_texts, write
from tests.support.outputs import contents, export

pytestmark = pytest.mark.slow
KIND = "application/x-ndjson"
WIDTH = 32


def corpora():
    """The corpus of each day: documents come, change, grow, shrink, go and return."""
    day = {name: f"{text}. Seven stars." for name, text in some_texts(40).items()}
    yield dict(day)
    day |= {"d1": "Money", "d2": "One. Two. Three. Four", "new": "Vault. River"}
    first_go = {name: day.pop(name) for name in ("d3", "d4", "d5")}
    yield dict(day)
    day |= {"d2": "One. Two", "d4": first_go["d4"], "d5": "Bank. Of. Stars"}
    del day["d6"], day["new"]
    yield dict(day)
    yield dict(day)  # a day without news
    day |= {"d1": "Money. Vault. River", "d7": "Bank", "new": "Vault"}
    del day["d4"]
    yield dict(day)


@pytest.fixture(scope="module", params=["documents", "chunks"])
def days(request, tmp_path_factory, tiny_bundle):
    """An increment a day, and under `fresh` a whole run of the last day."""
    folder = tmp_path_factory.mktemp(request.param)
    flags = {"keep_text": True} | ({"chunk": "sentence"} if request.param == "chunks" else {})
    for number, texts in enumerate(corpora(), 1):
        source = write(folder / f"{number}.jsonl", texts)
        earlier = {"skip_existing": folder / "days"} if number > 1 else {}
        assert embed(folder / "days" / str(number), tiny_bundle, source, **flags, **earlier) == 0
    assert embed(folder / "fresh", tiny_bundle, source, **flags) == 0
    return folder


def table_rows(server, table):
    """The rows of a table by id, and number of the chunk: text and vector."""
    with psycopg.connect(server.url) as connection:
        cursor = connection.execute(f"SELECT * FROM {table}")
        names = [column.name for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return {
        (row["id"], row.get("chunk")): (row["text"], json.loads(row["embedding"])) for row in rows
    }


def assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, (text, vector) in wanted.items():
        assert found[name][0] == text
        np.testing.assert_allclose(found[name][1], vector, atol=1e-4)


@pytest.mark.parametrize("together", [False, True])
def test_a_table_follows_the_feed(days, server, capsys, together):
    name = f"{days.name.rstrip('0123456789')}_{together}".lower()
    flags = {"table": f"feed_{name}", "index": "hnsw"}
    words = [
        f"{days}/days/[1-{day}]" if together else days / "days" / str(day) for day in range(1, 6)
    ]
    for day, source in enumerate(words, 1):
        if not together and day == 2:  # the third lacks what the second says
            assert export(words[2], server.url, "pgvector", **flags) == 2
            assert f"lacks {words[1]}, which" in capsys.readouterr().err
        assert export(source, server.url, "pgvector", **flags) == 0
        before = table_rows(server, flags["table"])
        capsys.readouterr()
        assert export(source, server.url, "pgvector", **flags) == 0
        assert "nothing to do" in capsys.readouterr().out
        assert table_rows(server, flags["table"]) == before
    assert export(days / "fresh", server.url, "pgvector", table=f"fresh_{name}") == 0
    assert_same(before, table_rows(server, f"fresh_{name}"))
    assert export(days / "fresh", server.url, "pgvector", **flags) == 2
    assert "holds another export" in capsys.readouterr().err


def points(client):
    found, _ = client.scroll("books", limit=1000, with_vectors=True)
    return {
        (point.payload["id"], point.payload.get("chunk")): (
            point.payload["text"],
            point.vector["dense"],
        )
        for point in found
    }


def new_client():
    client = QdrantClient(":memory:")
    dense = models.VectorParams(size=WIDTH, distance=models.Distance.COSINE)
    client.create_collection("books", vectors_config={"dense": dense})
    return client


def apply_points(client, folder):
    """As docs/export.md says."""
    for path in sorted(folder.glob("deleted_*.txt")):
        client.delete("books", models.PointIdsList(points=path.read_text().split()))
    for path in sorted(folder.glob("points_*.jsonl")):
        lines = path.read_bytes().splitlines()
        client.upload_points("books", map(models.PointStruct.model_validate_json, lines), wait=True)


@pytest.mark.parametrize("parts", [["1", "2", "3", "4", "5"], ["1", "[2-5]"]])
def test_a_collection_follows_the_feed(days, tmp_path, parts):
    client, fresh = new_client(), new_client()
    for number, part in enumerate(parts):
        for _ in range(2):
            assert export(f"{days}/days/{part}", tmp_path / str(number), "qdrant") == 0
            apply_points(client, tmp_path / str(number))
    assert export(days / "fresh", tmp_path / "fresh", "qdrant") == 0
    apply_points(fresh, tmp_path / "fresh")
    assert_same(points(client), points(fresh))


def applied(folders, kind):
    """The ids that an index has after the files of these exports."""
    held = set()
    for folder in folders:
        if kind == "vertex":
            texts = [path.read_text() for path in sorted((folder / "delete").glob("*.txt"))]
            held -= {line for text in texts for line in text.splitlines()}
            for path in sorted(folder.glob("vectors_*.json")):
                held |= {json.loads(line)["id"] for line in path.read_text().splitlines()}
        else:
            lines = [
                line
                for path in sorted(folder.glob("bulk_*.jsonl"))
                for line in path.read_text().splitlines()
            ]
            for line in map(json.loads, lines):
                if "delete" in line:
                    held.discard(line["delete"]["_id"])
                elif "index" in line:
                    held.add(line["index"]["_id"])
    return held


@pytest.mark.parametrize("target", ["vertex", "opensearch"])
@pytest.mark.parametrize("parts", [["1", "2", "3", "4", "5"], ["1", "[2-5]"]])
def test_files_name_what_is_deleted(days, tmp_path, target, parts):
    folders = [tmp_path / str(number) for number, _ in enumerate(parts)]
    for folder, part in zip(folders, parts, strict=True):
        assert export(f"{days}/days/{part}", folder, target) == 0
        before = contents(folder)
        assert export(f"{days}/days/{part}", folder, target) == 0
        assert contents(folder) == before
    assert export(days / "fresh", tmp_path / "fresh", target) == 0
    assert applied(folders, target) == applied([tmp_path / "fresh"], target)


@pytest.mark.parametrize("program", ["opensearch", "elasticsearch"])
def test_a_node_follows_the_feed(days, tmp_path, program):
    def rows_of(source, name):
        assert export(source, tmp_path / name, "opensearch") == 0
        url = f"{node}/{'fresh' if name == 'fresh' else 'books'}"
        for path in sorted((tmp_path / name).glob("bulk_*.jsonl")) * 2:
            answer = send(f"{url}/_bulk?refresh=true", "POST", path.read_bytes(), KIND)
            assert not answer["errors"], answer
        hits = send(f"{url}/_search", "POST", b'{"size": 1000}')["hits"]["hits"]
        return {hit["_id"]: (hit["_source"]["text"], hit["_source"]["embedding"]) for hit in hits}

    with search_node(program, tmp_path) as node:
        for day in "12345":
            found = rows_of(days / "days" / day, day)
        assert_same(found, rows_of(days / "fresh", "fresh"))


@pytest.mark.parametrize("target", ["pgvector", "faiss"])
@pytest.mark.parametrize("columns", ["", "a:float64", "a:int64,b"])
def test_an_increment_with_other_columns_is_refused(
    server, tmp_path, tiny_bundle, target, columns, capsys
):
    dest = server.url if target == "pgvector" else tmp_path / "dest"
    flags = {"table": tmp_path.name} if target == "pgvector" else {}
    for day, extra, code in ((1, "a:int64", 0), (2, columns, 2)):
        record = {"id": "d", "text": f"river {day}", "a": day, "b": "x"}
        (tmp_path / "in.jsonl").write_text(json.dumps(record))
        more = {"extra_columns": extra} if extra else {}
        more |= {"skip_existing": tmp_path / "1"} if day == 2 else {}
        assert embed(tmp_path / str(day), tiny_bundle, tmp_path / "in.jsonl", **more) == 0
        assert export(tmp_path / str(day), dest, target, **flags) == code
    assert "has the columns id" in capsys.readouterr().err


def index_rows(folder):
    """The rows of a faiss index: text and vector."""
    index = faiss.read_index(str(folder / "knn.index"))
    rows = pq.read_table(folder / "ids.parquet").to_pylist()
    vectors = index.reconstruct_n(0, index.ntotal)
    names = [(row["id"], row.get("chunk")) for row in rows]
    assert len(set(names)) == len(names) == index.ntotal
    return {
        name: (row["text"], vector) for name, row, vector in zip(names, rows, vectors, strict=True)
    }


@pytest.mark.parametrize("index", ["flat", "ivf"])
def test_an_index_follows_the_feed(days, tmp_path, capsys, index):
    for part in ("1", "2", "[1-4]", "5"):
        assert export(f"{days}/days/{part}", tmp_path / "dest", "faiss", index=index) == 0
        before = contents(tmp_path / "dest")
        capsys.readouterr()
        assert export(f"{days}/days/{part}", tmp_path / "dest", "faiss", index=index) == 0
        assert "nothing to do" in capsys.readouterr().out
        assert contents(tmp_path / "dest") == before
    assert export(days / "fresh", tmp_path / "fresh", "faiss", index="flat") == 0
    assert_same(index_rows(tmp_path / "dest"), index_rows(tmp_path / "fresh"))


# A file of the two has its name; the journal names the day, and none or one file its place.
@pytest.mark.parametrize(
    ("renamed", "then"), [(1, "1"), (3, "1"), (4, "1"), (3, "4"), (4, "[1-3]")]
)
def test_a_killed_increment_of_an_index_is_there_whole_or_not_at_all(
    days, tmp_path, capsys, renamed, then
):
    def export_day(day, dest="dest"):
        return export(days / "days" / day, tmp_path / dest, "faiss")

    assert [export_day(day, dest) for day in "12" for dest in ("dest", "other")] == [0] * 4
    if renamed > 1:
        assert export_day("3", "other") == 0
    hold = Hold(tmp_path / "hold", renamed, "os||replace")
    words = ["export", str(days / "days" / "3"), str(tmp_path / "dest"), "--to", "faiss"]
    killed = hold.start(*words)
    assert export_day("3") == 1
    assert "another export writes to" in capsys.readouterr().err
    killed.kill()
    killed.communicate()
    assert [export_day(then, dest) for dest in ("dest", "other")] == [0, 0]
    assert contents(tmp_path / "dest").items() >= contents(tmp_path / "other").items()
    assert [export_day(day) for day in "345"] == [0, 0, 0]
    assert export(days / "fresh", tmp_path / "fresh", "faiss") == 0
    assert_same(index_rows(tmp_path / "dest"), index_rows(tmp_path / "fresh"))
    assert not list((tmp_path / "dest").glob(".next-*"))
