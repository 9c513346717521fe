"""What every storage promises: this machine, Cloud Storage and S3, the last two by real servers.

S3's is where `make test-export` runs this.
"""

import itertools
import os
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec

import pytest

from bert_embed.base.errors import InputError
from bert_embed.storage import files, gcs, s3
from bert_embed.storage.local import crc32c_of_bytes
from tests.support.servers.gcs import EMPTY, PAGE, proxy
from tests.support.servers.s3 import s3_server

REMOTE = {"gs": (gcs, "STORAGE_EMULATOR_HOST")}  # the module, and what leads to the server
if find_spec("moto") is not None:
    REMOTE["s3"] = s3, "AWS_ENDPOINT_URL"
SLOW = [pytest.param(scheme, marks=pytest.mark.slow) for scheme in REMOTE]
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def s3_client(tmp_path_factory):
    with s3_server(tmp_path_factory.mktemp("s3")) as client:
        yield client


@pytest.fixture
def folder(request, tmp_path):
    """The address of a folder that is not there yet."""
    name = f"store-{next(NUMBERS)}"
    if request.param == "local":
        return str(tmp_path / "folder")
    if request.param == "gs":
        request.getfixturevalue("gcs").client.create_bucket(name)
    else:
        request.getfixturevalue("s3_client").create_bucket(Bucket=name)
    return f"{request.param}://{name}/folder"


every = pytest.mark.parametrize("folder", ["local", *SLOW], indirect=True)
remote = pytest.mark.parametrize("folder", SLOW, indirect=True)


@pytest.fixture
def proxied(folder, monkeypatch):
    """A proxy before the server of `folder`."""
    _, variable = REMOTE[folder[:2]]
    with proxy(os.environ[variable]) as made:
        monkeypatch.setenv(variable, made.url)
        yield made


def put(folder, *names, data=b"data"):
    for name in names:
        path = files.join(folder, name)
        files.make_folder(os.path.dirname(path))
        files.write_bytes(path, data)
    return path


ODD = ["[odd]*.txt", "ä ö.txt", "b\\c.txt", "per%20cent.txt", "plus+and&=#?.txt", "'quoted'\".txt"]
SHOWN = sorted([*ODD, "a.txt", "e/f.txt", "e/h/i.jsonl"])
TOP = sorted([*ODD, "a.txt"])
PATTERNS = {
    "": SHOWN,  # the folder
    "/": SHOWN,
    "/*": TOP,
    "/**": SHOWN,
    "/**/*.jsonl": ["e/h/i.jsonl"],
    "/**/.*": [".d.txt", "e/.g.txt"],
    "/*/*": ["e/f.txt"],
    "/[a-c]*": ["a.txt", "b\\c.txt"],
    "/[!b-z].txt": ["a.txt"],
    "/?.txt": ["a.txt"],
    "/*\\*": ["b\\c.txt"],
    "/[odd]*.txt": ["[odd]*.txt"],  # one that exists is meant by itself
    "/[[]*": ["[odd]*.txt"],
    "/a.txt": ["a.txt"],
    "/e": ["e/f.txt", "e/h/i.jsonl"],
    "/a.tx": [],
    "/none": [],
}


@every
def test_a_store_tells_that_what_is_written_again_has_the_same_bytes(folder):
    path = put(folder, "a.txt")
    [before] = files.list_files(path)
    assert files.stat(path).has_bytes_of(before)
    put(folder, "a.txt", data=b"DATA")
    assert not replace(files.stat(path), modified=0.0).has_bytes_of(before)
    put(folder, "a.txt")
    again = replace(files.stat(path), modified=0.0)
    assert again.has_bytes_of(before) == files.is_remote(path)


@every
def test_a_folder_a_glob_and_a_name_stand_for_the_same_files(folder):
    put(folder, *SHOWN, ".d.txt", "e/.g.txt", ".j/k.txt")
    put(f"{folder}-not", "l.txt")
    found = {pattern: files.list_files(folder + pattern) for pattern in PATTERNS}
    names = {
        pattern: [info.path.removeprefix(f"{folder}/") for info in infos]
        for pattern, infos in found.items()
    }
    assert names == PATTERNS
    for info in found[""]:
        assert info == files.stat(info.path)
        assert info.size == files.size_of(info.path) == 4
        assert abs(time.time() - info.modified) < 600
        with files.open_listed(info) as file:
            assert file.read() == b"data"


@every
def test_a_name_with_characters_of_a_glob_is_meant_by_itself(folder):
    put(folder, "a?.txt", "ab.txt", "[c]?/d.txt", "cd/d.txt")
    for pattern, *names in (
        *(("/a?.txt", "a?.txt"), ("/a*.txt", "a?.txt", "ab.txt"), ("/[c]?", "[c]?/d.txt")),
        *(("/[c]?/", "[c]?/d.txt"), ("/[c]?/*", "cd/d.txt")),
    ):
        found = [info.path for info in files.list_files(folder + pattern)]
        assert found == [files.join(folder, name) for name in names]


