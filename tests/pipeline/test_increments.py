"""Only what is new or changed is embedded, exactly, whatever the earlier output looks like."""

import json
import shutil
import signal

import numpy as np
import pytest

from pipeline.options import command_of, parse_embed
from tests.pipeline.helpers import embed, files, flags_of, record, rows, start, stray
from tests.pipeline.test_resume import wait_for_reports

WORDS = ["red", "river", "bank", "of", "seven", "stars", "money", "vault"]


def write(path, texts, ids=None):
    """JSON lines of texts by id, in the order given."""
    lines = [json.dumps({"id": each, "text": text}) for each, text in (ids or texts.items())]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def some_texts(count, seed=0):
    chosen = np.random.default_rng(seed).choice(WORDS, (count, 5))
    return {f"d{n}": " ".join(row) for n, row in enumerate(chosen)}


def vanished(output):
    return [
        json.loads(line)["id"]
        for path in sorted(output.glob("vanished-*.jsonl"))
        for line in path.read_text("utf-8").splitlines()
    ]


def counts(output):
    found = record(output)["counts"]
    return tuple(found[name] for name in ("records", "embedded", "skipped", "rejected"))


@pytest.fixture
def two_days(tmp_path):
    """Two states of a corpus: unchanged, changed, deleted and new documents, and a blank one."""
    first = some_texts(60)
    second = dict(first) | {"d3": "seven new stars", "d40": "", "new1": "money", "new2": "vault"}
    del second["d7"], second["d59"]
    return write(tmp_path / "day1.jsonl", first), write(tmp_path / "day2.jsonl", second)


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"output_format": "jsonl"},
        {"output_dtype": "int8", "output_format": "jsonl"},
        {"granularity": "word"},
        {"granularity": "token"},
        {"long_text": "window", "max_seq_length": 6, "stride": 1, "no_merge_windows": True},
    ],
    ids=lambda flags: "-".join(map(str, flags.values())) or "default",
)
def test_new_and_changed_documents_alone_are_embedded(tmp_path, two_days, tiny_bundle, flags):
    day1, day2 = two_days
    flags = flags | {"block_bytes": 700}
    assert embed(tmp_path / "one", tiny_bundle, day1, **flags) == 0
    incremental = flags | {"skip_existing": tmp_path / "one", "list_vanished": True}
    assert embed(tmp_path / "two", tiny_bundle, day2, **incremental) == 0
    assert counts(tmp_path / "two") == (60, 3, 56, 1)
    assert record(tmp_path / "two")["vanished"] == 2
    assert sorted(vanished(tmp_path / "two")) == ["d59", "d7"]
    if not flags.keys() & {"output_format", "granularity"}:
        assert list(dict.fromkeys(rows(tmp_path / "two")["id"])) == ["d3", "new1", "new2"]


def test_the_vectors_are_those_of_a_whole_run(tmp_path, two_days, tiny_bundle):
    day1, day2 = two_days
    assert embed(tmp_path / "one", tiny_bundle, day1) == 0
    assert embed(tmp_path / "whole", tiny_bundle, day2) == 0
    assert embed(tmp_path / "two", tiny_bundle, day2, skip_existing=tmp_path / "one") == 0
    whole, new = rows(tmp_path / "whole"), rows(tmp_path / "two")
    for document, vector in zip(new["id"], new["embedding"], strict=True):
        at = whole["id"].index(document)
        np.testing.assert_allclose(vector, whole["embedding"][at], atol=1e-5)


