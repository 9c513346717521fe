"""When a report is written of which outputs, and that it never gets in the way of a run."""

import os
import re

import numpy as np
import pyarrow.dataset
import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from bert_embed.pipeline.report.page import page
from tests.support.command import record
from tests.support.outputs import content, content_of, contents, write_output

TEXTS = [f"the bank of the red river and {n % 7} seven stars of money" for n in range(30)]
CORPUS = {"in.jsonl": [{"id": f"d{n}", "text": text} for n, text in enumerate(TEXTS)]}


def test_the_summary_names_the_report_and_a_finished_run_keeps_it(run, tmp_path, tiny_bundle):
    flags = {"report": "texts", "prompt": "query: ", "s3_secret_access_key": "hunter2"}
    output = run(CORPUS, **flags)
    page = output / "report.html"
    assert run.out.endswith(f", the report in {page}\n")
    before = os.stat(page).st_mtime_ns
    command = content(output)["run"]["command"]
    assert f"--model={tiny_bundle} '--prompt=query: '" in command
    assert command.startswith(f"bert-embed embed --input={tmp_path}/in.jsonl")
    assert "hunter2" not in page.read_text("utf-8")
    run(CORPUS, **flags)
    assert os.stat(page).st_mtime_ns == before
    assert main(["verify", str(output)]) == 0
    assert pyarrow.dataset.dataset(output / "embeddings").count_rows() == len(TEXTS)
    run({"in.jsonl": [{"text": "another"}]}, overwrite=True, report="false")
    assert not page.exists()


def test_it_can_be_left_out_and_written_later(tmp_path, run, command):
    output = run(CORPUS, report="false")
    assert "report.html" not in run.out
    assert not (output / "report.html").exists()
    command("report", output)
    assert content(output)["run"]["fingerprint"] == record(output)["run"]
    (output / "report.html").unlink()
    # As after a job on a cluster that ended after its command.
    run(CORPUS)
    page = output / "report.html"
    assert TEXTS[0] in page.read_text("utf-8")
    assert page.stat().st_mode & 0o077 == 0
    run(CORPUS, report="true")
    assert TEXTS[0] not in page.read_text("utf-8")
    (tmp_path / "in.jsonl").unlink()
    assert "note: no texts are shown" in command("report", output).err
    assert content(output)["documents"]["texts"] is None


def test_a_run_is_done_though_its_report_cannot_be_written(tmp_path, run):
    (tmp_path / "out" / "report.html").mkdir(parents=True)
    output = run(CORPUS)
    (warning,) = [line for line in run.err.splitlines() if line.startswith("warning:")]
    assert re.fullmatch(
        rf"warning: {output}/report.html was not written \(.*\); the run is complete, "
        rf"`bert-embed report {output}` tries again",
        warning,
    )
    assert record(output)["status"] == "done"
    assert "the report in" not in run.out


