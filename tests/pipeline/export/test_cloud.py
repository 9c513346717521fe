"""Exports from and to Cloud Storage, on a real server: the same files as on a local disk."""

import json

import pytest

from tests.support.exports import contents, export
from tests.support.finished_runs import finished_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = finished_run(tmp_path_factory.mktemp("cloud") / "run", [60_000, 60_000], 4, kept=False)
    (folder / "removed").mkdir()
    (folder / "removed" / "part-0000000-00000.jsonl").write_text('{"id": "gone", "output": "e"}\n')
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | {"removed": 1}))
    return folder


@pytest.mark.parametrize("target", ["npy", "vertex"])
def test_gs_in_and_out_gives_the_files_of_a_local_export(gcs, run, tmp_path, target):
    source = gcs.put_folder(run, f"runs-{target}", "run")
    gcs.client.create_bucket(f"exports-{target}")
    assert export(run, tmp_path / "dest", target) == 0
    dest = f"gs://exports-{target}/batch/dest"
    assert export(source, dest, target) == 0
    assert contents(gcs.root / f"exports-{target}" / "batch") == contents(tmp_path)
    assert export(source, dest, target) == 0


def test_a_bucket_that_is_not_there_is_named(gcs, run, capsys):
    assert export(run, "gs://no-such-bucket/dest", "npy") == 2
    assert "no-such-bucket" in capsys.readouterr().err
