"""Input or output that is away for a while: what is said is right, and the same command goes on."""

import errno
import os

import pytest

from tests.support.command import embed, record, rows, say_status

SMALL = {"block_bytes": 300}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    for name in "abc":
        lines = [f"{name} {n} the river bank\n" for n in range(40)]
        (tmp_path / "in" / f"{name}.txt").write_text("".join(lines))
    return tmp_path / "in"


def at_file(monkeypatch, number, do):
    """Has something happen when the given file is made safe on the disk."""
    straight, seen = os.fsync, []

    def fsync(descriptor):
        seen.append(descriptor)
        if len(seen) >= number:
            do()
        straight(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return straight


def test_an_output_that_becomes_read_only(tmp_path, tiny_bundle, folder, capsys, monkeypatch):
    def refuse():
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    output = tmp_path / "out"
    straight = at_file(monkeypatch, 9, refuse)
    assert embed(output, tiny_bundle, folder, **SMALL) == 1
    said = capsys.readouterr().err
    assert "cannot be written: Read-only file system" in said
    assert f"note: {output}/run.json still says running, it cannot be written:" in said
    assert "once this is fixed, the same command continues" in said
    assert record(output)["status"] == "running"
    monkeypatch.setattr(os, "fsync", straight)
    assert embed(output, tiny_bundle, folder, **SMALL) == 0
    assert record(output)["counts"]["parts_reused"] > 0
    assert len(rows(output)["id"]) == 120


@pytest.mark.slow
def test_an_output_that_becomes_read_only_at_the_very_end(
    tmp_path, tiny_bundle, folder, capsys, monkeypatch
):
    """Only run.json is missing; the second start computes nothing, and says no speed of 0."""
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, folder) == 0
    say_status(output, "running")
    capsys.readouterr()
    assert embed(output, tiny_bundle, folder) == 0
    assert "earlier attempts had computed everything" in capsys.readouterr().out
    assert record(output)["documents_per_second"] is None


def test_an_input_that_is_gone_for_a_while(tmp_path, tiny_bundle, folder, capsys, monkeypatch):
    away = tmp_path / "c.txt"

    def take_away():
        if not away.exists():
            (folder / "c.txt").rename(away)

    output = tmp_path / "out"
    straight = at_file(monkeypatch, 3, take_away)
    assert embed(output, tiny_bundle, folder, **SMALL) == 1
    said = capsys.readouterr().err
    assert f"{folder}/c.txt is gone since the job started; put it back" in said
    assert "once this is fixed, the same command continues" in said
    assert "--overwrite" not in said
    monkeypatch.setattr(os, "fsync", straight)
    away.rename(folder / "c.txt")
    assert embed(output, tiny_bundle, folder, **SMALL) == 0
    assert len(rows(output)["id"]) == 120


def test_an_input_that_changed_needs_overwrite(tmp_path, tiny_bundle, folder, capsys, monkeypatch):
    output = tmp_path / "out"
    straight = at_file(monkeypatch, 3, lambda: (folder / "c.txt").write_text("another\n"))
    assert embed(output, tiny_bundle, folder, **SMALL) == 1
    said = capsys.readouterr().err
    assert f"{folder}/c.txt changed after the job started" in said
    assert "run again with --overwrite" in said
    assert "the same command" not in said
    monkeypatch.setattr(os, "fsync", straight)
    assert embed(output, tiny_bundle, folder, **SMALL, overwrite=True) == 0
    assert len(rows(output)["id"]) == 81