@every
def test_what_is_directly_in_a_folder(folder):
    assert not files.holds_files(folder)
    put(folder, *TOP, ".tmp-b", "e/f.txt", data=b"five5")
    put(f"{folder}-not", "l.txt")
    assert files.holds_files(folder)
    assert files.names_in(folder) == sorted([".tmp-b", *TOP])
    assert files.sizes_in(folder) == dict.fromkeys([".tmp-b", *TOP], 5)
    found = files.files_in(folder, lambda name: name.endswith(".txt"))
    assert [info.path for info in found] == [files.join(folder, name) for name in TOP]
    assert found == [files.stat(info.path) for info in found]
    put(f"{folder}-above", "a/b.txt")
    assert files.holds_files(f"{folder}-above")
    names = files.names_in(folder)
    put(folder, mine := files.temporary_name("mine"))
    files.check_writable(folder)  # of which nothing stays
    assert files.sweep_temporary(folder) == 0
    assert files.names_in(folder) == sorted([*names, mine])


@every
def test_what_is_not_there(folder):
    put(folder, "a.txt")
    path = files.join(folder, "none")
    assert files.read_bytes(path) is files.size_of(path) is None
    assert files.names_in(path) == files.files_in(path, bool) == []
    assert (files.sizes_in(path), files.holds_files(path)) == ({}, False)
    files.remove([path, files.join(path, "b"), path])
    for missing in (files.stat, files.open_raw, files.checksum):
        with pytest.raises(FileNotFoundError, match=re.escape(path)):
            missing(path)


@every
def test_what_is_written_replaces_and_is_read_as_it_was(folder):
    path = put(folder, "a", data=b"an older and longer text")
    for data in (b"", b"\r\n\x00", bytes(range(256)) * 5000):
        stored = files.write_whole(path, lambda file, data=data: file.write(data))
        assert stored == (len(data), crc32c_of_bytes(data))
        assert files.checksum(path) == stored.crc32c
        assert files.read_bytes(path) == data
    other = files.join(folder, "b")
    files.copy_file(path, other)

    def fail(file):
        file.write(b"half")
        raise ValueError("a text that is none")

    with pytest.raises(ValueError, match="that is none"):
        files.write_whole(other, fail)
    assert files.read_bytes(other) == data
    files.write_unsynced(path, b"new")
    assert files.read_bytes(path) == b"new"
    files.remove([path])
    assert files.names_in(folder) == ["b"]


@every
def test_a_file_is_read_from_any_place(folder):
    data = random.Random(3).randbytes(700_000)
    path = put(folder, "a", data=data)
    with files.open_raw(path) as file:
        assert file.seekable()
        chance = random.Random(4)
        for _ in range(20):
            start, size = chance.randrange(len(data) + 9), chance.choice([0, 1, 70_000])
            assert file.seek(start) == start
            assert file.read(size) == data[start : start + size]
        assert file.seek(-5, os.SEEK_END) == len(data) - 5
        assert file.read() == data[-5:]
        file.seek(0)
        assert b"".join(file) == data  # line by line


@every
def test_only_one_creates(folder):
    path = put(folder, "other").replace("other", "run.json")
    with ThreadPoolExecutor(8) as pool:
        first = list(pool.map(lambda n: files.create_exclusive(path, b"%d" % n), range(8)))
    assert first.count(True) == 1
    assert files.read_bytes(path) == b"%d" % first.index(True)
    assert not files.create_exclusive(path, b"later")
    assert files.read_bytes(path) == b"%d" % first.index(True)
    assert files.names_in(folder) == ["other", "run.json"]


@every
def test_changes_at_once_are_made_one_after_the_other(folder):
    path = put(folder, "other").replace("other", "run.json")
    names = [b"%d" % number for number in range(9)]
    with ThreadPoolExecutor(9) as pool:
        changes = [lambda data, name=name: (data or b"") + name for name in names]
        list(pool.map(lambda change: files.change(path, change), changes))
    whole = files.read_bytes(path)
    assert sorted(whole) == sorted(b"".join(names))
    files.change(path, lambda data: None)
    assert files.read_bytes(path) == whole
    assert files.names_in(folder) == ["other", "run.json"]


@remote
def test_a_change_of_what_others_write_meanwhile_is_made_again(folder):
    path, read = files.join(folder, "a"), []
    create, write = files.create_exclusive, files.write_bytes
    others = iter(
        [lambda: create(path, b"1"), lambda: write(path, b"7"), lambda: files.remove([path])]
    )

    def added(data):
        read.append(data)
        next(others, bool)()
        return (data or b"") + b"+"

    files.change(path, added)
    assert read == [None, b"1", b"7", None]
    assert files.read_bytes(path) == b"+"


