"""Only what is new or changed is embedded, exactly, whatever the earlier output looks like."""

import numpy as np
import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import Hold, embed, files, flags_of, record, rows, stray
from tests.support.daily import counts, some_texts, write
from tests.support.rounding import assert_near

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"output_format": "jsonl"},
        {"output_dtype": "int8", "output_format": "jsonl"},
        {"granularity": "word"},
        {"granularity": "token"},
        {"long_text": "windows", "max_seq_length": 6, "overlap": 1},
        {"chunk": "tokens", "chunk_tokens": 3, "overlap": 1},
    ],
    ids=lambda flags: "-".join(map(str, flags.values())) or "default",
)
def test_new_and_changed_documents_alone_are_embedded(tmp_path, days, tiny_bundle, flags):
    day1, day2 = days
    flags = flags | {"block_bytes": 700}
    assert embed(tmp_path / "one", tiny_bundle, day1, **flags) == 0
    incremental = flags | {"skip_existing": tmp_path / "one"}
    assert embed(tmp_path / "two", tiny_bundle, day2, **incremental) == 0
    assert counts(tmp_path / "two") == (60, 3, 56, 1)
    if not flags.keys() & {"output_format", "granularity"}:
        assert list(dict.fromkeys(rows(tmp_path / "two")["id"])) == ["d3", "new1", "new2"]


@pytest.mark.parametrize("flags", [{}, {"long_text": "window", "max_seq_length": 6, "overlap": 1}])
def test_examples_are_compared_with_outputs_of_texts(tmp_path, days, tiny_bundle, flags):
    day1, day2 = days
    assert embed(tmp_path / "one", tiny_bundle, day1, **flags) == 0
    words = flags_of(tmp_path / "examples", tiny_bundle, day2, max_rejected="99%", **flags)
    assert main(["tokenize", *words]) == 0
    earlier = {"skip_existing": tmp_path / "one", "part_docs": 7}
    assert embed(tmp_path / "two", tiny_bundle, tmp_path / "examples", **earlier) == 0
    assert counts(tmp_path / "two") == (59, 3, 56, 0)
    assert rows(tmp_path / "two")["id"] == ["d3", "new1", "new2"]
    again = {"skip_existing": tmp_path}
    assert embed(tmp_path / "three", tiny_bundle, tmp_path / "examples", **again) == 0
    assert counts(tmp_path / "three") == (59, 0, 59, 0)


def test_the_vectors_are_those_of_a_whole_run(tmp_path, days, one, tiny_bundle):
    _, day2 = days
    assert embed(tmp_path / "whole", tiny_bundle, day2) == 0
    assert embed(tmp_path / "two", tiny_bundle, day2, skip_existing=one) == 0
    whole, new = rows(tmp_path / "whole"), rows(tmp_path / "two")
    for document, vector in zip(new["id"], new["embedding"], strict=True):
        at = whole["id"].index(document)
        assert_near(vector, whole["embedding"][at])


def test_all_documents_of_an_id_are_embedded_if_one_has_a_new_text(tmp_path, tiny_bundle):
    day1 = write(tmp_path / "1.jsonl", {}, [("a", "red"), ("a", "bank"), ("b", "river")])
    texts = [("a", "bank"), ("a", "red"), ("a", "red"), ("a", "vault"), ("b", "river"), ("c", "of")]
    day2 = write(tmp_path / "2.jsonl", {}, texts)
    assert embed(tmp_path / "one", tiny_bundle, day1) == 0
    flags = {"skip_existing": tmp_path / "one", "block_bytes": 60}
    assert embed(tmp_path / "two", tiny_bundle, day2, **flags) == 0
    assert counts(tmp_path / "two") == (6, 5, 1, 0)
    assert rows(tmp_path / "two")["id"] == ["a", "a", "a", "a", "c"]
    ids, _ = bert_embed.read([tmp_path / "one", tmp_path / "two"])
    assert sorted(ids) == ["a", "a", "a", "a", "b", "c"]
    again = {"skip_existing": tmp_path}
    assert embed(tmp_path / "three", tiny_bundle, day2, **again) == 0
    assert counts(tmp_path / "three") == (6, 0, 6, 0)


def test_a_file_that_grew_keeps_the_ids_of_its_old_lines(tmp_path, tiny_bundle):
    path = tmp_path / "in.txt"
    path.write_text("red river\nseven stars\n", encoding="utf-8")
    assert embed(tmp_path / "one", tiny_bundle, path) == 0
    path.write_text("red river\nseven stars\nmoney\n", encoding="utf-8")
    assert embed(tmp_path / "two", tiny_bundle, path, skip_existing=tmp_path / "one") == 0
    assert rows(tmp_path / "two")["id"] == [f"{path}:22"]


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.zst"])
def test_read_through_files_are_joined_by_reader_and_part(tmp_path, tiny_bundle, suffix):
    import gzip

    import zstandard

    texts = some_texts(900)
    day1 = write(tmp_path / "1.jsonl", {name: text for name, text in texts.items() if name != "d8"})
    plain = write(tmp_path / "2.jsonl", texts).read_bytes()
    pack = {".gz": gzip.compress, ".zst": zstandard.compress}.get(suffix[6:], bytes)
    day2 = tmp_path / f"day2{suffix}"
    day2.write_bytes(pack(plain))
    assert embed(tmp_path / "one", tiny_bundle, day1) == 0
    flags = {"block_bytes": 3000, "part_docs": 50, "skip_existing": tmp_path / "one"}
    assert embed(tmp_path / "two", tiny_bundle, day2, **flags) == 0
    assert counts(tmp_path / "two") == (900, 1, 899, 0)
    assert rows(tmp_path / "two")["id"] == ["d8"]


