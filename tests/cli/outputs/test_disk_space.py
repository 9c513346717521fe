"""The guess of the output's size warns of runs that may not fit, and of no others."""

import collections
import shutil

import pytest

from tests.support.command import record

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
    new = run(text, "new")  # the guess may be far off: it only warns
    assert f"warning: --output {new} has 0.0 MB free, but about 2,000 documents may" in run.err
    assert "the same command continues once there is room" in run.err
    assert record(new)["counts"]["embedded"] == LINES


def test_what_overwrite_frees_counts(run, text, disk):
    disk["/"] = 1 << 40
    output = run(text)
    estimate = LINES * (32 * 4 + 60)
    disk["/"] = estimate - record(output)["written"]["embeddings"]["bytes"] + 1000
    flags = {"pooling": "cls", "dry_run": True}
    run(text, "new", **flags)
    assert WARNED in run.said
    run(text, overwrite=True, **flags)
    assert WARNED not in run.said


def test_the_output_type_counts(run, text, disk):
    sizes = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "ubinary": 1 / 8}
    for dtype, number in sizes.items():
        for share, warns in ((1.05, False), (0.95, True)):
            disk["/"] = int(LINES * (32 * number + 60) * share)
            run(text, output_dtype=dtype, dry_run=True)
            assert (WARNED in run.said) == warns, dtype