@every
def test_a_file_that_is_no_longer_the_listed_one_is_refused(folder):
    for later in (b"more", b"as long!", None):
        path = put(folder, "a", data=b"as long.")
        [info] = files.list_files(folder)
        time.sleep(0.01)
        files.remove([path]) if later is None else files.write_bytes(path, later)
        said = rf"^{re.escape(path)} (was replaced|changed after|is gone since|is no longer)"
        with pytest.raises(InputError, match=said), files.open_listed(info) as file:
            file.read()


USES = {
    "read": files.read_bytes,
    "listed": lambda path: files.names_in(os.path.dirname(path)),
    "written": lambda path: files.write_bytes(path, b"new"),
    "removed": lambda path: files.remove([path]),
}


@pytest.fixture
def at_once(monkeypatch):
    """No pause before another attempt."""
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


@contextmanager
def impatient(folder):
    """Few attempts."""
    with pytest.MonkeyPatch.context() as patches:
        for name in ("PATIENCE", "FIRST_ANSWER"):
            patches.setattr(REMOTE[folder[:2]][0], name, 0.3)
        yield


CUT = ("cut", "half")


@remote
def test_faults_that_pass_are_not_seen(folder, proxied, at_once):
    path = files.join(folder, "a")
    for fault in (408, 409, 429, 500, 502, 503, 504, 520, *CUT, "lost", EMPTY, PAGE):
        for use in (
            lambda: files.create_exclusive(path, b"1"),
            lambda: files.write_bytes(path, b"some bytes") is None,
            lambda: files.change(path, lambda data: data) is None,
            lambda: files.read_bytes(path) == b"some bytes",
            lambda: files.size_of(path) == len(b"some bytes"),
            lambda: files.names_in(folder) == ["a"],
            lambda: files.remove([path]) is None,
        ):
            faults = iter([fault, fault])
            proxied.fault = lambda method, path, fault=fault, faults=faults: (
                # An empty answer says that something is removed.
                None if method == "DELETE" and fault in (EMPTY, PAGE) else next(faults, None)
            )
            assert use(), fault
            missed = fault in CUT or proxied.asked[-1][0] == "DELETE"  # and has no half
            assert missed or next(faults, None) is None
    assert files.names_in(folder) == []


@remote
@pytest.mark.parametrize("done", USES)
def test_a_fault_that_lasts_is_one_sentence(folder, proxied, done):
    path = put(folder, "a")
    for fault in (503, 403):
        proxied.fault, failed = lambda method, path, fault=fault: fault, proxied.failed
        said = rf"^{folder}(/a)? (cannot|may not) be {done}\b"
        with impatient(folder), pytest.raises(OSError, match=said) as told:
            USES[done](path)
        assert "\n" not in str(told.value)
        assert ("try again later" in str(told.value)) == (fault == 503)
        assert (proxied.failed - failed > 1) == (fault == 503)
    proxied.fault = lambda method, path: None
    assert files.read_bytes(path) == b"data"


@remote
def test_a_bucket_that_is_not_there_is_named(folder):
    other = f"{folder[:2]}://no-such-bucket/folder"
    for done in ("listed", "written"):
        with pytest.raises(OSError, match=rf"^{other}(/a)? cannot be {done}: .*[bB]ucket"):
            USES[done](f"{other}/a")
    assert files.read_bytes(f"{other}/a") is None


@pytest.mark.parametrize("scheme", ["gs", "s3"])
@pytest.mark.parametrize("bucket", ["a*", "a?b", "a b", "a#b", "-a"])
def test_a_name_that_no_bucket_can_have_is_refused(scheme, bucket):
    path = f"{scheme}://{bucket}/folder"
    with pytest.raises(InputError, match=rf"^{re.escape(path)} names no bucket"):
        files.list_files(path)


@remote
def test_a_server_out_of_reach_is_told_soon(folder, monkeypatch):
    monkeypatch.setenv(REMOTE[folder[:2]][1], "http://127.0.0.1:9")  # nobody listens there
    for done, use in USES.items():
        said = rf"^{folder}(/a)? cannot be {done}.*try again later"
        with impatient(folder), pytest.raises(OSError, match=said):
            use(f"{folder}/a")
    monkeypatch.setenv(REMOTE[folder[:2]][1], "nowhere")
    with pytest.raises((InputError, OSError), match=r"cannot be (read|used): "):
        files.read_bytes(f"{folder}/a")


@remote
def test_who_creates_and_loses_the_answer_was_first(folder, proxied, at_once):
    path, faults = files.join(folder, "a"), iter(["lost", "lost"])
    proxied.fault = lambda method, _: next(faults, None) if method in ("PUT", "POST") else None
    assert files.create_exclusive(path, b"mine")
    assert proxied.failed == 2
    assert not files.create_exclusive(path, b"another's")
    assert files.read_bytes(path) == b"mine"
