"""An export that was killed continues, and nothing that is not its own is touched."""

import signal
import sys

import pytest

from tests.support.command import Hold, data_files, flip, ran
from tests.support.outputs import contents, finished_run


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
def run(tmp_path_factory):
    return finished_run(tmp_path_factory.mktemp("safety") / "run", [50, 30])


def test_what_dest_holds_already_is_refused_by_name(run, long, tmp_path, export):
    dest = tmp_path / "dest"
    dest.mkdir()
    (dest / "letter.txt").write_text("mine")
    for target in ("npy", "vertex"):
        export(run, dest, target, f"{dest} holds letter.txt, which is not of this")
    assert contents(dest) == {"letter.txt": b"mine"}
    (dest / "letter.txt").unlink()
    export(run, dest)
    export(long, dest, refused="holds another export, as")
    (dest / "export.json").unlink()
    export(run, dest, refused="of an unknown export")
    (dest / "export.json").write_text("[]")
    export(run, dest, refused="holds another export, as")


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
def test_a_wrong_command_is_refused_in_one_sentence(run, tmp_path, export, changes, message):
    before, link = contents(run), tmp_path / "link"
    link.symlink_to(run)
    given = {"source": run, "dest": tmp_path / "dest", **changes}
    places = {"run": run, "link": link}
    export(**{key: str(value).format(**places) for key, value in given.items()}, refused=message)
    assert contents(run) == before
    assert not (tmp_path / "dest").exists()


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
        done = ran([*command, "npy", "vertex"], check=True)
        peaks.append(int(done.stdout.split()[-1]) >> 10)
    assert peaks[1] - peaks[0] < 14, f"{peaks} MiB"


@pytest.mark.slow
def test_of_two_exports_that_begin_at_once_one_is_refused(run, long, tmp_path, export):
    dest = tmp_path / "dest"
    hold = Hold(tmp_path / "hold", 0, "os||link")  # the journal gets its name
    late = hold.start("export", str(run), str(dest), "--to", "npy")
    export(long, dest)
    whole = contents(dest)
    hold.go()
    _, errors = late.communicate(timeout=100)
    assert late.returncode == 2
    assert "holds another export, as" in errors
    assert contents(dest).items() <= whole.items()
