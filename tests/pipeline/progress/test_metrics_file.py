"""Prometheus' own parser reads the metrics file, which has the numbers of run.json. About 5 s."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bert_embed.pipeline.cli import main
from tests.support.command import embed, record


def metrics(path):
    """Values by name and labels but the output's; each must have a help text."""
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        assert family.documentation
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name != "output"}
            found[(sample.name.removeprefix("bert_embed_"), *labels.values())] = sample.value
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory, tiny_bundle):
    folder = tmp_path_factory.mktemp("metrics")
    (folder / "in.txt").write_text("".join(f"the bank {n}\n" for n in range(300)) + "\n\n")
    file = folder / "run.prom"
    assert embed(folder / "out", tiny_bundle, folder / "in.txt", metrics_file=file) == 0
    return folder


def test_it_holds_the_numbers_of_the_record(run):
    found, done = metrics(run / "run.prom"), record(run / "out")
    assert found["documents_total",] == done["counts"]["embedded"] == 300
    assert found["records_total",] == done["counts"]["records"]
    assert found["tokens_total",] == done["tokens"]
    assert found["padded_tokens_total",] == done["padded_tokens"]
    assert found["rejected_total", "empty text"] == 2
    assert found["skipped_total",] == 0
    assert found["blocks_done",] == found["blocks",] == done["files"]["blocks"]
    for stage, seconds in done["stage_seconds"].items():
        assert found["stage_seconds_total", stage] == pytest.approx(seconds, abs=0.01)
    assert (found["run_state", "done"], found["run_state", "running"]) == (1, 0)
    assert found["start_time_seconds",] <= found["last_success_time_seconds",] + 1
    assert [path.name for path in run.iterdir() if ".prom" in path.name] == ["run.prom"]
    assert done["options"]["metrics_file"] == str(run / "run.prom")


def test_it_is_no_part_of_the_fingerprint_and_watch_writes_the_same(run, tiny_bundle, capsys):
    again = {"metrics_file": run / "again.prom"}
    assert embed(run / "out", tiny_bundle, run / "in.txt", **again) == 0
    assert capsys.readouterr().out.startswith("nothing to do")
    assert main(["watch", str(run / "out"), f"--metrics_file={run}/watch.prom"]) == 0
    times = ("start_time_seconds", "update_time_seconds", "tokens_per_second")
    first, again, watched = (
        {key: value for key, value in metrics(run / name).items() if key[0] not in times}
        for name in ("run.prom", "again.prom", "watch.prom")
    )
    assert first == again == watched


def test_a_failed_run_keeps_when_the_last_one_succeeded(run, poisoned_bundle, tmp_path):
    file = tmp_path / "daily.prom"
    file.write_bytes((run / "run.prom").read_bytes())
    before = metrics(file)
    (tmp_path / "in.txt").write_text("vault\nvault vault\n")
    flags = {"metrics_file": file}
    assert embed(tmp_path / "out", poisoned_bundle, tmp_path / "in.txt", **flags) == 1
    found = metrics(file)
    assert (found["run_state", "failed"], found["run_state", "done"]) == (1, 0)
    assert found["documents_total",] == 0
    assert found["last_success_time_seconds",] == before["last_success_time_seconds",]


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("x.txt", "must end with .prom, node_exporter reads no other file, got x.txt"),
        ("gs://b/x.prom", "must be a local file, got gs://b/x.prom"),
        ("/nowhere/at/all/x.prom", "/nowhere/at/all/x.prom cannot be written: No such file"),
    ],
)
def test_a_file_that_nobody_would_collect_is_refused(tmp_path, tiny_bundle, capsys, file, message):
    (tmp_path / "in.txt").write_text("one\n")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", metrics_file=file) == 2
    assert f"--metrics_file {message}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
