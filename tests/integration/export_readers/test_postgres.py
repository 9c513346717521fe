"""Exports in a real PostgreSQL with pgvector: run by `make test-export`."""

import json
import shutil
import signal

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bert_embed
from tests.support.command import Hold
from tests.support.outputs import ENTRIES, export, finished_run, run_of_kinds, sparse_rows
from tests.support.servers.postgres import PASSWORD

WIDTH = 20
PARTS = (900, 0, 103)
TOTAL = sum(PARTS)
# The column's type, the operator of its distance, and the operators of its index.
KINDS = {
    "float32": (f"vector({WIDTH})", "<=>", "vector_cosine_ops"),
    "float16": (f"halfvec({WIDTH})", "<=>", "halfvec_cosine_ops"),
    "int8": (f"vector({WIDTH})", "<=>", "vector_cosine_ops"),
    "ubinary": (f"bit({WIDTH})", "<~>", "bit_hamming_ops"),
}


@pytest.fixture
def query(server):
    """Asks the server."""
    with psycopg.connect(server.url, autocommit=True) as connection:

        def ask(*words):
            cursor = connection.execute(*words)
            return cursor.fetchall() if cursor.description else []

        yield ask


@pytest.mark.parametrize("index", ["none", "hnsw", "ivfflat"])
@pytest.mark.parametrize("dtype", list(KINDS))
def test_the_table_holds_all_rows_and_finds_the_nearest(server, query, tmp_path, dtype, index):
    run = finished_run(tmp_path / "run", PARTS, WIDTH, dtype)
    table = f"{dtype}_{index}"
    assert export(run, server.url, "pgvector", table=table, index=index) == 0
    ids, vectors = bert_embed.read(run)
    kind, operator, operators = KINDS[dtype]
    assert query(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attname = 'embedding'",
        [table],
    ) == [(kind,)]
    found = query(f"SELECT id, embedding::text, year, tags, text, lang FROM {table} ORDER BY year")
    assert [row[0] for row in found] == ids
    if dtype == "ubinary":
        assert found[3][1] == "".join("1" if number > 0 else "0" for number in vectors[3])
    else:
        read = np.array([json.loads(row[1]) for row in found], np.float32)
        np.testing.assert_array_equal(read, vectors)
    assert found[7][2:] == (7, ["bank", "all"], "Text\t7\nwith ümlaut", "bank")
    assert found[5][5] is None
    nearest = f"SELECT id FROM {table} ORDER BY embedding {operator} %s LIMIT 1"
    assert query(nearest, [found[7][1]]) == [(ids[7],)]
    indexes = [
        row[0] for row in query("SELECT indexdef FROM pg_indexes WHERE tablename = %s", [table])
    ]
    assert [each for each in indexes if operators in each and index in each] or index == "none"
    assert len(indexes) == 1 + (index != "none")  # and that of the primary key


@pytest.mark.parametrize(
    ("similarity", "operators"),
    [("dot", "vector_ip_ops"), ("euclidean", "vector_l2_ops"), ("manhattan", "vector_l1_ops")],
)
def test_an_index_compares_as_the_model_does(server, query, tmp_path, similarity, operators):
    run = finished_run(tmp_path / "run", [30], WIDTH)
    record = json.loads((run / "run.json").read_text())
    record["vectors"]["similarity"] = similarity
    (run / "run.json").write_text(json.dumps(record))
    assert export(run, server.url, "pgvector", table=similarity, index="hnsw") == 0
    found = query("SELECT indexdef FROM pg_indexes WHERE tablename = %s", [similarity])
    assert len([name for (name,) in found if operators in name]) == 1