def test_each_occurrence_of_an_id_is_judged_by_its_text(tmp_path, tiny_bundle, capsys):
    day1 = write(tmp_path / "1.jsonl", {}, [("a", "red"), ("a", "bank"), ("b", "river")])
    texts = [("a", "bank"), ("a", "red"), ("a", "red"), ("a", "vault"), ("b", "river"), ("c", "of")]
    day2 = write(tmp_path / "2.jsonl", {}, texts)
    assert embed(tmp_path / "one", tiny_bundle, day1) == 0
    flags = {"skip_existing": tmp_path / "one", "check_ids": True, "block_bytes": 60}
    assert embed(tmp_path / "two", tiny_bundle, day2, **flags) == 0
    assert counts(tmp_path / "two") == (6, 2, 4, 0)
    assert rows(tmp_path / "two")["id"] == ["a", "c"]
    found = record(tmp_path / "two")["duplicate_ids"]
    assert found == {"ids": 1, "surplus": 3, "examples": ["a"]}
    assert "1 ids occur more than once, 3 documents too many: a" in capsys.readouterr().out


def test_of_several_outputs_the_last_with_an_id_decides(tmp_path, tiny_bundle):
    """What went back to an older text is new: the last output has another vector of it."""
    day1 = write(tmp_path / "1.jsonl", {"a": "red river", "b": "bank", "c": "vault"})
    day2 = write(tmp_path / "2.jsonl", {"a": "seven stars", "b": "bank", "c": "vault"})
    runs = tmp_path / "runs"
    assert embed(runs / "1", tiny_bundle, day1) == 0
    assert embed(runs / "2", tiny_bundle, day2, skip_existing=runs / "1") == 0
    assert rows(runs / "2")["id"] == ["a"]
    in_order = [f"--skip_existing={runs}/1", f"--skip_existing={runs}/2"]
    for number, named in enumerate(([f"--skip_existing={runs}"], in_order)):
        output = tmp_path / f"back{number}"
        assert main_with(output, tiny_bundle, day1, *named) == 0
        assert rows(output)["id"] == ["a"]
    assert main_with(tmp_path / "other", tiny_bundle, day1, *in_order[::-1]) == 0
    assert counts(tmp_path / "other") == (3, 0, 3, 0)


def main_with(output, model, source, *words):
    from pipeline.cli import main

    return main(["embed", *flags_of(output, model, source), *words])


def test_a_glob_of_runs_leaves_out_the_run_itself(tmp_path, two_days, tiny_bundle, capsys):
    day1, day2 = two_days
    runs = tmp_path / "runs"
    assert embed(runs / "day1", tiny_bundle, day1) == 0
    assert embed(runs / "day2", tiny_bundle, day2, skip_existing=f"{runs}/day*") == 0
    assert counts(runs / "day2") == (60, 3, 56, 1)
    capsys.readouterr()
    assert embed(runs / "day2", tiny_bundle, day2, skip_existing=f"{runs}/day*") == 0
    assert "nothing to do" in capsys.readouterr().out
    assert embed(runs / "day1", tiny_bundle, day1, skip_existing=runs / "day1") == 2
    assert "is the --output of this very run" in capsys.readouterr().err


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
    flags = {"block_bytes": 3000, "block_docs": 50, "skip_existing": tmp_path / "one"}
    assert embed(tmp_path / "two", tiny_bundle, day2, check_ids=True, **flags) == 0
    assert counts(tmp_path / "two") == (900, 1, 899, 0)
    assert rows(tmp_path / "two")["id"] == ["d8"]
    assert record(tmp_path / "two")["duplicate_ids"] == {"ids": 0, "surplus": 0, "examples": []}


def test_nothing_new_is_a_run_without_vectors(tmp_path, two_days, tiny_bundle, capsys):
    day1, _ = two_days
    assert embed(tmp_path / "one", tiny_bundle, day1) == 0
    assert embed(tmp_path / "two", tiny_bundle, day1, skip_existing=tmp_path / "one") == 0
    assert "60 records: 0 embedded, 60 skipped, 0 rejected" in capsys.readouterr().out
    assert list((tmp_path / "two").glob("embeddings-*")) == []
    # Such an output says nothing of any id, and is no obstacle either.
    assert embed(tmp_path / "three", tiny_bundle, day1, skip_existing=tmp_path / "two") == 0
    assert counts(tmp_path / "three") == (60, 60, 0, 0)


