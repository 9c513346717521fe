"""Exports from and to Cloud Storage, on a real server: the same files as on a local disk."""

import pytest

from tests.support.outputs import contents, export, finished_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return finished_run(tmp_path_factory.mktemp("cloud") / "run", [60_000, 60_000], 4, kept=False)


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
