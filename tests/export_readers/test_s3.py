"""Runs from s3:// to s3://, by Beam's file systems and a server that speaks S3's protocol."""

import gzip
import io
import json
import re
import sys

import boto3
import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import embed
from tests.support.servers.gcs import answers, free_port, running

TEXTS = {
    "a.txt": b"a red river\nthe bank of seven stars\n",
    "b.txt.gz": gzip.compress(b"".join(b"line %d of the river\n" % n for n in range(500))),
}


@pytest.fixture(scope="module")
def s3(tmp_path_factory):
    """A client of a server with the texts in `s3://corpus/in/`; the environment leads to it."""
    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", url.rpartition(":")[2]]
    log = tmp_path_factory.mktemp("s3") / "server.log"
    keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            **keys,
            "AWS_ENDPOINT_URL": url,
            "AWS_DEFAULT_REGION": "us-east-1",
        }.items():
            patch.setenv(name, value)
        with running(command, log, lambda: answers(f"{url}/moto-api/")):
            client = boto3.client("s3")
            client.create_bucket(Bucket="corpus")
            for name, data in TEXTS.items():
                client.put_object(Bucket="corpus", Key=f"in/{name}", Body=data)
            yield client


def contents(client, folder):
    listed = client.list_objects_v2(Bucket="corpus", Prefix=f"{folder}/").get("Contents", ())
    return {
        each["Key"].removeprefix(f"{folder}/"): client.get_object(Bucket="corpus", Key=each["Key"])[
            "Body"
        ].read()
        for each in listed
    }


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
    assert {name: again[name] for name in again if name.startswith("embeddings/")} == {
        name: found[name] for name in found if name.startswith("embeddings/")
    }


def test_vectors_there_are_read_and_searched(s3, tiny_bundle, tmp_path, capsys):
    for output in ("s3://corpus/other", str(tmp_path / "other")):
        assert embed(output, tiny_bundle, "s3://corpus/in/a.txt") == 0
    ids, vectors = bert_embed.read("s3://corpus/other")
    wanted_ids, wanted = bert_embed.read(tmp_path / "other")
    assert ids == wanted_ids
    np.testing.assert_array_equal(vectors, wanted)
    capsys.readouterr()
    assert main(["search", "s3://corpus/other", "a river", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["hits"]) > 0


@pytest.mark.parametrize(
    ("source", "output", "said"),
    [
        (
            "s3://corpus/none/*",
            "s3://corpus/none-out",
            r"--input s3://corpus/none/\* names no file",
        ),
        ("s3://corpus/in/*", "s3://elsewhere/out", "cannot be written: .*NoSuchBucket"),
        ("s3://elsewhere/in/*", "s3://corpus/none-out", "elsewhere"),
    ],
)
def test_what_is_not_there_is_named(s3, tiny_bundle, capsys, source, output, said):
    assert embed(output, tiny_bundle, source) != 0
    errors = capsys.readouterr().err
    assert "Traceback" not in errors
    assert re.search(said, errors), errors
