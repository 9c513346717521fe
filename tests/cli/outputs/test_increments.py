"""Only what is new or changed is embedded, exactly, whatever the earlier output looks like."""

import gzip

import pytest
import zstandard

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import flags_of, rows
from tests.support.daily import counts, some_texts, write
from tests.support.rounding import assert_near

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"output_dtype": "int8", "output_format": "jsonl"},
        {"granularity": "token"},
        {"long_text": "windows", "max_seq_length": 6, "overlap": 1},
        {"chunk": "tokens:3", "overlap": 1},
    ],
    ids=lambda flags: "-".join(map(str, flags.values())) or "default",
)
def test_new_and_changed_documents_alone_are_embedded(days, run, flags):
    flags = flags | {"block_bytes": 700}
    first = run(days[0], "one", **flags)
    second = run(days[1], "two", skip_existing=first, **flags)
    assert counts(second) == (60, 3, 56, 1)
    if not flags.keys() & {"output_format", "granularity"}:
        assert list(dict.fromkeys(rows(second)["id"])) == ["d3", "new1", "new2"]


def test_examples_are_compared_with_outputs_of_texts(tmp_path, days, run, tiny_bundle):
    flags = {"long_text": "window", "max_seq_length": 6, "overlap": 1}
    first = run(days[0], "one", **flags)
    examples = tmp_path / "examples"
    words = flags_of(examples, tiny_bundle, days[1], max_rejected="99%", **flags)
    assert main(["tokenize", *words]) == 0
    second = run(examples, "two", skip_existing=first, part_docs=7)
    assert counts(second) == (59, 3, 56, 0)
    assert rows(second)["id"] == ["d3", "new1", "new2"]
    assert counts(run(examples, "three", skip_existing=tmp_path)) == (59, 0, 59, 0)


def test_the_vectors_are_those_of_a_whole_run(days, one, run):
    whole, new = rows(run(days[1], "whole")), rows(run(days[1], "two", skip_existing=one))
    for document, vector in zip(new["id"], new["embedding"], strict=True):
        assert_near(vector, whole["embedding"][whole["id"].index(document)])


def test_all_documents_of_an_id_are_embedded_if_one_has_a_new_text(tmp_path, run):
    day1 = write(tmp_path / "1.jsonl", {}, [("a", "red"), ("a", "bank"), ("b", "river")])
    texts = [("a", "bank"), ("a", "red"), ("a", "red"), ("a", "vault"), ("b", "river"), ("c", "of")]
    day2 = write(tmp_path / "2.jsonl", {}, texts)
    first = run(day1, "one")
    second = run(day2, "two", skip_existing=first, block_bytes=60)
    assert counts(second) == (6, 5, 1, 0)
    assert rows(second)["id"] == ["a", "a", "a", "a", "c"]
    ids, _ = bert_embed.read([first, second])
    assert sorted(ids) == ["a", "a", "a", "a", "b", "c"]
    assert counts(run(day2, "three", skip_existing=tmp_path)) == (6, 0, 6, 0)


@pytest.mark.parametrize(
    ("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".zst", zstandard.compress)]
)
def test_read_through_files_are_joined_by_reader_and_part(tmp_path, run, suffix, pack):
    texts = some_texts(300)
    day1 = write(tmp_path / "1.jsonl", {name: text for name, text in texts.items() if name != "d8"})
    plain = write(tmp_path / "2.jsonl", texts).read_bytes()
    flags = {"block_bytes": 3000, "part_docs": 20, "skip_existing": run(day1, "one")}
    second = run({f"day2.jsonl{suffix}": pack(plain)}, "two", **flags)
    assert counts(second) == (300, 1, 299, 0)
    assert rows(second)["id"] == ["d8"]


def test_the_plan_names_an_earlier_output_with_other_columns(days, one, run):
    """Else the first export of both says so, perhaps after many days."""
    earlier = {"skip_existing": one, "dry_run": True}
    run(days[1], "two", **earlier)
    assert "exports take" not in run.out
    run(days[1], "two", keep_text=True, **earlier)
    note = f"columns of {one} are none, those of this run text: exports take both together only"
    assert f"note: the text and extra {note}" in " ".join(run.out.split())


def test_the_limit_is_judged_before_what_is_skipped(days, run):
    """Nothing new is a run without vectors, which says nothing of any id, and is no obstacle."""
    first = run(days[0], "one", limit=10)
    assert counts(run(days[1], "two", skip_existing=first, limit=20)) == (20, 12, 8, 0)
    again = run(days[0], "again", skip_existing=first, limit=10)
    assert "10 records: 0 embedded, 10 skipped, 0 rejected" in run.out
    assert list(again.glob("embeddings/part-*")) == []
    assert counts(run(days[0], "three", skip_existing=again)) == (60, 60, 0, 0)


def test_many_buckets_find_the_same(tmp_path, run, monkeypatch):
    # In place of a corpus of millions.
    monkeypatch.setattr("bert_embed.pipeline.run.plan.BUCKET_KEYS", 20)
    monkeypatch.setattr("bert_embed.transforms.increments.BLOCK_RANGE", 3)
    texts = some_texts(400)
    changed = {name: f"{text} of" for name, text in texts.items() if name.endswith("3")}
    gone = {f"gone{n}": "red" for n in range(9)}
    day1 = write(tmp_path / "1.jsonl", texts | gone)
    day2 = write(tmp_path / "2.jsonl", texts | changed | {"new": "bank"})
    first = run(day1, "one", part_docs=100)
    second = run(day2, "two", skip_existing=first, block_bytes=900)
    assert counts(second) == (401, 41, 360, 0)
    assert rows(second)["id"] == [*changed, "new"]
