"""The reference pages name what the program has, and one file reads Beam's flags."""

import re

from docs.options_page import KEYWORDS, PAGE, keywords, options_page
from tests.support.command import ROOT, embed, record

PAGE_OF_KEYS = (ROOT / "docs" / "report.md").read_text("utf-8")
KEYS = PAGE_OF_KEYS.partition("\n## run.json\n")[2].partition("\n## ")[0]


def test_the_page_of_options_is_the_generated_one():
    assert PAGE.read_text("utf-8") == options_page(), "run python -m docs.options_page"
    assert KEYWORDS.read_text("utf-8") == keywords(), "run python -m docs.options_page"


def documented():
    """Keys of the lists, and whether an item says that not every run has them."""
    for line in KEYS.splitlines():
        if line.startswith("- `"):
            keys, meaning = line.split(": ", 1)
            for key in re.findall(r"`([^`]+)`", keys):
                yield key, "only" in meaning or "null" in meaning


def paths(value, prefix=""):
    """Keys of a record, joined by dots; those of a list's objects without a number."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from paths(inner, f"{prefix}.{key}" if prefix else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield from paths(value[0], prefix)
    else:
        yield prefix


def as_pattern(key):
    return re.sub(r"\b[A-Z]+\b", "[^.]+", re.escape(key))


def test_run_json_has_the_documented_keys_and_no_others(tmp_path, tiny_bundle):
    (tmp_path / "in.jsonl").write_text('{"text": "one", "n": "1"}\n\n{"text": "two three"}\n')
    names = {"extra_columns": "n"}
    assert embed(tmp_path / "a", tiny_bundle, tmp_path / "in.jsonl", **names) == 0
    names |= {"skip_existing": tmp_path / "a"}
    (tmp_path / "in.jsonl").write_text('{"text": "one", "n": "1"}\n\n{"text": "more"}\n')
    assert embed(tmp_path / "b", tiny_bundle, tmp_path / "in.jsonl", **names) == 0
    found = set(paths(record(tmp_path / "b")))
    known = {key: as_pattern(key) for key, _ in documented()}
    unknown = {key for key in found if not any(re.fullmatch(p, key) for p in known.values())}
    assert unknown == set()
    missing = {
        key
        for key, sometimes in documented()
        if not sometimes and not any(re.fullmatch(known[key], path) for path in found)
    }
    assert missing == set()
    assert record(tmp_path / "b")["lengths"]["counts"] == [1]


def test_one_file_reads_beams_flags():
    readers = {
        path.name
        for path in (ROOT / "pipeline").rglob("*.py")
        if re.search(r"\.view_as\(|get_all_options|Options\(list\(", path.read_text("utf-8"))
    }
    assert readers == {"beam.py"}
