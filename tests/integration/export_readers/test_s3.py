"""Runs from s3:// to s3://, by a server that speaks S3's protocol, also one that fails."""

import gzip
import io
import json
import os
import re
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
from apache_beam.io.filesystems import FileSystems

import bert_embed
from bert_embed.base.errors import StorageError
from bert_embed.pipeline.cli import main
from bert_embed.storage import files
from bert_embed.storage import s3 as store
from tests.support.command import embed
from tests.support.servers.gcs import proxy, some
from tests.support.servers.metadata import metadata_server
from tests.support.servers.s3 import s3_server

TEXTS = {
    "a.txt": b"a red river\nthe bank of seven stars\n",
    "b.txt.gz": gzip.compress(b"".join(b"line %d of the river\n" % n for n in range(500))),
}


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    """A client of a server with the texts in `s3://corpus/in/`; the environment leads to it."""
    with s3_server(tmp_path_factory.mktemp("s3")) as client:
        client.create_bucket(Bucket="corpus")
        for name, data in TEXTS.items():
            client.put_object(Bucket="corpus", Key=f"in/{name}", Body=data)
        yield client


def contents(client, folder):
    listed = client.list_objects_v2(Bucket="corpus", Prefix=f"{folder}/").get("Contents", ())
    read = {each["Key"]: client.get_object(Bucket="corpus", Key=each["Key"]) for each in listed}
    return {key.removeprefix(f"{folder}/"): got["Body"].read() for key, got in read.items()}


def test_a_run_writes_what_it_writes_on_this_machine(s3, tmp_path, tiny_bundle):
    (tmp_path / "in").mkdir()
    for name, data in TEXTS.items():
        (tmp_path / "in" / name).write_bytes(data)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in") == 0
    assert embed("s3://corpus/out", tiny_bundle, "s3://corpus/in/*") == 0
    found = contents(s3, "out")
    for path in sorted(tmp_path.glob("out/embeddings/*")):
        wanted = pq.read_table(path)
        table = pq.read_table(io.BytesIO(found[f"embeddings/{path.name}"]))
        assert table.drop_columns("id").equals(wanted.drop_columns("id"))
        places = [each.rpartition(":")[2] for each in wanted["id"].to_pylist()]
        assert [each.rpartition(":")[2] for each in table["id"].to_pylist()] == places
    assert json.loads(found["run.json"])["counts"]["embedded"] == 502
    assert not [name for name in found if name.startswith("_state/texts/")]
    assert embed("s3://corpus/out", tiny_bundle, "s3://corpus/in/*") == 0
    again = contents(s3, "out")
    assert main(["verify", "s3://corpus/out"]) == 0
    np.testing.assert_array_equal(
        bert_embed.read("s3://corpus/out")[1], bert_embed.read(tmp_path / "out")[1]
    )
    assert main(["search", "s3://corpus/out", "a river"]) == 0
    for name in (name for name in {*found, *again} if name.startswith("embeddings/")):
        assert again[name] == found[name]


LINES = 400
SMALL = {"block_bytes": 500}
OLD, NEW = (
    "".join(f"{word} river {n:03d}\n" for n in range(LINES)).encode() for word in ("red", "big")
)


@pytest.fixture
def proxied(s3, monkeypatch):
    """A proxy that this process then talks to; the client `s3` does not."""
    with proxy(s3.meta.endpoint_url) as made:
        monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
        yield made


@pytest.fixture(scope="module")
def intact(s3, tiny_bundle):
    """The parts of a run of `s3://corpus/old.txt` that nothing disturbed."""
    s3.put_object(Bucket="corpus", Key="old.txt", Body=OLD)
    assert embed("s3://corpus/intact", tiny_bundle, "s3://corpus/old.txt", **SMALL) == 0
    return parts(s3, "intact")


def parts(client, folder):
    found = contents(client, folder).items()
    return {
        name: pq.read_table(io.BytesIO(data)) for name, data in found if name.startswith("embed")
    }


@pytest.mark.parametrize(
    ("faults", "methods"),
    [(("lost",), ("PUT", "POST")), ((500, 503, "cut", "lost"), ("GET", "PUT", "POST", "DELETE"))],
    ids=["lost-writes", "all-sorts"],
)
def test_passing_faults_are_retried(s3, proxied, intact, tiny_bundle, faults, methods):
    fault = some(0.2, *faults)
    proxied.fault = lambda method, path: fault(method, path) if method in methods else None
    output = f"passing-{len(methods)}"
    assert embed(f"s3://corpus/{output}", tiny_bundle, "s3://corpus/old.txt", **SMALL) == 0
    assert proxied.failed >= 5
    assert parts(s3, output) == intact
    assert json.loads(contents(s3, output)["run.json"])["counts"]["embedded"] == LINES


@pytest.mark.parametrize("at", [1, 2, 3, 9])
def test_an_input_replaced_meanwhile_mixes_with_nothing(
    s3, proxied, intact, tiny_bundle, capsys, at
):
    s3.put_object(Bucket="corpus", Key="old.txt", Body=OLD)
    reads = []

    def fault(method, path):
        if method == "GET" and path.startswith("/corpus/old.txt"):
            reads.append(path)
            if len(reads) == at:
                s3.put_object(Bucket="corpus", Key="old.txt", Body=NEW)

    proxied.fault = fault
    output = f"replaced-{at}"
    code = embed(f"s3://corpus/{output}", tiny_bundle, "s3://corpus/old.txt", **SMALL)
    s3.put_object(Bucket="corpus", Key="old.txt", Body=OLD)
    assert len(reads) >= at
    written = parts(s3, output)
    assert {name: intact[name] for name in written} == written
    assert code == (2 if at <= 3 else 1)  # the first three reads are before the work
    errors = capsys.readouterr().err
    [sentence] = re.findall(r"^error: .*", errors, re.MULTILINE)
    assert "s3://corpus/old.txt was replaced or removed" in sentence
    assert "Traceback" not in errors


def test_the_endpoint_can_be_a_flag(s3, tiny_bundle, monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    flags = {"s3_endpoint_url": s3.meta.endpoint_url}
    assert embed("s3://corpus/flag", tiny_bundle, "s3://corpus/in/a.txt", **flags) == 0
    assert json.loads(contents(s3, "flag")["run.json"])["counts"]["embedded"] == 2


@pytest.fixture
def late(s3, monkeypatch):
    """A proxy before a server with a file in `s3://late/`, and no pause before another attempt."""
    s3.create_bucket(Bucket="late")
    s3.put_object(Bucket="late", Key="a", Body=b"data")
    monkeypatch.setattr(FileSystems, "_pipeline_options", None)  # those of another test's job
    with proxy(os.environ["AWS_ENDPOINT_URL"]) as made:
        monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        yield made


def test_credentials_that_come_late_are_waited_for(late, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, "/none")
    monkeypatch.setattr(store, "_clients", {})
    with metadata_server() as metadata:
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://{metadata.host}")
        metadata.failing = 2
        assert files.read_bytes("s3://late/a") == b"data"
        assert metadata.failing == 0
        monkeypatch.setattr(store, "_clients", {})
        monkeypatch.setattr(store, "_LOOKED_FOR", 0.1)
        metadata.failing = 1 << 30
        said = r"^s3://late/a cannot be read: .*set AWS_ACCESS_KEY_ID"
        with pytest.raises(StorageError, match=said):
            files.read_bytes("s3://late/a")
        metadata.failing = 0
        assert files.read_bytes("s3://late/a") == b"data"
