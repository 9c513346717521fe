"""Input, output, settings and results in Cloud Storage, on a real server: as on a local disk."""

import gzip
import json

import numpy as np
import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import embed, files, finish, flags_of, record, rejected, start
from tests.support.daily import some_texts

pytestmark = pytest.mark.slow

DOCUMENTS = 450
SMALL = {"block_bytes": 1000}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Three files of JSON lines, one of them compressed, with some bad records."""
    folder = tmp_path_factory.mktemp("texts")
    texts = some_texts(DOCUMENTS) | dict.fromkeys(["d0", "d140", "d280", "d420"], "")
    lines = [json.dumps({"id": name, "text": text}) for name, text in texts.items()]
    (folder / "a.jsonl").write_text("\n".join(lines[:200]))
    (folder / "b.jsonl").write_text("\n".join(lines[200:420]) + "\n")
    (folder / "c.jsonl.gz").write_bytes(gzip.compress("\n".join(lines[420:]).encode(), mtime=0))
    return folder


@pytest.fixture(scope="module")
def local(corpus, tiny_bundle, tmp_path_factory):
    output = tmp_path_factory.mktemp("local") / "out"
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    return output


@pytest.fixture
def url(gcs, corpus):
    return gcs.put_folder(corpus, "corpus", "texts")


def bucket(gcs, name):
    """A bucket of the test's own: its address, and the folder where the server keeps it."""
    gcs.client.create_bucket(name)
    return f"gs://{name}", gcs.root / name


def test_a_run_in_cloud_storage_equals_a_local_one(gcs, url, corpus, local, tiny_bundle, capsys):
    """But for the input's place; two jobs at once do no harm."""
    address, folder = bucket(gcs, "whole")
    command = ["embed", *flags_of(f"{address}/runs/out", tiny_bundle, url, **SMALL)]
    for process in [start(*command), start(*command)]:
        finish(process)
    output = folder / "runs" / "out"
    same, wanted = (
        {name: data for name, data in files(each).items() if name.startswith("embeddings")}
        for each in (output, local)
    )
    assert same == wanted
    moved = json.loads(json.dumps(rejected(output)).replace(url, str(corpus)))
    assert moved == rejected(local)
    same, wanted = record(output), record(local)
    same["counts"]["parts_reused"] = 0
    for name in ("counts", "rejected", "tokens", "lengths"):
        assert same[name] == wanted[name]
    assert same["status"] == "done"
    before = {p: p.stat().st_mtime_ns for p in output.rglob("*")}
    assert main(command) == 0
    assert "nothing to do" in capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in output.rglob("*")} == before


def test_settings_come_from_a_file_there(gcs, url, run):
    gcs.put("corpus", {"run.yaml": f"input: {url}\n"})
    run(config="gs://corpus/run.yaml", dry_run=True)
    assert run.out.startswith("3 files, ")
    run.refused((), "gs://corpus/none.yaml is not there", config="gs://corpus/none.yaml")


def test_results_are_read_and_searched_there(gcs, url, local, tiny_bundle, command):
    """Also where the name of the output has characters of a glob."""
    output = f"{bucket(gcs, 'results')[0]}/out [1] of?"
    assert embed(output, tiny_bundle, url, granularity="sentence,token", **SMALL) == 0
    ids, vectors = bert_embed.read(output)
    wanted_ids, wanted = bert_embed.read(local)
    assert ids == wanted_ids
    np.testing.assert_array_equal(vectors, wanted)
    assert [each.id for each in bert_embed.read_tokens(f"{output}/")] == wanted_ids
    for name in ("verify", "report"):
        command(name, output)
    words = ["red river bank", "--k=2"]
    assert command("search", output, *words).out == command("search", local, *words).out
    said = command("search", "gs://results/none", *words, code=2).err
    assert "gs://results/none is not the output of a run" in said
    [blob, *_] = [one for one in gcs.client.list_blobs("results") if "/embeddings/" in one.name]
    data = blob.download_as_bytes()
    blob.upload_from_string(data[:9] + bytes([data[9] ^ 1]) + data[10:])
    said = command("search", output, *words, code=2).err
    assert f": gs://results/{blob.name} is damaged" in said


def test_objects_decompressed_on_the_way_are_refused_where_they_are_read(gcs, run):
    address, _ = bucket(gcs, "coded")
    there = gcs.client.bucket("coded")
    for name in ("a.txt", "site/logo.svg", "site/_styles/main.css", "site/page.txt"):
        blob = there.blob(name)
        blob.content_encoding = None if name == "site/page.txt" else "gzip"
        blob.upload_from_string(b"a red river" if name == "site/page.txt" else b"\x1f\x8b")
    output = run(f"{address}/site", "site")
    assert record(output)["input"]["skipped_files"] == {".svg": 1, "_*": 1}
    for named in ("a.txt", "site/logo.svg"):
        flags = {"input_format": "text"} if named == "site/logo.svg" else {}
        said = f"gs://coded/{named} is stored with Content-Encoding gzip"
        run.refused(f"{address}/{named}", said, **flags)
