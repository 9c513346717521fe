"""The guess of the output's size warns of runs that may not fit, and of no others."""

import collections
import shutil

import pytest

from tests.support.command import embed, record

LINES = 2000
WARNED = " free, but about"
DISK = collections.namedtuple("DISK", "total used free")


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{n:04d} the river bank\n" for n in range(LINES)))
    return path


@pytest.fixture
def disk(monkeypatch):
    """Free bytes of the disks, by the start of a path; as `shutil` tells them."""
    free = {}

    def usage(path):
        return DISK(0, 0, next(size for start, size in free.items() if path.startswith(start)))

    monkeypatch.setattr(shutil, "disk_usage", usage)
    return free


def test_a_run_that_was_begun_is_continued(run, text, disk):
    disk["/"] = 1 << 40
    output = run(text, block_bytes=10_000)
    disk["/"] = 1000
    run(text, block_bytes=10_000)
    assert "nothing to do" in run.out
    sorted(output.rglob("0000001-00000.json"))[0].unlink()
    run(text, block_bytes=10_000)
    assert record(output)["counts"]["parts_reused"] > 0
    assert WARNED not in run.err
    run(text, "new")
    assert "has 0.0 MB free, but about 2,000 documents may take" in run.err


@pytest.mark.slow
def test_what_overwrite_frees_counts(run, text, disk):
    disk["/"] = 1 << 40
    output = run(text)
    estimate = LINES * (32 * 4 + 60)
    disk["/"] = estimate - record(output)["written"]["embeddings"]["bytes"] + 1000
    run(text, "new", pooling="cls")
    assert WARNED in run.err
    run(text, pooling="cls", overwrite=True)
    assert WARNED not in run.err


@pytest.mark.parametrize(
    ("dtype", "number"),
    [("float32", 4), ("float16", 2), ("bfloat16", 2), ("int8", 1), ("ubinary", 1 / 8)],
)
def test_the_output_type_counts(tmp_path, tiny_bundle, text, disk, capsys, dtype, number):
    disk["/"] = int(LINES * (32 * number + 60) * 1.05)
    flags = {"output_dtype": dtype, "dry_run": True}
    assert embed(tmp_path / "out", tiny_bundle, text, **flags) == 0
    assert WARNED not in "".join(capsys.readouterr())
    disk["/"] = int(LINES * (32 * number + 60) * 0.95)
    assert embed(tmp_path / "out", tiny_bundle, text, **flags) == 0
    assert WARNED in "".join(capsys.readouterr())


def test_an_estimate_that_is_far_off_only_warns(tmp_path, tiny_bundle, disk, capsys):
    """Of a file sorted by length the first lines tell nothing of the number of its documents."""
    path = tmp_path / "sorted.txt"
    path.write_text("a\n" * 40_000 + ("the river bank " * 13_000 + "\n") * 30)
    rows = 40_030
    disk["/"] = rows * (32 * 4 + 60) + 1_000_000
    assert embed(tmp_path / "out", tiny_bundle, path) == 0
    assert record(tmp_path / "out")["counts"]["embedded"] == rows
    told = capsys.readouterr().err
    assert f"warning: --output {tmp_path}/out has 8.5 MB free, but about 2,9" in told
    assert "the same command continues once there is room" in told