@pytest.mark.parametrize("index", ["none", "hnsw", "ivfflat"])
def test_sparse_vectors_are_a_column_that_finds_by_inner_product(server, query, tmp_path, index):
    run = run_of_kinds(tmp_path / "run", ["dense", "sparse"], [50])
    table = f"sparse_{index}"
    assert export(run, server.url, "pgvector", table=table, index=index) == 0
    vectors = sparse_rows(0, 50)
    rows = query(f"SELECT id, sparse::text, embedding::text FROM {table} ORDER BY year")
    for row, (_, text, dense) in enumerate(rows):
        one = vectors[np.array([row])]
        entries, size = text.removeprefix("{").split("}/")
        pairs = [pair.split(":") for pair in entries.split(",") if pair]
        assert [int(index) - 1 for index, _ in pairs] == one.indices.tolist()
        np.testing.assert_array_equal(np.float32([weight for _, weight in pairs]), one.values)
        assert (int(size), len(json.loads(dense))) == (ENTRIES, 12)
    matrix = np.zeros((50, ENTRIES))
    matrix[np.repeat(np.arange(50), np.diff(vectors.splits)), vectors.indices] = vectors.values
    longest = int(np.diff(vectors.splits).argmax())
    best = np.argsort(-(matrix @ matrix[longest]), kind="stable")[:5]
    nearest = f"SELECT id FROM {table} ORDER BY sparse <#> %s::sparsevec LIMIT 5"
    assert [row[0] for row in query(nearest, [rows[longest][1]])] == [f"d/{row}" for row in best]
    indexes = query("SELECT indexdef FROM pg_indexes WHERE tablename = %s", [table])
    assert len([name for (name,) in indexes if "sparsevec_ip_ops" in name]) == (index == "hnsw")


def test_sparse_vectors_alone_and_what_an_index_does_not_take(server, query, tmp_path, capsys):
    run = run_of_kinds(tmp_path / "run", ["sparse"], [50])
    assert export(run, server.url, "pgvector", table="only_sparse") == 0
    assert query("SELECT count(sparse) FROM only_sparse") == [(50,)]
    capsys.readouterr()
    assert export(run, server.url, "pgvector", table="refused", index="ivfflat") == 2
    assert "--index ivfflat takes no sparse vectors" in capsys.readouterr().err


def test_a_table_in_the_place_of_a_renamed_one_has_its_index(server, query, tmp_path):
    run = finished_run(tmp_path / "run", PARTS, WIDTH)
    for kept in ("first", "second"):
        assert export(run, server.url, "pgvector", table="daily", index="hnsw") == 0
        query(f"ALTER TABLE daily RENAME TO {kept}")
        found = query("SELECT indexdef FROM pg_indexes WHERE tablename = %s", [kept])
        assert len([each for (each,) in found if "hnsw" in each]) == 1