@pytest.mark.slow
def test_a_large_run_writes_it_in_a_process_of_its_own(run, tmp_path, command, monkeypatch):
    """The same page, or the same warning."""
    monkeypatch.setattr("bert_embed.pipeline.report.page._MANY", 50)
    lines = {"in.txt": "".join(f"{n} banks\n" for n in range(51))}
    output = run(lines)
    assert "warning" not in run.err
    command("report", output, projection="pca", output=tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == (output / "report.html").read_bytes()
    (tmp_path / "other" / "report.html").mkdir(parents=True)
    run(lines, "other")
    assert "report.html was not written (OSError: error: " in run.err


def test_a_resumed_run_has_one_page_about_all_its_blocks(run):
    output = run(CORPUS, block_bytes=100, skip_blocks=1)
    assert content(output)["rejected"][0]["reason"] == "block skipped on request"
    run(CORPUS, block_bytes=100)
    page = content(output)
    assert page["counts"]["parts_reused"] > 0
    assert (page["rejected"], len(page["documents"]["ids"])) == ([], len(TEXTS))


def test_a_report_replaces_pages_only(run, tmp_path, command):
    output = run(CORPUS)
    before, place = contents(output), f"{tmp_path}/no/page.html"
    part = "embeddings/part-0000000-00000.parquet"
    for named, said in (
        (f"{output}/run.json", "run.json is there and is no page; give another name"),
        (f"{output}/{part}", f"{part} is there and is no page; give another name"),
        (f"{output}/embeddings/new.html", "embeddings/new.html lies among the files of the run"),
        (place, f"--output {place} cannot be written: there is no folder {tmp_path}/no"),
    ):
        assert said in command("report", output, output=named, code=2).err
    assert contents(output) == before
    for name in ("out/new.html", "shown.html", "shown.html"):
        command("report", output, output=tmp_path / name)


def test_a_page_of_many_long_texts_keeps_to_its_size(monkeypatch):
    """Texts that take six bytes a letter are cut until the page fits."""
    monkeypatch.setattr("bert_embed.pipeline.report.page.MOST_BYTES", 480_000)  # ten times as many
    rows = 2000
    documents = {
        "ids": [f"{n}" + "<" * 120 for n in range(rows)],
        "texts": ["<" * 500] * rows,
        "columns": [{"name": "a", "kind": "text", "values": ["<" * 60] * rows}],
    }
    made = page({"documents": documents})
    assert len(made) <= 480_000
    found = content_of(made.decode())["documents"]
    assert len(found["ids"]) == len(found["texts"]) == rows


def test_a_first_try_looks_healthy(run):
    """A few documents that are alike raise no alarm."""
    texts = [f"the bank of the red river and {n} stars of money" for n in range(9)]
    for count in (1, 2, 9):
        lines = {"in.txt": "\n".join([texts[0], *texts][:count])}
        output = run(lines, str(count), max_seq_length=8)
        assert all(each["healthy"] for each in content(output)["vectors"]["findings"])


def test_a_book_as_one_document_adds_some_bins_to_the_lengths(run):
    texts = [{"text": "red"}, {"text": "bank " * 30_000}]
    output = run({"in.jsonl": texts}, long_text="window", layers=0)
    lengths = record(output)["lengths"]
    assert sum(lengths["counts"]) == 2
    assert len(lengths["counts"]) < 100
    assert (lengths["p50"], lengths["max"], lengths["equal_bins"]) == (15, 32767, 64)
    assert content(output)["lengths"] == lengths


STORED = {
    "jsonl of bits": {"output_dtype": "ubinary", "output_format": "jsonl"},
    "tfrecord": {"output_format": "tfrecord", "output_dtype": "bfloat16", "keep_text": True},
    "a stack": {"layers": "-1,-2", "layer_combine": "stack"},
    "one number": {"dim": 1, "keep_text": True},
    "windows of int8": {"max_seq_length": 8, "long_text": "windows", "output_dtype": "int8"},
    "chunks": {"chunk": "tokens:6", "keep_text": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("flags", STORED.values(), ids=STORED)
def test_vectors_are_read_as_they_are_stored(flags, run):
    output = run(CORPUS, **flags)
    page, (ids, vectors) = content(output), bert_embed.read(output)
    assert page["documents"]["ids"] == ids
    flat = vectors.reshape(len(ids), -1)
    unit = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    row, near = page["neighbours"][0]["row"], page["neighbours"][0]["near"]
    for other, score in near:
        assert score == pytest.approx(unit[row] @ unit[other], abs=1e-3)
        assert ids[other] != ids[row]
    places, texts = page["documents"]["places"], page["documents"]["texts"]
    assert (places is not None) == ("embeddings" not in page["written"])
    if places is None:
        assert texts == TEXTS  # those that the output does not hold come from the input
    else:
        start, stop = map(int, places[1].split(":"))
        whole = TEXTS[int(ids[1][1:])]
        assert texts[1] == " ".join(whole[start:stop].split())


def test_a_run_into_a_table_has_its_page(dataset, load):
    page = content(load(CORPUS, keep_text=True))
    assert page["run"]["tables"] == [f"test-project.{dataset}.v"]
    assert page["documents"]["ids"] == [f"d{n}" for n in range(len(TEXTS))]
    assert page["documents"]["texts"] == TEXTS


def test_vectors_of_tokens_and_words_alone_give_a_page_without_a_map(run, command):
    output = run(CORPUS, granularity="token,word")
    page = content(output)
    assert (page["vectors"], page["documents"]) == (None, None)
    assert page["counts"]["embedded"] == page["written"]["words"]["rows"] == len(TEXTS)
    assert page["lengths"]["counts"] != []
    said = command("search", output, "stars", code=2).err
    assert "holds vectors of token and word, none of sentence" in said


def test_an_empty_input_and_one_that_is_rejected_give_a_page(tmp_path, run):
    page = content(run({"empty.txt": ""}, "empty"))
    assert page["counts"]["records"] == 0
    assert (page["rejected"], page["documents"]) == ([], None)
    lines = {"bad.jsonl": '{"id": "a", "text": ""}\n' * 9}
    page = content(run(lines, "bad", max_rejected="100%"))
    ((count, places),) = [(each["count"], each["places"]) for each in page["rejected"]]
    starts = [f"{tmp_path}/bad.jsonl, line {line}" for line in range(1, 6)]
    assert (count, [place["source"] for place in places]) == (9, starts)


def found_bad(page):
    return {each["name"] for each in page["vectors"]["findings"] if not each["healthy"]}


def test_vectors_that_are_not_healthy_are_reported(run):
    texts = {"in.txt": "".join(f"the same text of the river {n}\n" for n in range(25))}
    page = content(run(texts, max_seq_length=5))
    assert {"Equal vectors", "Cosine of random pairs"} <= found_bad(page)
    assert page["full_lengths"]["longest"] > 5
    copies = content(run({"same.txt": "the same text\n" * 25}, "copies"))
    assert copies["vectors"]["equal"] == 24
    assert "Equal vectors" not in found_bad(copies)
    assert "map" not in copies


def test_vectors_of_zeros_alone_give_a_page_that_says_so(tmp_path, command):
    output = write_output(tmp_path / "zeros", np.zeros((3, 8), np.float32))
    command("report", output)
    page = content(output)
    assert found_bad(page) == {"NaN and zero vectors"}
    assert (page["vectors"]["zero"], page["documents"]["ids"], page["neighbours"]) == (3, [], [])


def test_examples_have_a_page_on_request(run, tiny_bundle, tmp_path, command):
    (source,), output = run.written(CORPUS), tmp_path / "out"
    command("tokenize", input=source, output=output, model=tiny_bundle)
    assert not (output / "report.html").exists()
    command("report", output)
    page = content(output)
    assert (page["run"]["kind"], page["counts"]["embedded"]) == ("examples", len(TEXTS))
