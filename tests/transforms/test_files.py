"""Files appear whole or not at all."""

import os
import subprocess
import sys
import time

import pytest

from transforms.files import (
    create_exclusive,
    list_files,
    names_in,
    read_bytes,
    sweep_temporary,
    temporary_name,
    write_bytes,
)


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_bytes(str(path), b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(str(path), b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_only_one_creates(tmp_path):
    path = str(tmp_path / "run.json")
    assert create_exclusive(path, b"first")
    assert not create_exclusive(path, b"second")
    assert read_bytes(path) == b"first"
    assert names_in(str(tmp_path)) == ["run.json"]


def test_the_sweep_takes_what_nobody_will_finish(tmp_path):
    dead = subprocess.run(
        [sys.executable, "-c", "from transforms.files import temporary_name as t; print(t('x'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    mine, old = temporary_name("mine"), ".tmp-elsewhere-7-abcdefab-x"
    for name in (dead, mine, old, "tmp-mine.txt"):
        (tmp_path / name).write_bytes(b"")
    os.utime(tmp_path / old, (time.time() - 90_000,) * 2)
    assert sweep_temporary(str(tmp_path)) == 2
    assert sorted(os.listdir(tmp_path)) == sorted([mine, "tmp-mine.txt"])


def test_a_file_that_is_not_there_reads_as_none(tmp_path):
    assert read_bytes(str(tmp_path / "none")) is None
    assert names_in(str(tmp_path / "none")) == []
    assert list_files(str(tmp_path / "none*")) == []