def test_chunks_have_a_key_of_two_columns(server, query, tmp_path):
    run = finished_run(tmp_path / "run", [10], WIDTH, chunks=True)
    assert export(run, server.url, "pgvector", table="chunked") == 0
    assert query("SELECT chunk, start, stop FROM chunked WHERE id = 'd/3' ORDER BY chunk") == [
        (0, 0, 4),
        (1, 4, 9),
    ]


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A run of 210,000 rows."""
    parts = [60_000, 60_000, 60_000, 30_000]
    return finished_run(tmp_path_factory.mktemp("long") / "run", parts, 4, kept=False)


@pytest.mark.slow
def test_a_killed_export_leaves_nothing_and_starts_anew(server, query, long, capsys, tmp_path):
    held = "bert_embed.pipeline.export.source|Source|numbers"  # of the second batch
    killed = Hold(tmp_path / "hold", 1, held).start(
        "export", str(long), server.url, "--to", "pgvector", "--table", "killed"
    )
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert query("SELECT to_regclass('killed')") == [(None,)]
    assert export(long, server.url, "pgvector", table="killed") == 0
    assert query("SELECT count(*), count(DISTINCT id) FROM killed") == [(210_000, 210_000)]
    capsys.readouterr()
    assert export(long, server.url, "pgvector", table="killed") == 0
    assert "nothing to do" in capsys.readouterr().out


def test_what_the_server_refuses_is_one_sentence_without_secrets(
    server, query, tmp_path, capsys, monkeypatch
):
    run = finished_run(tmp_path / "run", [10], WIDTH)
    query("CREATE TABLE mine (id text)")
    other = finished_run(tmp_path / "other", [11], WIDTH)
    assert export(other, server.url, "pgvector", table="theirs") == 0
    capsys.readouterr()

    def error(dest=server.url, code=2, **flags):
        assert export(run, dest, "pgvector", **flags) == code
        message = capsys.readouterr().err
        assert message.count("\n") == 1
        assert PASSWORD not in message
        return message

    assert "--table mine exists and is not of an export" in error(table="mine")
    assert "--table theirs holds another export" in error(table="theirs")
    with_password = server.url.replace("postgres@", f"postgres:{PASSWORD}@")
    assert "must not hold a password" in error(with_password)
    assert "must not hold a password" in error(f"{server.url}?password={PASSWORD}")
    assert "is not the URL of a PostgreSQL database" in error(f"{server.url}?{PASSWORD}=1")
    wide = finished_run(tmp_path / "wide", [3], 2001, kept=False)
    assert export(wide, server.url, "pgvector", index="hnsw") == 2
    said = "an index of vector takes 2,000 numbers, the vectors have 2,001"
    assert said in capsys.readouterr().err
    monkeypatch.setenv("PGPASSWORD", "wrong")
    assert "password authentication failed" in error(code=1)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert "PostgreSQL failed: connection failed" in error("postgresql://a@127.0.0.1:9/b", code=1)


def test_ids_that_are_there_twice_and_texts_with_nul_are_refused(server, tmp_path, capsys):
    run = finished_run(tmp_path / "run", [10, 10], WIDTH)
    first, second = sorted((run / "embeddings").iterdir())
    assert export(with_table(run, second, pq.read_table(first)), server.url, "pgvector") == 2
    error = capsys.readouterr().err
    assert "has rows with the same key: Key (id)=(d/0) already exists. Embed with another" in error
    texts = pq.read_table(first)
    at = texts.column_names.index("text")
    nul = texts.set_column(at, "text", pa.array(["a\0b"] * 10))
    run = finished_run(tmp_path / "other", [10], WIDTH)
    run = with_table(run, next((run / "embeddings").iterdir()), nul)
    assert export(run, server.url, "pgvector", table="nul") == 2
    error = capsys.readouterr().err
    assert "holds a value that PostgreSQL cannot store" in error
    assert "a\0b" not in error


def test_times_are_copied_or_refused_by_their_column(server, query, tmp_path, capsys):
    last = 253402300799  # the last second of the year 9999
    for name, second, code in (("last", last, 0), ("beyond", last + 1, 2)):
        run = finished_run(tmp_path / name, [10], WIDTH)
        path = next((run / "embeddings").iterdir())
        times = pa.array([second] * 10, pa.timestamp("s", "Asia/Tokyo"))
        fine = pa.array([1_001] * 10, pa.time64("ns"))
        table = pq.read_table(path).append_column(name, times).append_column("fine", fine)
        run = with_table(run, path, table)
        assert export(run, server.url, "pgvector", table=f"times_{name}") == code
    assert "before the year 1 or after 9999 in its column beyond" in capsys.readouterr().err
    found = query("SELECT DISTINCT extract(epoch FROM last)::bigint, fine::text FROM times_last")
    assert found == [(last, "00:00:00.000001")]


def with_table(run, path, table):
    """The run with another table in the place of a file, without reports to compare it with."""
    shutil.rmtree(run / "_state")
    before = path.stat().st_size
    pq.write_table(table, path)
    record = json.loads((run / "run.json").read_text())
    record["written"]["embeddings"]["bytes"] += path.stat().st_size - before
    (run / "run.json").write_text(json.dumps(record))
    return run
