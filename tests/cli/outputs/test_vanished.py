"""An output that vanishes in mid-run, whole or in part: the job fails, in one sentence."""

import json
import shutil
from pathlib import Path

import pytest

from bert_embed.pipeline.cli import main
from bert_embed.transforms.output_folder import OutputFolder
from tests.cli.outputs.conftest import LINES, SMALL
from tests.support.command import block_records, embed, record, rows

PARTS = 10
FLAGS = SMALL | {"max_rejected": 1}


def after_parts(monkeypatch, parts, fault):
    """Does something to the output once so many block records are written."""
    write, done = OutputFolder.write_block_record, []

    def write_and_break(folder, block, part, data):
        write(folder, block, part, data)
        done.append(block)
        if len(done) == parts:
            fault(Path(folder.path))

    monkeypatch.setattr(OutputFolder, "write_block_record", write_and_break)


def move(output):
    output.rename(output.with_name("moved"))


def replace_by_empty(output):
    move(output)
    output.mkdir()


def replace_by_copy(output):
    """The folder as it was with its run.json, but for one file that was lost on the way."""
    move(output)
    shutil.copytree(output.with_name("moved"), output)
    next((output / "embeddings").iterdir()).unlink()


def replace_without_records(output):
    """Block records of some parts and their files are both gone: what is there fits together."""
    first = block_records(output)[0]
    for path in output.rglob(f"*{first.stem}*"):
        path.unlink()


FAULTS = {
    "moved": move,
    "removed": shutil.rmtree,
    "replaced by an empty folder": replace_by_empty,
    "replaced by a copy": replace_by_copy,
    "a part and its record removed": replace_without_records,
    "embeddings removed": lambda output: shutil.rmtree(output / "embeddings"),
    "block records removed": lambda output: shutil.rmtree(output / "_state" / "blocks"),
    "state removed": lambda output: shutil.rmtree(output / "_state"),
    "a file removed": lambda output: next((output / "embeddings").iterdir()).unlink(),
    "a file cut": lambda output: next((output / "embeddings").iterdir()).write_bytes(b""),
    "a block record removed": lambda output: block_records(output)[0].unlink(),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "parts"), [*((fault, 5) for fault in FAULTS), ("moved", PARTS), ("a file cut", PARTS)]
)
def test_the_job_fails_in_one_sentence(run, corpus, monkeypatch, fault, parts):
    after_parts(monkeypatch, parts, FAULTS[fault])
    output = run(corpus, code=1, **FLAGS)
    check_one_sentence(run.err)
    if (output / "run.json").exists():
        assert record(output)["status"] == "failed"
        monkeypatch.undo()
        run(corpus, **FLAGS)
        assert len(rows(output)["id"]) == LINES - 1
        assert main(["verify", str(output)]) == 0


def check_one_sentence(said):
    assert "Traceback" not in said, said
    (line,) = [line for line in said.splitlines() if "error" in line]
    assert line.startswith("error: the job failed: ")


@pytest.mark.slow
def test_of_a_bucket_too(tmp_path, tiny_bundle, corpus, monkeypatch, capsys, gcs):
    """Objects are gone that an earlier part of the run wrote, with their block record."""
    gcs.client.create_bucket("vanished")
    address, folder = "gs://vanished/out", gcs.root / "vanished" / "out"
    with monkeypatch.context() as patches:
        after_parts(patches, 5, lambda _: replace_without_records(folder))
        assert embed(address, tiny_bundle, corpus, **FLAGS) == 1
    check_one_sentence(capsys.readouterr().err)
    assert record(folder)["status"] == "failed"
    assert embed(address, tiny_bundle, corpus, **FLAGS) == 0
    assert len(rows(folder)["id"]) == LINES - 1


def test_another_run_in_the_folder_is_not_overwritten(run, corpus, monkeypatch):
    """Whoever gave the folder to another run had --overwrite and no lock, as on a store."""

    def give_away(folder):
        data = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps(data | {"run": "0" * 32}))

    after_parts(monkeypatch, 5, give_away)
    output = run(corpus, code=1, **SMALL)
    check_one_sentence(run.err)
    assert record(output)["run"] == "0" * 32
