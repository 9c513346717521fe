"""What `cluster` and `dedup` refuse, before any work starts."""

import json

import pytest

from bert_embed.pipeline.cli import main
from tests.support.outputs import clustered_vectors, write_output


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_output(tmp_path_factory.mktemp("in"), clustered_vectors(50, width=8, groups=3))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--eps=0.1", "--threshold=0.9"], "--eps conflicts with --threshold"),
        (["--eps=1"], "--eps must be at least 0 and below 1, got 1"),
        (["--threshold=0"], "--threshold must be above 0 and at most 1, got 0"),
        (["--n_clusters=0"], "--n_clusters must be a whole number of at least 1, got '0'"),
        (["--n_clusters=51"], "--n_clusters 51 is more than the 50 vectors"),
        (["--n_nearest=0"], "--n_nearest must be a whole number of at least 1, got '0'"),
        (["--n_nearest=65"], "--n_nearest must be at most 64, got '65'"),
        (["--seed=-1"], "--seed must be a whole number, 0 or more, got '-1'"),
        (["--which_to_keep=best"], "--which_to_keep must be one of hard, easy, random, got 'best'"),
        (["--n_cluster=3"], "unknown flag --n_cluster; did you mean --n_clusters?"),
        (["--regoin=x"], "unknown flag --regoin; did you mean --region?"),
        (["--k=3"], "unknown flag --k; did you mean --n_clusters?"),
        (["--output=x"], "unknown flag --output; see bert-embed"),
        (["third"], "out is not the output of a run: it holds no run.json"),
        (["--runtime_type_check"], "--runtime_type_check is not offered"),
        (["--runner=NoRunner"], "--runner NoRunner is not available"),
        (["--runner=DataflowRunner"], "is on this machine, where Dataflow's workers cannot read"),
    ],
)
def test_wrong_flags(source, tmp_path, capsys, flags, message):
    assert main(["dedup", str(source), str(tmp_path / "out"), *flags]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_flags_of_dedup_are_none_of_cluster(source, tmp_path, capsys):
    assert main(["cluster", str(source), str(tmp_path / "out"), "--eps=0.1"]) == 2
    assert "unknown flag --eps" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["cluster", "dedup"])
def test_a_dry_run_says_the_plan_or_what_a_run_would_refuse(source, tmp_path, capsys, command):
    words = [command, str(source), str(tmp_path / "out"), "--dry_run"]
    assert main(words) == 0
    assert f"{command}: 50 vectors of 8 numbers in" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.txt").write_text("")
    assert main(words) == 2
    assert "choose an empty folder as OUT" in capsys.readouterr().err


def test_a_folder_is_missing(source, capsys):
    assert main(["dedup", str(source)]) == 2
    assert "DIR or OUT is missing: give the output of a run, then OUT" in capsys.readouterr().err


def test_dir_is_no_output_of_a_run(tmp_path, capsys):
    assert main(["dedup", str(tmp_path), str(tmp_path / "out")]) == 2
    assert "is not the output of a run: it holds no run.json" in capsys.readouterr().err


def test_a_run_is_not_complete_or_has_other_vectors(tmp_path, capsys):
    source = write_output(tmp_path / "in", clustered_vectors(20, width=8, groups=3))
    record = json.loads((source / "run.json").read_text())
    words = ["dedup", str(source), str(tmp_path / "out")]
    changes = [
        ({"status": "running"}, "the run is not complete (status running)"),
        ({"vectors": record["vectors"] | {"granularity": ["word"]}}, "none of sentence"),
        ({"written": {}}, "its run wrote 0 of 0"),
    ]
    for change, message in changes:
        (source / "run.json").write_text(json.dumps(record | change))
        assert main(words) == 2
        assert message in capsys.readouterr().err
    (source / "run.json").write_text(json.dumps(record))
    (source / "embeddings").rename(source / "chunks")
    record["written"] = {"chunks": record["written"]["embeddings"]}
    (source / "run.json").write_text(json.dumps(record))
    assert main(words) == 2
    message = capsys.readouterr().err
    assert "holds chunks, several vectors a document" in message
    assert "embed the documents into another folder without --chunk" in message


def test_out_holds_something_else(source, tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    for command in ("cluster", "dedup"):
        assert main([command, str(source), str(tmp_path), "--overwrite"]) == 2
        assert "notes.txt but no record of cluster or dedup" in capsys.readouterr().err
        assert main([command, str(source), str(source), "--overwrite"]) == 2
        assert "is not the record of cluster or dedup" in capsys.readouterr().err
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert (source / "run.json").exists()


@pytest.mark.parametrize("command", ["cluster", "dedup"])
def test_out_lies_in_dir(source, tmp_path, capsys, command):
    (tmp_path / "link").symlink_to(source)
    before = set(source.rglob("*"))
    for out in (source / "embeddings" / "x", tmp_path / "link" / "new"):
        assert main([command, str(source), str(out)]) == 2
        told = f"error: OUT {out} lies in the output itself; choose a folder outside it\n"
        assert capsys.readouterr().err == told
    assert main([command, str(tmp_path / "link"), str(source / "new")]) == 2
    assert set(source.rglob("*")) == before


def test_a_damaged_file_is_named(tmp_path, capsys):
    source = write_output(tmp_path / "in", clustered_vectors(40, width=8, groups=3))
    path = sorted((source / "embeddings").iterdir())[1]
    data = path.read_bytes()
    path.write_bytes(data[:200] + bytes(100) + data[300:])
    out = tmp_path / "out"
    assert main(["dedup", str(source), str(out)]) == 1
    assert f"{path} is damaged" in capsys.readouterr().err
    assert json.loads((out / "run.json").read_text())["status"] == "failed"
    path.write_bytes(data)
    assert main(["dedup", str(source), str(out)]) == 0
    assert json.loads((out / "run.json").read_text())["counts"]["vectors"] == 40
