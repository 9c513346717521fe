"""When a report is written, when it is not, and that it never gets in the way of a run."""

import os
import re
import shutil
from importlib.util import find_spec

import pyarrow.dataset
import pytest

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


@pytest.fixture
def report(capsys):
    """Runs `report` with these words; returns what it says."""

    def reported(*words, code=0):
        capsys.readouterr()
        assert main(["report", *map(str, words)]) == code
        return "".join(capsys.readouterr())

    return reported


def test_the_summary_names_the_report_and_a_finished_run_keeps_it(corpus, run):
    output = run(corpus, report="texts")
    assert run.out.endswith(f", the report in {output}/report.html\n")
    before = os.stat(output / "report.html").st_mtime_ns
    run(corpus)
    assert os.stat(output / "report.html").st_mtime_ns == before
    assert main(["verify", str(output)]) == 0
    assert pyarrow.dataset.dataset(output / "embeddings").count_rows() == len(TEXTS)
    corpus.write_text("another text")
    run(corpus, overwrite=True, report="false")
    assert not (output / "report.html").exists()


def test_it_can_be_left_out_and_written_later(corpus, run, report):
    output = run(corpus, report="false")
    assert "report.html" not in run.out
    assert not (output / "report.html").exists()
    fingerprint = record(output)["run"]
    report(output)
    assert content(output)["run"]["fingerprint"] == fingerprint
    (output / "report.html").unlink()
    # As after a job on a cluster that ended after its command.
    run(corpus)
    assert content(output)["run"]["fingerprint"] == fingerprint


def test_a_finished_runs_page_loses_the_texts_that_it_is_to_show_no_more(corpus, run):
    page = run(corpus) / "report.html"
    assert TEXTS[0] in page.read_text("utf-8")
    assert page.stat().st_mode & 0o077 == 0
    run(corpus, report="true")
    assert TEXTS[0] not in page.read_text("utf-8")


def test_a_run_is_done_though_its_report_cannot_be_written(tmp_path, corpus, run):
    (tmp_path / "out" / "report.html").mkdir(parents=True)
    output = run(corpus)
    (warning,) = [line for line in run.err.splitlines() if line.startswith("warning:")]
    assert re.fullmatch(
        rf"warning: {output}/report.html was not written \(.*\); the run is complete, "
        rf"`bert-embed report {output}` tries again",
        warning,
    )
    assert record(output)["status"] == "done"
    assert "the report in" not in run.out


@pytest.mark.slow
def test_a_large_run_writes_it_in_a_process_of_its_own(run, tmp_path, report):
    """The same page, or the same warning."""
    lines = {"in.txt": "".join(f"{n} banks\n" for n in range(5001))}
    output = run(lines)
    assert "warning" not in run.err
    report(output, "--projection=pca", f"--output={tmp_path}/again.html")
    assert (tmp_path / "again.html").read_bytes() == (output / "report.html").read_bytes()
    (tmp_path / "other" / "report.html").mkdir(parents=True)
    run(lines, "other")
    assert "report.html was not written (OSError: error: " in run.err


def test_a_resumed_run_has_one_page_about_all_its_blocks(corpus, run):
    output = run(corpus, block_bytes=100, skip_blocks=1)
    assert content(output)["rejected"][0]["reason"] == "block skipped on request"
    run(corpus, block_bytes=100)
    page = content(output)
    assert page["counts"]["parts_reused"] > 0
    assert (page["rejected"], len(page["documents"]["ids"])) == ([], len(TEXTS))


def test_the_command_of_the_run_is_shown_without_secrets(corpus, tiny_bundle, run):
    output = run(corpus, prompt="query: ", s3_secret_access_key="hunter2")
    command = content(output)["run"]["command"]
    assert f"--model={tiny_bundle} '--prompt=query: '" in command
    assert command.startswith(f"bert-embed embed --input={corpus}")
    assert "hunter2" not in (output / "report.html").read_text("utf-8")