def test_the_limit_is_judged_before_what_is_skipped(tmp_path, two_days, tiny_bundle):
    day1, day2 = two_days
    assert embed(tmp_path / "one", tiny_bundle, day1, limit=10) == 0
    assert embed(tmp_path / "two", tiny_bundle, day2, skip_existing=tmp_path / "one", limit=20) == 0
    assert counts(tmp_path / "two") == (20, 12, 8, 0)


def test_changed_spans_are_another_content(tmp_path, tiny_bundle):
    def spans(path, stop):
        row = [{"id": "a", "text": "red river", "start": 0, "stop": stop}]
        row += [{"id": "b", "text": "red river", "start": 0, "stop": 3}]
        path.write_text("".join(json.dumps(each) + "\n" for each in row))
        return path

    flags = {"granularity": "span"}
    assert embed(tmp_path / "one", tiny_bundle, spans(tmp_path / "1.jsonl", 3), **flags) == 0
    flags |= {"skip_existing": tmp_path / "one"}
    assert embed(tmp_path / "two", tiny_bundle, spans(tmp_path / "2.jsonl", 9), **flags) == 0
    assert counts(tmp_path / "two") == (2, 1, 1, 0)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"pooling": "cls"}, 'pooling is "mean" there and "cls" here'),
        (
            {"dim": 8, "normalize": True},
            "normalize is false there and true here, dim is null there and 8 here",
        ),
        ({"max_seq_length": 16}, "max_seq_length is 64 there and 16 here"),
        ({"prompt": "query: "}, 'prompt is "" there and "query: " here'),
        ({"output_dtype": "float16"}, 'output_dtype is "float32" there and "float16" here'),
        ({"granularity": "word"}, 'granularity is ["sentence"] there and ["word"] here'),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_other_settings_are_refused_before_work(
    tmp_path, two_days, tiny_bundle, capsys, flags, message
):
    day1, day2 = two_days
    assert embed(tmp_path / "one", tiny_bundle, day1) == 0
    capsys.readouterr()
    flags = flags | {"skip_existing": tmp_path / "one"}
    assert embed(tmp_path / "two", tiny_bundle, day2, **flags) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "holds other vectors than this run would make" in error
    assert message in error
    assert not (tmp_path / "two").exists()
    (tmp_path / "one" / "run.json").unlink()  # the footers tell the same
    assert embed(tmp_path / "two", tiny_bundle, day2, **flags) == 2
    assert message in capsys.readouterr().err


def test_another_model_is_refused(tmp_path, two_days, tiny_bundle, capsys):
    from bert.bundle import read_bundle
    from tests.models import write_tiny_huggingface

    day1, day2 = two_days
    write_tiny_huggingface(tmp_path / "model", seed=1)
    assert embed(tmp_path / "one", tiny_bundle, day1) == 0
    flags = {"skip_existing": tmp_path / "one"}
    assert embed(tmp_path / "two", str(tmp_path / "model"), day2, **flags) == 2
    message = f'model is "{read_bundle(tiny_bundle).fingerprint}" there and '
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"skip_existing": "nowhere"}, "--skip_existing nowhere names no output of a run"),
        ({"skip_existing": "no/*/runs"}, "--skip_existing no/*/runs names no output of a run"),
        ({"list_vanished": True}, "--list_vanished compares with --skip_existing"),
        ({"list_vanished": True, "limit": 3, "skip_existing": "x"}, "all that --limit leaves out"),
    ],
    ids=["nowhere", "glob", "alone", "limit"],
)
def test_what_cannot_be_asked(tmp_path, two_days, tiny_bundle, capsys, flags, message):
    assert embed(tmp_path / "two", tiny_bundle, two_days[0], **flags) == 2
    assert message in capsys.readouterr().err


