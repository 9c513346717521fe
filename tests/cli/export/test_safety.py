"""An export that was killed continues, and nothing that is not its own is touched."""

import os
import signal
import subprocess
import sys

import pytest

from tests.support.command import ROOT, Hold
from tests.support.outputs import contents, export, finished_run


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A run of which an export makes three files, which have 100,000 rows at most."""
    folder = tmp_path_factory.mktemp("long") / "run"
    return finished_run(folder, [60_000, 60_000, 60_000, 30_000], 4, kept=False)


def damaged(path):
    """Changes a byte; returns what undoes it."""
    data = path.read_bytes()
    path.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    return lambda: path.write_bytes(data)


def refuses(capsys, message, *words, **flags):
    """Exports what is refused with this message."""
    assert export(*words, **flags) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_an_export_that_failed_continues_with_the_same_command(long, tmp_path, capsys):
    assert export(long, tmp_path / "whole" / "dest", "npy") == 0
    dest = tmp_path / "part" / "dest"
    undo = damaged(sorted((long / "embeddings").iterdir())[2])
    try:
        refuses(capsys, "is damaged", long, dest, "npy")
    finally:
        undo()
    whole = contents(tmp_path / "whole" / "dest")
    assert set(contents(dest)) < set(whole)
    first = next(path for path in dest.rglob("*0000*") if path.is_file())
    written = first.stat().st_mtime_ns
    assert export(long, dest, "npy") == 0
    assert first.stat().st_mtime_ns == written
    assert contents(dest) == whole
    (dest / "emb_0001.npy").unlink()  # what was removed is written again
    assert export(long, dest, "npy") == 0
    assert contents(dest) == whole


def unfinished(dest):
    """Files of rows that are being written."""
    return [path for path in dest.rglob(".tmp-*") if not path.name.endswith("export.json")]


@pytest.mark.slow
def test_a_killed_export_leaves_no_half_file_and_continues(long, tmp_path):
    assert export(long, tmp_path / "whole" / "dest", "npy") == 0
    whole = contents(tmp_path / "whole" / "dest")
    dest = tmp_path / "part" / "dest"
    # A file of rows is written and has not its name yet.
    hold = Hold(tmp_path / "hold", 1, "os||replace")
    killed = hold.start("export", str(long), str(dest), "--to=npy")
    assert unfinished(dest)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    left = {name: data for name, data in contents(dest).items() if ".tmp-" not in name}
    assert all(whole[name] == data for name, data in left.items() if name != "export.json")
    assert export(long, dest, "npy") == 0
    assert contents(dest) == whole


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return finished_run(tmp_path_factory.mktemp("safety") / "run", [50, 30])


def test_what_dest_holds_already_is_refused_by_name(run, long, tmp_path, capsys):
    dest = tmp_path / "dest"
    dest.mkdir()
    (dest / "letter.txt").write_text("mine")
    for target in ("npy", "vertex"):
        message = f"{dest} holds letter.txt, which is not of this"
        refuses(capsys, message, run, dest, target)
    assert contents(dest) == {"letter.txt": b"mine"}
    (dest / "letter.txt").unlink()
    assert export(run, dest, "npy") == 0
    refuses(capsys, "holds another export, as", long, dest, "npy")
    (dest / "export.json").unlink()
    refuses(capsys, "of an unknown export", run, dest, "npy")
    (dest / "export.json").write_text("[]")
    refuses(capsys, "is not the journal of an export", run, dest, "npy")


def test_an_unfinished_run_is_refused(tmp_path, capsys):
    source = finished_run(tmp_path / "run", [50, 30], status="running")
    message = "the run is not complete (status running); run its command again"
    refuses(capsys, message, source, tmp_path / "dest", "npy")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "nope"}, "--to must be one of npy, parquet, faiss, vertex, got 'nope'"),
        ({"index": "flat"}, "--index is for --to faiss, not for npy"),
        ({"target": "faiss", "index": "hnsw"}, "--index must be one of auto, flat, ivf, got"),
        ({"target": "faiss"}, "not installed here: pip install faiss-cpu\n"),
        ({"restricts": "lang"}, "--restricts is for --to vertex, not for npy"),
        ({"dest": "s3://bucket/a"}, "--to npy writes to a local folder or gs://"),
        ({"dest": "gs://bucket/"}, "DEST gs://bucket is a whole bucket; give a folder in it"),
        ({"dest": "{run}/new"}, "lies in the output itself"),
        ({"dest": "{run}/run.json"}, "run.json is a file; give a folder"),
        ({"dest": f"{__file__}/x"}, f"/x: {__file__} is a file; give a folder"),
        ({"source": "{run}/embeddings"}, "is not the output of a run: it holds no run.json"),
    ],
)
def test_a_wrong_command_is_refused_in_one_sentence(run, tmp_path, capsys, changes, message):
    given = {"source": run, "dest": tmp_path / "dest", "target": "npy", **changes}
    given = {name: str(value).replace("{run}", str(run)) for name, value in given.items()}
    words = [given.pop(name) for name in ("source", "dest", "target")]
    refuses(capsys, message, *words, **given)
    assert not (tmp_path / "dest").exists()


def test_stacks_and_empty_outputs_are_refused(tmp_path, capsys):
    stack = finished_run(tmp_path / "stack", [5], settings={"shape": [2, 6]})
    message = "holds a stack of 2 vectors for each row"
    refuses(capsys, message, stack, tmp_path / "dest", "npy")
    empty = finished_run(tmp_path / "none", [])
    refuses(capsys, "holds no vectors to export", empty, tmp_path / "dest", "npy")


MEASURE = """
import resource, sys
from bert_embed.pipeline.cli import main
source, dest, *targets = sys.argv[1:]
for target in targets:
    assert main(["export", source, f"{dest}/{target}", "--to", target]) == 0
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows(tmp_path):
    """Six times the rows, the same peak; the further vectors alone have 25 MB."""
    peaks = []
    for rows in (20_000, 120_000):
        parts = [10_000] * (rows // 10_000)
        source = finished_run(tmp_path / f"run{rows}", parts, 64, "int8", kept=False)
        command = [sys.executable, "-c", MEASURE, source, tmp_path / str(rows)]
        done = subprocess.run(
            [*command, "npy", "vertex"], cwd=ROOT, env=os.environ, stdout=-1, check=True
        )
        peaks.append(int(done.stdout.split()[-1]) >> 10)
    assert peaks[1] - peaks[0] < 14, f"{peaks} MiB"


def test_dest_leads_into_the_output_through_a_link(tmp_path, capsys):
    run = finished_run(tmp_path / "run", [10])
    (tmp_path / "link").symlink_to(run)
    before = set(run.rglob("*"))
    for source, dest in ((run, tmp_path / "link" / "embeddings" / "x"), (tmp_path / "link", run)):
        refuses(capsys, f"DEST {dest} lies in the output itself", source, dest, "npy")
    assert set(run.rglob("*")) == before


@pytest.mark.slow
def test_of_two_exports_that_begin_at_once_one_is_refused(run, long, tmp_path):
    dest = tmp_path / "dest"
    hold = Hold(tmp_path / "hold", 0, "os||link")  # the journal gets its name
    late = hold.start("export", str(run), str(dest), "--to", "npy")
    assert export(long, dest, "npy") == 0
    whole = contents(dest)
    hold.go()
    _, errors = late.communicate(timeout=100)
    assert late.returncode == 2
    assert "holds another export, as" in errors
    assert contents(dest).items() <= whole.items()
