"""The same result in Cloud Storage, and from other runners."""

import pandas as pd
import pyarrow.parquet as pq
import pytest

from bert_embed.pipeline.cli import main
from tests.support.command import RUNNERS, finish, runner_flags, start
from tests.support.outputs import clustered_vectors, write_output

pytestmark = pytest.mark.slow

FLAGS = ("--eps=0.1", "--n_clusters=6")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_output(tmp_path_factory.mktemp("in"), clustered_vectors(400, width=8, groups=6))


@pytest.fixture(scope="module")
def wanted(source, tmp_path_factory):
    out = tmp_path_factory.mktemp("wanted") / "out"
    assert main(["dedup", str(source), str(out), *FLAGS]) == 0
    return {kind: pd.read_parquet(out / kind) for kind in ("clusters", "duplicates")}


def test_cloud_storage_gives_the_same(source, wanted, gcs, capsys):
    bucket = gcs.client.create_bucket("clusters")
    for path in source.rglob("*.*"):
        bucket.blob(f"in/{path.relative_to(source)}").upload_from_filename(path)
    words = ["dedup", "gs://clusters/in", "gs://clusters/out", *FLAGS]
    assert main(words) == 0
    names = sorted(blob.name for blob in gcs.client.list_blobs("clusters", prefix="out/"))
    assert not [name for name in names if "_state" in name]
    for kind, table in wanted.items():
        parts = [name for name in names if name.startswith(f"out/{kind}/")]
        found = [pq.read_table(bucket.blob(name).open("rb")).to_pandas() for name in parts]
        places = {name: "gs://clusters/in" for name in table if name.endswith("output")}
        there = table.assign(**places)
        pd.testing.assert_frame_equal(pd.concat(found, ignore_index=True), there)
    capsys.readouterr()
    assert main(words) == 0
    assert "nothing to do" in capsys.readouterr().out


@pytest.mark.parametrize("runner", RUNNERS)
def test_other_runners_give_the_same(source, wanted, tmp_path, runner):
    out = tmp_path / "out"
    finish(start("dedup", str(source), str(out), *FLAGS, *runner_flags(runner)))
    for kind, table in wanted.items():
        pd.testing.assert_frame_equal(pd.read_parquet(out / kind), table)