def test_a_report_replaces_pages_only(finished, tmp_path, report):
    output = shutil.copytree(finished[0], tmp_path / "out")
    for name in ("run.json", "embeddings/part-0000000-00000.parquet"):
        before = (output / name).read_bytes()
        said = report(output, f"--output={output / name}", code=2)
        assert f"{name} is there and is no page; give another name" in said
        assert (output / name).read_bytes() == before
    before = set(output.rglob("*"))
    said = report(output, f"--output={output}/embeddings/new.html", code=2)
    assert "embeddings/new.html lies among the files of the run" in said
    place = f"{tmp_path}/no/page.html"
    message = f"--output {place} cannot be written: there is no folder {tmp_path}/no"
    assert message in report(output, f"--output={place}", code=2)
    assert set(output.rglob("*")) == before
    report(output, f"--output={output}/new.html")
    for _ in range(2):
        report(output, f"--output={tmp_path / 'shown.html'}")


def test_outputs_that_are_none_or_not_complete_are_refused(tmp_path, finished, report):
    message = "is not the output of a run: it holds no run.json"
    assert message in report(tmp_path, code=2)
    (tmp_path / "run.json").write_text('{"vectors": {}, "status": "done", "format": 2, "run": ""}')
    message = f"{tmp_path}/run.json is damaged: it has no started"
    assert message in report(tmp_path, code=2)
    output = shutil.copytree(finished[0], tmp_path / "out")
    say_status(output, "running")
    told = f"error: {output}: the run is not complete (status running); run its command again\n"
    assert report(output, code=2) == told


@pytest.mark.parametrize("output_format", ["parquet", "tfrecord"])
def test_a_damaged_or_lost_file_is_named(corpus, run, report, output_format):
    output = run(corpus, output_format=output_format)
    page = (output / "report.html").read_bytes()
    (file,) = sentence_files(output)
    file.write_bytes(file.read_bytes()[:-9])
    assert f"{file.parent.name}/{file.name} is damaged" in report(output, code=2)
    file.unlink()
    assert f"{output}/embeddings holds " in report(output, code=2)
    assert (output / "report.html").read_bytes() == page


@pytest.mark.skipif(find_spec("openTSNE") is not None, reason="openTSNE is installed")
def test_a_map_that_is_not_installed_is_refused(finished, capsys):
    assert main(["report", str(finished[0]), "--projection", "tsne"]) == 2
    expected = "--projection tsne requires openTSNE, which is not installed here: "
    assert f"{expected}pip install openTSNE\n" in capsys.readouterr().err


def test_texts_of_an_input_that_is_gone_are_noted(corpus, run, report):
    output = run(corpus)
    corpus.unlink()
    assert "note: no texts are shown" in report(output)
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
def test_an_output_in_cloud_storage_has_its_page_there(
    gcs, finished, tiny_bundle, tmp_path, report
):
    gcs.client.create_bucket("reports")
    output = "gs://reports/out"
    assert main(["embed", *flags_of(output, tiny_bundle, finished[1])]) == 0
    report(output, f"--output={tmp_path}/page.html")
    here = content(finished[0])
    names = ("vectors", "documents", "map", "counts", "lengths")
    for page in (gcs.root / "reports" / "out" / "report.html", tmp_path / "page.html"):
        found = content_of(page.read_text("utf-8"))
        assert {name: found[name] for name in names} == {name: here[name] for name in names}


@pytest.mark.parametrize("count", [1, 2, 9])
def test_a_few_documents_that_are_alike_raise_no_alarm(run, count):
    texts = [f"the bank of the red river and {n} stars of money" for n in range(9)]
    output = run({"in.txt": "\n".join([texts[0], *texts][:count])}, max_seq_length=8)
    assert all(each["healthy"] for each in content(output)["vectors"]["findings"])


def test_a_first_try_and_stacked_layers_look_healthy(run):
    flags = {"layers": "1,2", "layer_combine": "stack", "normalize": True}
    output = run({"in.txt": "the bank\nof the red river\nstars\n"}, **flags)
    found = {each["name"]: each for each in content(output)["vectors"]["findings"]}
    assert found["Length (norm)"]["value"] == "all 1.414"
    assert found["Length (norm)"]["healthy"]


def test_a_book_as_one_document_adds_some_bins_to_the_lengths(run):
    texts = [{"text": "red"}, {"text": "bank " * 30_000}]
    output = run({"in.jsonl": texts}, long_text="window", granularity="sentence")
    lengths = record(output)["lengths"]
    assert sum(lengths["counts"]) == 2
    assert len(lengths["counts"]) < 100
    assert (lengths["p50"], lengths["max"], lengths["equal_bins"]) == (15, 32767, 64)
    assert content(output)["lengths"] == lengths