def test_json_lines_of_tokens_do_not_tell(tmp_path, two_days, tiny_bundle, capsys):
    day1, day2 = two_days
    flags = {"granularity": "token", "output_format": "jsonl"}
    assert embed(tmp_path / "one", tiny_bundle, day1, **flags) == 0
    flags |= {"skip_existing": tmp_path / "one"}
    assert embed(tmp_path / "two", tiny_bundle, day2, **flags) == 2
    assert "JSON lines of tokens, which tell no text_hash" in capsys.readouterr().err


def test_an_earlier_run_that_was_killed_counts_with_what_is_there(
    tmp_path, two_days, tiny_bundle, capsys
):
    day1, _ = two_days
    assert embed(tmp_path / "one", tiny_bundle, day1, block_bytes=700) == 0
    text = (tmp_path / "one" / "run.json").read_text().replace('"done"', '"running"')
    (tmp_path / "one" / "run.json").write_text(text)
    gone = sorted((tmp_path / "one").glob("embeddings-*"))[1]
    missing = rows_of(gone)
    gone.unlink()
    capsys.readouterr()
    assert embed(tmp_path / "two", tiny_bundle, day1, skip_existing=tmp_path / "one") == 0
    assert "not a complete run: what is there counts" in capsys.readouterr().err
    assert rows(tmp_path / "two")["id"] == missing


def rows_of(path):
    import pyarrow.parquet as pq

    return pq.read_table(path)["id"].to_pylist()


def test_a_damaged_file_is_named(tmp_path, two_days, tiny_bundle, capsys):
    day1, day2 = two_days
    assert embed(tmp_path / "one", tiny_bundle, day1) == 0
    path = next((tmp_path / "one").glob("embeddings-*"))
    path.write_bytes(path.read_bytes()[:100])
    assert embed(tmp_path / "two", tiny_bundle, day2, skip_existing=tmp_path / "one") == 1
    assert f"{path} is damaged; remove it" in capsys.readouterr().err