def test_nothing_new_is_a_run_without_vectors(tmp_path, days, one, tiny_bundle, capsys):
    day1, _ = days
    assert embed(tmp_path / "two", tiny_bundle, day1, skip_existing=one) == 0
    assert "60 records: 0 embedded, 60 skipped, 0 rejected" in capsys.readouterr().out
    assert list((tmp_path / "two").glob("embeddings/part-*")) == []
    # Such an output says nothing of any id, and is no obstacle either.
    assert embed(tmp_path / "three", tiny_bundle, day1, skip_existing=tmp_path / "two") == 0
    assert counts(tmp_path / "three") == (60, 60, 0, 0)


def test_the_plan_names_an_earlier_output_with_other_columns(
    tmp_path, days, one, tiny_bundle, capsys
):
    """Else the first export of both says so, perhaps after many days."""
    earlier = {"skip_existing": one, "dry_run": True}
    assert embed(tmp_path / "two", tiny_bundle, days[1], **earlier) == 0
    assert "exports refuse" not in capsys.readouterr().out
    assert embed(tmp_path / "two", tiny_bundle, days[1], keep_text=True, **earlier) == 0
    said = " ".join(capsys.readouterr().out.split())
    note = f"text and extra columns of {one} are none, of this run text: exports refuse both"
    assert f"note: {note} together" in said


def test_the_limit_is_judged_before_what_is_skipped(tmp_path, days, tiny_bundle):
    day1, day2 = days
    assert embed(tmp_path / "one", tiny_bundle, day1, limit=10) == 0
    assert embed(tmp_path / "two", tiny_bundle, day2, skip_existing=tmp_path / "one", limit=20) == 0
    assert counts(tmp_path / "two") == (20, 12, 8, 0)


def test_killed_and_continued(tmp_path, tiny_bundle):
    texts = some_texts(300)
    half = {name: text for n, (name, text) in enumerate(texts.items()) if n % 2}
    day1, day2 = write(tmp_path / "1.jsonl", half), write(tmp_path / "2.jsonl", texts)
    assert embed(tmp_path / "one", tiny_bundle, day1) == 0
    flags = {"skip_existing": tmp_path / "one", "block_bytes": 2000}
    assert embed(tmp_path / "whole", tiny_bundle, day2, **flags) == 0
    output = tmp_path / "out"
    Hold(tmp_path / "hold", 5).kill("embed", *flags_of(output, tiny_bundle, day2, **flags))
    assert record(output)["status"] == "running"
    assert embed(output, tiny_bundle, day2, **flags) == 0
    assert counts(output) == (300, 150, 150, 0)
    assert record(output)["counts"]["parts_reused"] == 5
    assert files(output) == files(tmp_path / "whole")
    assert stray(output) == []


def test_equal_texts_of_a_block_run_once(tmp_path, tiny_bundle):
    """Fifty documents of two texts: the model runs on two rows, all fifty get their vectors."""
    texts = {f"d{n}": ("red river", "seven stars")[n % 2] for n in range(50)}
    assert embed(tmp_path / "out", tiny_bundle, write(tmp_path / "in.jsonl", texts)) == 0
    found = record(tmp_path / "out")
    assert found["counts"]["embedded"] == 50
    assert found["tokens"] == 25 * found["computed_tokens"]
    vectors = np.array(rows(tmp_path / "out")["embedding"])
    assert (vectors[::2] == vectors[0]).all()
    assert (vectors[0] != vectors[1]).any()


def test_many_buckets_find_the_same(tmp_path, tiny_bundle, monkeypatch):
    monkeypatch.setattr(
        "bert_embed.pipeline.run.plan.BUCKET_KEYS", 20
    )  # in place of a corpus of millions
    monkeypatch.setattr("bert_embed.transforms.increments.BLOCK_RANGE", 3)
    texts = some_texts(400)
    changed = {name: f"{text} of" for name, text in texts.items() if name.endswith("3")}
    gone = {f"gone{n}": "red" for n in range(9)}
    day1, day2 = write(tmp_path / "1.jsonl", texts | gone), tmp_path / "2.jsonl"
    write(day2, texts | changed | {"new": "bank"})
    assert embed(tmp_path / "one", tiny_bundle, day1, part_docs=100) == 0
    flags = {"skip_existing": tmp_path / "one", "block_bytes": 900}
    assert embed(tmp_path / "two", tiny_bundle, day2, **flags) == 0
    assert counts(tmp_path / "two") == (401, 41, 360, 0)
    assert rows(tmp_path / "two")["id"] == [*changed, "new"]
