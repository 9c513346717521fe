"""What only this machine's files have; what every storage promises is in `test_every_store`."""

import errno
import glob
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_embed.base.errors import StorageError
from bert_embed.storage import local
from bert_embed.storage.files import (
    change,
    create_exclusive,
    names_in,
    read_bytes,
    sweep_temporary,
    temporary_name,
    write_bytes,
    write_unsynced,
)
from bert_embed.storage.local import fixed_folder, glob_matcher
from tests.support.command import ran
from tests.support.forks import python


@pytest.mark.parametrize(
    ("write", "step", "why"),
    [
        *((write_bytes, step, errno.ENOSPC) for step in ("fsync", "replace")),
        (write_unsynced, "replace", errno.ENOSPC),
        (lambda path, data: change(path, lambda _: data), "open", errno.EROFS),
    ],
)
def test_a_write_that_fails_leaves_the_old_file_and_no_other(
    tmp_path, monkeypatch, write, step, why
):
    path = tmp_path / "a.txt"
    write_bytes(str(path), b"old")
    with monkeypatch.context() as patches:
        fails = mock.Mock(side_effect=OSError(why, os.strerror(why)))
        patches.setattr(os, step, fails)
        said = rf"a\.txt cannot be written: {os.strerror(why)}"
        with pytest.raises(StorageError, match=said):
            write(str(path), b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("why", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK])
def test_a_refused_hard_link_is_not_needed(tmp_path, monkeypatch, why):
    def refuse(*_):
        raise OSError(why, os.strerror(why))

    monkeypatch.setattr(os, "link", refuse)
    path = str(tmp_path / "run.json")
    assert create_exclusive(path, b"first")
    assert not create_exclusive(path, b"second")
    assert read_bytes(path) == b"first"
    assert names_in(str(tmp_path)) == ["run.json"]


def test_the_sweep_takes_what_nobody_will_finish(tmp_path):
    code = "from bert_embed.storage.files import temporary_name as t; print(t('x'))"
    dead = ran([*python(), "-c", code], check=True).stdout.strip()
    mine, old = temporary_name("mine"), ".tmp-elsewhere-7-abcdefab-x"
    for name in (dead, mine, old, "tmp-mine.txt", ".tmp-mine"):
        (tmp_path / name).write_bytes(b"")
    for name in (old, ".tmp-mine"):
        os.utime(tmp_path / name, (time.time() - 90_000,) * 2)
    assert sweep_temporary(str(tmp_path)) == 2
    assert sorted(os.listdir(tmp_path)) == sorted([mine, "tmp-mine.txt", ".tmp-mine"])


def test_the_sweep_leaves_what_a_container_of_the_same_host_name_writes(tmp_path):
    """Its process numbers are its own: here, there may be no process of that number."""
    if os.getuid() != 0:
        pytest.skip("needs root, for unshare")
    name = temporary_name("part")
    process = f"-{os.getpid()}-"
    assert name.count(process) == 1
    (tmp_path / name).write_bytes(b"half")
    code = (
        "import sys; from bert_embed.storage.files import sweep_temporary; "
        "print(sweep_temporary(sys.argv[1]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    apart = ["unshare", "--pid", "--fork", "--mount-proc", *command]
    done = subprocess.run(apart, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
    assert os.listdir(tmp_path) == [name]


def test_a_folder_that_may_not_be_listed_is_refused():
    """As another user: root may list everything."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # that another user may enter
        os.chmod(folder, 0o755)
        Path(folder, "a.txt").write_text("one\n")
        os.mkdir(locked := os.path.join(folder, "locked"), 0o000)
        script = (
            "import os, sys; from bert_embed.storage.files import list_files, names_in\n"
            "if os.getuid() == 0: os.setuid(65534)\n"
            "for call, place in zip([names_in] + [list_files] * 7, sys.argv[1:], strict=True):\n"
            "    try: print([str(each) for each in call(place)])\n"
            "    except Exception as error: print(type(error).__name__, error)"
        )
        places = ("", "/**", "/*/*.txt", "/*/a.txt", "/locked/a.txt", "/locked/*", "/*.txt")
        words = [f"{locked}/in", *(folder + place for place in places)]
        done = ran([*python(), "-c", script, *words], check=True)
        named, *refused, listed = done.stdout.splitlines()
        assert named.startswith("PermissionError")
        assert len(refused) == len(places) - 1
        for said in refused:
            assert said.startswith(f"InputError {locked} cannot be listed (Permission denied)")
        assert "a.txt" in listed


def test_what_another_process_removes_meanwhile_is_no_error(tmp_path, monkeypatch):
    for name in ("a", "b"):
        (tmp_path / name).write_text("")
    entries = sorted(os.scandir(tmp_path), key=lambda each: each.name)
    (tmp_path / "a").unlink()
    monkeypatch.setattr(os, "scandir", lambda _: entries)
    assert [each.path for each in local.list_folder(str(tmp_path))] == [str(tmp_path / "b")]
    for name in ("a", "b/c", "b"):
        local.delete(str(tmp_path / name))
    assert os.listdir(tmp_path) == []


NAMES = ["a.txt", ".b.txt", "c\\d.txt", "e[1].txt", "f/g.txt", "f/.h.txt", "f/i/j.jsonl"]
NAMES += [".k/l.txt", "f/.m/n.txt", "line\nfeed.txt", "-", "]", "f/^"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("globs")
    for name in NAMES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"")
    return root


def found_on_disk(folder, pattern):
    found = glob.glob(os.path.join(glob.escape(str(folder)), pattern), recursive=True)
    # glob lists a file twice for `**/**`.
    return sorted({os.path.relpath(path, folder) for path in found if os.path.isfile(path)})


PIECES = ["*", "?", "[", "]", "!", "^", "-", "a", "f", ".", "/", "\\", ".txt", "**/", "/**"]

EXAMPLES = ["*", "**/*", "f/**", "**/.h*", ".*", "*\\*", "*[[]1].txt", "[!a]*", "[]]"]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join))
def test_what_matches_is_what_glob_finds(folder, pattern):
    wild = pattern.replace("**", "")
    if "//" in pattern or pattern.startswith("/") or "***" in pattern or pattern.endswith("/"):
        return  # of a disk these are other names for the same file
    if any(part != "**" and "**" in part for part in pattern.split("/")):
        return  # `a**` crosses folders in a store, as gcloud has it
    if any(part in (".", "..") for part in pattern.split("/")) or not set(wild) & set("*?["):
        return
    match = glob_matcher(pattern)
    assert sorted(name for name in NAMES if match(name)) == found_on_disk(folder, pattern)


@pytest.mark.parametrize("pattern", [*EXAMPLES, "line?feed.txt"])
def test_patterns_that_people_write(folder, pattern):
    match = glob_matcher(pattern)
    assert sorted(name for name in NAMES if match(name)) == found_on_disk(folder, pattern)


def test_what_stores_alone_take_of_globs():
    match = glob_matcher("f**.txt")  # crosses folders
    assert [name for name in NAMES if match(name)] == ["f/g.txt"]
    assert fixed_folder("gs://b/in/2024-*/a?.txt") == "gs://b/in"
    assert fixed_folder("gs://b/*") == "gs://b"
