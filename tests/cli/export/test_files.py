"""Exports to files: what is in them; one that was killed goes on, and nothing else is touched."""

import shutil
import signal
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_embed
from tests.support.command import Hold, data_files, flip, ran
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


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A run of which an export makes three files, which have 100,000 rows at most."""
    folder = tmp_path_factory.mktemp("long") / "run"
    return finished_run(folder, [60_000, 60_000, 60_000, 30_000], 4, kept=False)


def test_an_export_that_failed_continues_with_the_same_command(long, tmp_path, export):
    export(long, tmp_path / "whole" / "dest")
    dest = tmp_path / "part" / "dest"
    third = data_files(long)[2]
    flip(third)
    try:
        export(long, dest, refused="is damaged")
    finally:
        flip(third)
    whole = contents(tmp_path / "whole" / "dest")
    assert set(contents(dest)) < set(whole)
    first = next(path for path in dest.rglob("*0000*") if path.is_file())
    written = first.stat().st_mtime_ns
    export(long, dest)
    assert first.stat().st_mtime_ns == written
    assert contents(dest) == whole
    (dest / "emb_0001.npy").unlink()  # what was removed is written again
    export(long, dest)
    assert contents(dest) == whole


@pytest.mark.slow
def test_a_killed_export_leaves_no_half_file_and_continues(long, tmp_path, export):
    export(long, tmp_path / "whole" / "dest")
    whole = contents(tmp_path / "whole" / "dest")
    dest = tmp_path / "part" / "dest"
    # A file of rows is written and has not its name yet.
    hold = Hold(tmp_path / "hold", 1, "os||replace")
    killed = hold.start("export", str(long), str(dest), "--to=npy")
    assert [path for path in dest.rglob(".tmp-*") if not path.name.endswith("export.json")]
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    left = {name: data for name, data in contents(dest).items() if ".tmp-" not in name}
    assert all(whole[name] == data for name, data in left.items() if name != "export.json")
    export(long, dest)
    assert contents(dest) == whole


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return finished_run(tmp_path_factory.mktemp("safety") / "run", [50, 30])


def test_what_dest_holds_already_is_refused_by_name(small, long, tmp_path, export):
    dest = tmp_path / "dest"
    dest.mkdir()
    (dest / "letter.txt").write_text("mine")
    for target in ("npy", "vertex"):
        export(small, dest, target, f"{dest} holds letter.txt, which is not of this")
    assert contents(dest) == {"letter.txt": b"mine"}
    (dest / "letter.txt").unlink()
    export(small, dest)
    export(long, dest, refused="holds another export, as")
    (dest / "export.json").unlink()
    export(small, dest, refused="of an unknown export")
    (dest / "export.json").write_text("[]")
    export(small, dest, refused="holds another export, as")


@pytest.mark.parametrize(
    ("rows", "record", "message"),
    [
        ([5], {"status": "running"}, "the run is not complete (status running); run its command"),
        ([5], {"settings": {"shape": [2, 6]}}, "holds a stack of 2 vectors for each row"),
        ([], {}, "holds no vectors to export"),
    ],
)
def test_unfinished_outputs_stacks_and_empty_ones_are_refused(
    tmp_path, export, rows, record, message
):
    export(finished_run(tmp_path / "run", rows, **record), tmp_path / "dest", refused=message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"to": "nope"}, "--to must be one of npy, parquet, faiss, vertex, got 'nope'"),
        ({"index": "flat"}, "--index is for --to faiss, not for npy"),
        ({"to": "faiss", "index": "hnsw"}, "--index must be one of auto, flat, ivf, got"),
        ({"to": "faiss"}, "not installed here: pip install faiss-cpu\n"),
        ({"restricts": "lang"}, "--restricts is for --to vertex, not for npy"),
        ({"dest": "s3://bucket/a"}, "--to npy writes to a local folder or gs://"),
        ({"dest": "gs://bucket/"}, "DEST gs://bucket is a whole bucket; give a folder in it"),
        ({"dest": "{run}/new"}, "lies in the output itself"),
        ({"dest": "{link}/embeddings/x"}, "/link/embeddings/x lies in the output itself"),
        ({"source": "{link}", "dest": "{run}"}, "lies in the output itself"),
        ({"dest": "{run}/run.json"}, "run.json is a file; give a folder"),
        ({"dest": f"{__file__}/x"}, f"/x: {__file__} is a file; give a folder"),
        ({"source": "{run}/embeddings"}, "is a folder within a run's output; did you mean"),
    ],
)
def test_a_wrong_command_is_refused_in_one_sentence(small, tmp_path, export, changes, message):
    before, link = contents(small), tmp_path / "link"
    link.symlink_to(small)
    given = {"source": small, "dest": tmp_path / "dest", **changes}
    places = {"run": small, "link": link}
    export(**{key: str(value).format(**places) for key, value in given.items()}, refused=message)
    assert contents(small) == before
    assert not (tmp_path / "dest").exists()


MEASURE = """
import sys
from bert_embed.pipeline.cli import main
from tests.support.command import peak_memory
source, dest, *targets = sys.argv[1:]
for target in targets:
    assert main(["export", source, f"{dest}/{target}", "--to", target]) == 0
print(peak_memory() >> 20)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path):
    """Six times the rows, the same peak; the further vectors alone have 25 MB."""
    peaks = []
    for rows in (20_000, 120_000):
        parts = [10_000] * (rows // 10_000)
        source = finished_run(tmp_path / f"run{rows}", parts, 64, "int8", kept=False)
        command = [sys.executable, "-c", MEASURE, source, tmp_path / str(rows)]
        done = ran([*command, "npy", "vertex"], check=True)
        peaks.append(int(done.stdout.split()[-1]))
    assert peaks[1] - peaks[0] < 14, f"{peaks} MiB"


@pytest.mark.slow
def test_of_two_exports_that_begin_at_once_one_is_refused(small, long, tmp_path, export):
    dest = tmp_path / "dest"
    hold = Hold(tmp_path / "hold", 0, "os||link")  # the journal gets its name
    late = hold.start("export", str(small), str(dest), "--to", "npy")
    export(long, dest)
    whole = contents(dest)
    hold.go()
    _, errors = late.communicate(timeout=100)
    assert late.returncode == 2
    assert "holds another export, as" in errors
    assert contents(dest).items() <= whole.items()
