"""The cluster writes what the local runner writes: the packaged model, every kind of input."""

import gzip
import hashlib
import json

import pytest

from tests.support.command import (
    embed,
    files,
    flags_of,
    record,
    rejected,
    rows,
)
from tests.support.flink.cluster import counted
from tests.support.rounding import MINILM, assert_near

SETTINGS = {"block_bytes": 4000, "threads": 1}
SUBJECTS = ["the river bank", "a money vault", "seven stars", "an old robber", "the first call"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Lines and JSON lines, one compressed file that has several readers; some records are none."""
    folder = tmp_path_factory.mktemp("texts")
    texts = [f"{SUBJECTS[n % 5]} was seen {n} times, {n % 7} of them by day" for n in range(400)]
    lines = [text.encode() for text in texts]
    lines[30], lines[31] = b"", b"\xff\xfe"
    (folder / "lines.txt").write_bytes(b"\n".join(lines))
    codes = [hashlib.sha256(text.encode()).hexdigest()[:40] for text in texts[:200]]
    records = [
        json.dumps({"id": f"r{n}", "text": f"{n} is {code}"}) for n, code in enumerate(codes)
    ]
    records[7], records[8] = '{"id": "r7", "text": ', '{"id": "r8"}'
    with gzip.open(folder / "records.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(records))
    assert (folder / "records.jsonl.gz").stat().st_size > SETTINGS["block_bytes"], "several readers"
    return folder


def test_a_cluster_writes_what_the_local_runner_writes(tmp_path, cluster, corpus):
    cluster.have_task_managers(2)
    here, there = tmp_path / "here", tmp_path / "there"
    assert embed(here, "minilm", corpus, **SETTINGS) == 0
    job = cluster.embed(*flags_of(there, "minilm", corpus, **SETTINGS))
    assert job.returncode == 0, job.stderr

    ours, theirs = rows(here), rows(there)
    assert len(ours["id"]) == 596
    for name in set(ours) - {"embedding"}:
        assert ours[name] == theirs[name], name
    assert_near(ours["embedding"], theirs["embedding"], MINILM)
    assert list(files(there)) == list(files(here))
    assert rejected(there) == rejected(here)
    assert len(rejected(here)) == 4
    assert counted(there) == counted(here)
    assert record(there)["status"] == "done"
    assert record(there)["run"] == record(here)["run"]
    assert len(cluster.blocks_by_task_manager()) == 2
