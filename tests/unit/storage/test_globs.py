"""Globs of a store match what Python's own glob finds in a folder of the same names."""

import glob
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_embed.storage.local import fixed_folder, glob_matcher

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


def test_two_stars_within_a_name_cross_folders():
    match = glob_matcher("f**.txt")
    assert [name for name in NAMES if match(name)] == ["f/g.txt"]


def test_the_folder_before_the_first_wildcard():
    assert fixed_folder("gs://b/in/2024-*/a?.txt") == "gs://b/in"
    assert fixed_folder("gs://b/*") == "gs://b"
