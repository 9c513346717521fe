"""Cloud Storage, on a real server: as on a local disk, and asked for nothing that it has told."""

import gzip
import json
import shutil
import threading
import time
from collections import Counter

import numpy as np
import pytest

import bert_embed
from bert_embed.pipeline import texts
from bert_embed.pipeline.cli import main
from tests.support.command import (
    embed,
    files,
    finish,
    flags_of,
    record,
    rejected,
    rows,
    start,
    write_table,
)
from tests.support.daily import some_texts
from tests.support.outputs import content

pytestmark = pytest.mark.slow

SMALL = {"block_bytes": 1000}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Three files of JSON lines, one of them compressed, with some bad records."""
    folder = tmp_path_factory.mktemp("texts")
    whole = some_texts(450) | dict.fromkeys(["d0", "d140", "d280", "d420"], "")
    lines = [json.dumps({"id": name, "text": text}) for name, text in whole.items()]
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


PARTS = 40

LINES = "".join(f"{n:04d} a line of a text\n" for n in range(PARTS * 4))
IN_PARTS = {"block_bytes": len(LINES) // PARTS, "report": "false"}  # which reads what was written


@pytest.fixture
def parts(gcs, tiny_bundle):
    """The address of an output of many parts, and the folder where the server keeps it."""
    if not gcs.client.bucket("parts").exists():
        gcs.put("parts", {"in.txt": LINES})
        assert embed("gs://parts/out", tiny_bundle, "gs://parts/in.txt", **IN_PARTS) == 0
    return "gs://parts/out", gcs.root / "parts" / "out"


def test_finished_blocks_are_found_by_one_listing(gcs, parts, proxied, tiny_bundle):
    url, output = parts
    assert record(output)["counts"]["parts"] == PARTS
    whole = files(output)
    bucket = gcs.client.bucket("parts")
    run = bucket.blob("out/run.json")  # as after a kill at the very end
    run.upload_from_string(run.download_as_bytes().replace(b'"done"', b'"running"'))
    bucket.blob("out/_state/blocks/0000020-00000.json").delete()
    proxied.forget()
    assert embed(url, tiny_bundle, "gs://parts/in.txt", **IN_PARTS) == 0
    assert files(output) == whole
    assert record(output)["counts"]["parts_reused"] == PARTS - 1
    block_records = Counter(
        path.partition("?")[0].rpartition("%2F")[2].rpartition("/")[2]
        for method, path in proxied.paths
        if method == "GET" and "blocks%2F0" in path
    )
    # Each is read once, the missing one by the stage that computes it.
    assert len(block_records) == PARTS
    assert set(block_records.values()) == {1}
    counts = proxied.counts()
    assert counts["read"] <= PARTS + 15  # run.json, the input, its listing
    assert counts["list"] <= 12
    assert counts["get"] <= 6  # of the input by its name, not of any output
    assert counts["write"] <= 6  # run.json, its listing, the part
    blocks = [p for _, p in proxied.paths if "/o?" in p and "blocks%2F&" in p.replace("/", "%2F")]
    assert len(blocks) <= 4


def test_many_objects_cost_a_request_each(gcs, proxied, run):
    gcs.put("many", {f"texts/{number:03d}.txt": f"text number {number}\n" for number in range(60)})
    proxied.forget()
    ids = rows(run("gs://many/texts", report="false"))["id"]
    assert (len(ids), ids[7]) == (60, "gs://many/texts/007.txt:0")
    counts = proxied.counts()
    assert counts["read"] <= 60 + 3  # and the first one for the checks of the command line
    assert counts["list"] <= 6
    assert counts["get"] <= 3
    assert not counts["other"]  # such as of the bucket, which many may not read


def test_a_large_object_is_read_once(gcs, proxied, run):
    """Blocks overlap by the 128 KiB in which a line may go on, no more is fetched twice."""
    gcs.put("large", {"in.txt": "a line that goes on and on\n" * 30_000})
    proxied.forget()
    output = run("gs://large/in.txt", block_bytes=200_000, layers="0", report="false")
    assert len(rows(output)["id"]) == 30_000
    assert proxied.counts()["read"] <= 5 + 3


def test_the_end_of_a_parquet_object_is_read_once(gcs, proxied, run, tmp_path):
    """By the plan, and by the worker, which finds all of a small object there."""
    write_table(tmp_path / "in.parquet", [{"text": "the bank of the river"}])
    data = (tmp_path / "in.parquet").read_bytes()
    gcs.put("footers", {f"texts/{number:03d}.parquet": data for number in range(20)})
    proxied.forget()
    assert len(rows(run("gs://footers/texts", report="false"))["id"]) == 20
    assert proxied.counts()["read"] <= 2 * 20 + 3


def test_a_report_reads_few_objects(gcs, proxied, run, monkeypatch, command):
    """All of 150 in blocks of 64 where 128 MiB are worth as many requests, one block, or none."""
    whole = [f"text number {number}" for number in range(150)]
    gcs.put("report", {f"texts/{at:03d}.txt": f"{text}\n" for at, text in enumerate(whole)})
    output = run("gs://report/texts", report="false")
    for bytes_a_request, read in ((1 << 10, 150), (2 << 20, 64), (4 << 20, 0)):
        proxied.forget()
        monkeypatch.setattr(texts, "_REQUEST_BYTES", bytes_a_request)
        assert ("too many small objects" in command("report", output).err) == (read == 0)
        shown = content(output)["documents"]["texts"]
        assert shown == ([*whole[:read], *[""] * (150 - read)] if read else None)
        assert proxied.counts()["read"] == read + 1  # into one file it looks for its format


def test_search_fetches_several_files_at_a_time(parts, proxied, tiny_bundle, tmp_path):
    """And asks for one block record to know that there are any, not for a list of all."""
    url, output = parts
    here, queries = shutil.copytree(output, tmp_path / "out"), ["a text", "0017"]
    at_once, most, lock = 0, 0, threading.Lock()

    def held(method, path):
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.05)  # so that a request meets those beside it
        with lock:
            at_once -= 1

    def hits(folder):
        found = bert_embed.nearest(folder, queries, 5, model=tiny_bundle)
        return [[(hit.id, hit.score, hit.file) for hit in hits] for hits in found]

    wanted = hits(str(here))
    proxied.forget()
    proxied.fault = held
    assert hits(url) == wanted
    assert most >= 4
    listings = [path for _, path in proxied.paths if "/o?" in path]
    assert not [path for path in listings if "blocks" in path and "maxResults=1" not in path]
    counts = proxied.counts()
    assert counts["read"] <= 2 * PARTS + 12  # files and block records; run.json, texts of hits
    assert counts["list"] <= 5
