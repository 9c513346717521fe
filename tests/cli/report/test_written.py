"""When a report is written, when it is not, and that it never gets in the way of a run."""

import json
import os
import re
import shutil
from importlib.util import find_spec

import pyarrow.dataset
import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import embed, flags_of, record, say_status, sentence_files
from tests.support.outputs import content, content_of

TEXTS = [f"the bank of the red river {n}" for n in range(12)]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("\n".join(TEXTS))
    return path


@pytest.fixture(scope="module")
def finished(tiny_bundle, tmp_path_factory):
    """An output that no test changes, and its input."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "in.txt").write_text("\n".join(TEXTS))
    assert embed(folder / "out", tiny_bundle, folder / "in.txt") == 0
    return folder / "out", folder / "in.txt"


def test_the_summary_names_the_report_and_a_finished_run_keeps_it(
    corpus, tiny_bundle, tmp_path, capsys
):
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, corpus, report="texts") == 0
    assert capsys.readouterr().out.endswith(f", the report in {output}/report.html\n")
    before = os.stat(output / "report.html").st_mtime_ns
    assert embed(output, tiny_bundle, corpus) == 0
    assert os.stat(output / "report.html").st_mtime_ns == before
    assert main(["verify", str(output)]) == 0
    assert pyarrow.dataset.dataset(output / "embeddings").count_rows() == len(TEXTS)


def test_it_can_be_left_out_and_written_later(corpus, tiny_bundle, tmp_path, capsys):
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, corpus, report="false") == 0
    assert "report.html" not in capsys.readouterr().out
    assert not (output / "report.html").exists()
    fingerprint = record(output)["run"]
    assert main(["report", str(output)]) == 0
    assert content(output)["run"]["fingerprint"] == fingerprint
    (output / "report.html").unlink()
    # As after a job on a cluster that ended after its command.
    assert embed(output, tiny_bundle, corpus) == 0
    assert content(output)["run"]["fingerprint"] == fingerprint


def test_a_finished_runs_page_loses_the_texts_that_it_is_to_show_no_more(
    corpus, tiny_bundle, tmp_path
):
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, corpus) == 0
    assert TEXTS[0] in (output / "report.html").read_text("utf-8")
    assert embed(output, tiny_bundle, corpus, report="true") == 0
    assert TEXTS[0] not in (output / "report.html").read_text("utf-8")


def test_overwrite_removes_it(corpus, tiny_bundle, tmp_path):
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, corpus) == 0
    corpus.write_text("another text")
    assert embed(output, tiny_bundle, corpus, overwrite=True, report="false") == 0
    assert not (output / "report.html").exists()


def test_a_run_is_done_though_its_report_cannot_be_written(corpus, tiny_bundle, tmp_path, capsys):
    output = tmp_path / "out"
    (output / "report.html").mkdir(parents=True)
    assert embed(output, tiny_bundle, corpus) == 0
    said = capsys.readouterr()
    (warning,) = [line for line in said.err.splitlines() if line.startswith("warning:")]
    assert re.fullmatch(
        rf"warning: {output}/report.html was not written \(.*\); the run is complete, "
        rf"`bert-embed report {output}` tries again",
        warning,
    )
    assert record(output)["status"] == "done"
    assert "the report in" not in said.out


@pytest.mark.slow
def test_a_large_run_writes_it_in_a_process_of_its_own(tiny_bundle, tmp_path, capsys):
    """The same page, or the same warning."""
    (tmp_path / "in.txt").write_text("".join(f"{n} banks\n" for n in range(5001)))
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, tmp_path / "in.txt") == 0
    assert "warning" not in capsys.readouterr().err
    again = ["--projection", "pca", "--output", str(tmp_path / "again.html")]
    assert main(["report", str(output), *again]) == 0
    assert (tmp_path / "again.html").read_bytes() == (output / "report.html").read_bytes()
    (tmp_path / "other" / "report.html").mkdir(parents=True)
    assert embed(tmp_path / "other", tiny_bundle, tmp_path / "in.txt") == 0
    assert "report.html was not written (OSError: error: " in capsys.readouterr().err


def test_python_calls_write_it_too(corpus, tiny_bundle, tmp_path):
    output = tmp_path / "out"
    bert_embed.embed(corpus, output, model=tiny_bundle, show_progress=False)
    assert content(output)["counts"]["embedded"] == len(TEXTS)


def test_a_resumed_run_has_one_page_about_all_its_blocks(corpus, tiny_bundle, tmp_path):
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, corpus, block_bytes=100, skip_blocks=1) == 0
    assert content(output)["rejected"][0]["reason"] == "block skipped on request"
    assert embed(output, tiny_bundle, corpus, block_bytes=100) == 0
    page = content(output)
    assert page["counts"]["parts_reused"] > 0
    assert (page["rejected"], len(page["documents"]["ids"])) == ([], len(TEXTS))


def test_the_command_of_the_run_is_shown_without_secrets(corpus, tiny_bundle, tmp_path):
    flags = {"prompt": "query: ", "s3_secret_access_key": "hunter2"}
    assert embed(tmp_path / "out", tiny_bundle, corpus, **flags) == 0
    command = content(tmp_path / "out")["run"]["command"]
    assert f"--model={tiny_bundle} '--prompt=query: '" in command
    assert command.startswith(f"bert-embed embed --input={corpus}")
    assert "hunter2" not in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_a_report_replaces_pages_only(finished, tmp_path, capsys):
    output = tmp_path / "out"
    shutil.copytree(finished[0], output)
    for name in ("run.json", "embeddings/part-0000000-00000.parquet"):
        before = (output / name).read_bytes()
        assert main(["report", str(output), f"--output={output / name}"]) == 2
        assert f"{name} is there and is no page; give another name" in capsys.readouterr().err
        assert (output / name).read_bytes() == before
    before = set(output.rglob("*"))
    assert main(["report", str(output), f"--output={output}/embeddings/new.html"]) == 2
    assert "embeddings/new.html lies among the files of the run" in capsys.readouterr().err
    assert set(output.rglob("*")) == before
    assert main(["report", str(output), f"--output={output}/new.html"]) == 0
    for _ in range(2):
        assert main(["report", str(output), f"--output={tmp_path / 'shown.html'}"]) == 0


def test_wrong_folders_are_refused_in_one_sentence(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    assert "is not the output of a run: it holds no run.json" in capsys.readouterr().err
    (tmp_path / "run.json").write_text('{"vectors": {}, "status": "done", "format": 2, "run": ""}')
    assert main(["report", str(tmp_path)]) == 2
    assert f"{tmp_path}/run.json is damaged: it has no started" in capsys.readouterr().err


def test_a_place_that_is_not_there_is_refused(finished, tmp_path, capsys):
    place = f"{tmp_path}/no/page.html"
    assert main(["report", str(finished[0]), f"--output={place}"]) == 2
    expected = f"--output {place} cannot be written: there is no folder {tmp_path}/no"
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("flags", [{}, {"output_format": "tfrecord"}], ids=["parquet", "tfrecord"])
def test_a_damaged_file_is_named(corpus, tiny_bundle, tmp_path, capsys, flags):
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, corpus, **flags) == 0
    (file,) = sentence_files(output)
    file.write_bytes(file.read_bytes()[:-9])
    assert main(["report", str(output)]) == 2
    assert f"{file.parent.name}/{file.name} is damaged" in capsys.readouterr().err


@pytest.mark.skipif(find_spec("openTSNE") is not None, reason="openTSNE is installed")
def test_a_map_that_is_not_installed_is_refused(finished, capsys):
    assert main(["report", str(finished[0]), "--projection", "tsne"]) == 2
    expected = "--projection tsne requires openTSNE, which is not installed here: "
    assert f"{expected}pip install openTSNE\n" in capsys.readouterr().err


def test_texts_of_an_input_that_is_gone_are_noted(corpus, tiny_bundle, tmp_path, capsys):
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, corpus) == 0
    corpus.unlink()
    assert main(["report", str(output)]) == 0
    assert "note: no texts are shown" in capsys.readouterr().err
    assert content(output)["documents"]["texts"] is None


@pytest.mark.slow
def test_a_page_of_many_long_texts_keeps_to_its_size(tiny_bundle, tmp_path):
    """Texts that take six bytes a letter are cut until the page fits."""
    from bert_embed.pipeline.report.page import MOST_BYTES, page

    rows = 20_000
    content_ = {
        "documents": {
            "ids": [f"{n}" + "<" * 120 for n in range(rows)],
            "places": None,
            "texts": ["<" * 500] * rows,
            "columns": [{"name": "a", "kind": "text", "values": ["<" * 60] * rows}],
        },
        "map": {
            "cluster": [0] * rows,
            "projections": [{"name": "PCA", "x": [1] * rows, "y": [2] * rows}],
        },
        "clusters": [{"size": rows, "central": [1, 2, 3]}],
        "neighbours": [{"row": 0, "near": [[1, 0.5]]}],
    }
    made = page(content_)
    assert len(made) <= MOST_BYTES
    shown = content_of(made.decode())
    assert {len(shown["documents"][name]) for name in ("ids", "texts")} == {rows}


@pytest.mark.slow
def test_an_output_in_cloud_storage_has_its_page_there(gcs, finished, tiny_bundle, tmp_path):
    gcs.client.create_bucket("reports")
    output = "gs://reports/out"
    assert main(["embed", *flags_of(output, tiny_bundle, finished[1])]) == 0
    there = gcs.root / "reports" / "out" / "report.html"
    names = ("vectors", "documents", "map", "counts", "lengths")
    here = content(finished[0])
    first = content_of(there.read_text("utf-8"))
    assert {name: first[name] for name in names} == {name: here[name] for name in names}
    assert main(["report", output, f"--output={tmp_path}/page.html"]) == 0
    again = content_of((tmp_path / "page.html").read_text("utf-8"))
    assert {name: again[name] for name in names} == {name: here[name] for name in names}


@pytest.mark.parametrize("count", [1, 2, 9])
def test_a_few_documents_that_are_alike_raise_no_alarm(tmp_path, tiny_bundle, count):
    path = tmp_path / "in.txt"
    texts = [f"the bank of the red river and {n} stars of money" for n in range(9)]
    path.write_text("\n".join([texts[0], *texts][:count]))
    assert embed(tmp_path / "out", tiny_bundle, path, max_seq_length=8) == 0
    assert all(each["healthy"] for each in content(tmp_path / "out")["vectors"]["findings"])


def test_a_first_try_and_stacked_layers_look_healthy(tmp_path, tiny_bundle):
    path = tmp_path / "in.txt"
    path.write_text("the bank\nof the red river\nstars\n")
    flags = {"layers": "1,2", "layer_combine": "stack", "normalize": True}
    assert embed(tmp_path / "out", tiny_bundle, path, **flags) == 0
    found = {each["name"]: each for each in content(tmp_path / "out")["vectors"]["findings"]}
    assert found["Length (norm)"]["value"] == "all 1.414"
    assert found["Length (norm)"]["healthy"]


def test_what_is_said_of_an_unfinished_run_is_for_the_command_line(finished, tmp_path, capsys):
    output = tmp_path / "out"
    shutil.copytree(finished[0], output)
    say_status(output, "running")
    assert main(["report", str(output)]) == 2
    told = f"error: {output}: the run is not complete (status running); run its command again\n"
    assert capsys.readouterr().err == told


def test_a_book_as_one_document_adds_some_bins_to_the_lengths(tmp_path, tiny_bundle):
    path, output = tmp_path / "in.jsonl", tmp_path / "out"
    texts = ["red", "bank " * 30_000]
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    flags = {"long_text": "window", "granularity": "sentence"}
    assert embed(output, tiny_bundle, path, **flags) == 0
    lengths = record(output)["lengths"]
    assert sum(lengths["counts"]) == 2
    assert len(lengths["counts"]) < 100
    assert (lengths["p50"], lengths["max"], lengths["equal_bins"]) == (15, 32767, 64)
    assert content(output)["lengths"] == lengths