def test_killed_and_continued(tmp_path, tiny_bundle):
    texts = some_texts(2000)
    half = {name: text for n, (name, text) in enumerate(texts.items()) if n % 2}
    day1, day2 = write(tmp_path / "1.jsonl", half), write(tmp_path / "2.jsonl", texts)
    assert embed(tmp_path / "one", tiny_bundle, day1) == 0
    flags = {"skip_existing": tmp_path / "one", "block_bytes": 2000, "check_ids": True}
    flags["list_vanished"] = True
    assert embed(tmp_path / "whole", tiny_bundle, day2, **flags) == 0
    output = tmp_path / "out"
    process = start("embed", *flags_of(output, tiny_bundle, day2, **flags))
    wait_for_reports(output, 20, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert record(output)["status"] == "running"
    assert embed(output, tiny_bundle, day2, **flags) == 0
    assert counts(output) == (2000, 1000, 1000, 0)
    assert record(output)["counts"]["parts_reused"] >= 20
    assert files(output) == files(tmp_path / "whole")
    assert record(output)["vanished"] == 0
    assert stray(output) == []


def test_an_earlier_output_that_grew_is_another_run(tmp_path, two_days, tiny_bundle, capsys):
    day1, day2 = two_days
    assert embed(tmp_path / "one", tiny_bundle, day1) == 0
    assert embed(tmp_path / "two", tiny_bundle, day2, skip_existing=tmp_path / "one") == 0
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    assert embed(tmp_path / "two", tiny_bundle, day2, skip_existing=tmp_path / "copy") == 0
    assert "nothing to do" in capsys.readouterr().out
    name = next((tmp_path / "copy").glob("embeddings-*")).name
    (tmp_path / "copy" / name).rename(tmp_path / "copy" / name.replace("0000000", "0000009"))
    assert embed(tmp_path / "two", tiny_bundle, day2, skip_existing=tmp_path / "copy") == 2
    assert "input skip_existing" in capsys.readouterr().err


def test_a_finished_run_can_be_asked_of_its_ids_afterwards(tmp_path, tiny_bundle, capsys):
    texts = [("a", "red"), ("b", "bank"), ("a", "red"), ("c", "of"), ("b", "of")]
    source = write(tmp_path / "in.jsonl", {}, texts)
    assert embed(tmp_path / "out", tiny_bundle, source) == 0
    assert "duplicate_ids" not in record(tmp_path / "out")
    before = files(tmp_path / "out")
    assert embed(tmp_path / "out", tiny_bundle, source, check_ids=True) == 0
    found = record(tmp_path / "out")
    assert found["duplicate_ids"] == {"ids": 2, "surplus": 2, "examples": ["a", "b"]}
    assert found["counts"]["parts_reused"] == found["counts"]["parts"]
    assert files(tmp_path / "out") == before
    assert "warning: 2 ids occur more than once" in capsys.readouterr().out


def test_lists_of_vanished_documents_go_with_the_run(tmp_path, two_days, tiny_bundle):
    day1, day2 = two_days
    assert embed(tmp_path / "one", tiny_bundle, day1) == 0
    flags = {"skip_existing": tmp_path / "one", "list_vanished": True}
    assert embed(tmp_path / "two", tiny_bundle, day2, **flags) == 0
    assert len(vanished(tmp_path / "two")) == 2
    assert embed(tmp_path / "two", tiny_bundle, day2, overwrite=True, dim=3) == 0
    assert vanished(tmp_path / "two") == []
    assert len(rows(tmp_path / "one")["id"]) == 60


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


def test_the_command_that_continues_names_every_earlier_output():
    words = ["--input=a", "--output=b", "--skip_existing=c", "--skip_existing=d", "--check_ids"]
    assert command_of(parse_embed(words))[4:] == words


def test_earlier_outputs_may_stand_in_a_file(tmp_path):
    (tmp_path / "run.yaml").write_text("input: a\noutput: b\nskip_existing: [c, d]\n")
    found = parse_embed([f"--config={tmp_path / 'run.yaml'}"])
    assert found.skip_existing == ("c", "d")


def test_many_buckets_find_the_same(tmp_path, tiny_bundle, monkeypatch):
    monkeypatch.setattr("pipeline.earlier._BUCKET_KEYS", 20)  # in place of a corpus of millions
    monkeypatch.setattr("transforms.increments._SHELF", 3)
    texts = some_texts(400)
    changed = {name: f"{text} of" for name, text in texts.items() if name.endswith("3")}
    gone = {f"gone{n}": "red" for n in range(9)}
    day1, day2 = write(tmp_path / "1.jsonl", texts | gone), tmp_path / "2.jsonl"
    write(day2, texts | changed | {"new": "bank"})
    assert embed(tmp_path / "one", tiny_bundle, day1, block_docs=100) == 0
    flags = {"skip_existing": tmp_path / "one", "list_vanished": True, "block_bytes": 900}
    assert embed(tmp_path / "two", tiny_bundle, day2, **flags) == 0
    assert counts(tmp_path / "two") == (401, 41, 360, 0)
    assert rows(tmp_path / "two")["id"] == [*changed, "new"]
    assert sorted(vanished(tmp_path / "two")) == sorted(gone)


def test_earlier_outputs_on_cloud_storage(tmp_path, two_days, tiny_bundle, gcs):
    day1, day2 = two_days
    assert embed(tmp_path / "one", tiny_bundle, day1) == 0
    there = gcs.put_folder(tmp_path / "one", "increments", "runs/day1")
    for number, named in enumerate((there, "gs://increments/runs/*", "gs://increments/runs/")):
        output = tmp_path / f"two{number}"
        flags = {"skip_existing": named, "list_vanished": True}
        assert embed(output, tiny_bundle, day2, **flags) == 0
        assert counts(output) == (60, 3, 56, 1)
        assert sorted(vanished(output)) == ["d59", "d7"]
