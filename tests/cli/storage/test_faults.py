"""Storage that fails: retried until the counts are exact, or told in one sentence by its name."""

import gzip
import itertools
import json
import os
import re
import time
from types import SimpleNamespace

import pytest

from bert_embed.storage import gcs
from tests.support.command import (
    block_records,
    embed,
    files,
    files_of_at_most,
    record,
    rejected,
    rows,
    stray,
    write_json,
)
from tests.support.servers.gcs import kind_of, some

pytestmark = pytest.mark.slow

SMALL = {"block_bytes": 2000}

LINES = 800


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "in.jsonl"
    records = [{"id": f"d{n}", "text": f"line {n}"} for n in range(LINES)]
    return write_json(path, *records, {"id": "bad"})


@pytest.fixture(scope="module")
def local(corpus, tiny_bundle, tmp_path_factory):
    """What a run writes on a disk that does not fail."""
    output = tmp_path_factory.mktemp("local") / "out"
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    return output


@pytest.fixture
def place(gcs, corpus, request):
    """A bucket with the corpus: addresses of the input and an output, and the output's folder."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[-50:].strip("-")
    bucket, url = gcs.put(name, {"in.jsonl": corpus.read_bytes()}), f"gs://{name}"
    places = {"url": url, "input": f"{url}/in.jsonl", "out": f"{url}/out"}
    return SimpleNamespace(bucket=bucket, output=gcs.root / name / "out", **places)


@pytest.fixture
def job(run):
    """Embeds; a failure is one sentence, which has these parts. Returns all that is said."""

    def embedded(output, source, *parts, code=0, **flags):
        run(source, str(output), code, **SMALL | flags)
        told = run.out + run.err
        assert "Traceback" not in told
        sentences = [line for line in told.splitlines() if line.startswith("error: ")]
        assert len(sentences) == (code != 0)
        assert all(part in sentences[0] for part in parts), told
        return told

    return embedded


def assert_complete(output, local):
    counts = record(output)["counts"]
    assert counts["records"] == LINES + 1 == counts["embedded"] + counts["rejected"]
    assert len(rejected(output)) == counts["rejected"] == 1
    vectors = {n: d for n, d in files(output).items() if n.startswith("embeddings")}
    assert vectors == {n: d for n, d in files(local).items() if n.startswith("embeddings")}
    assert stray(output) == []


def no_fault(method, path):
    return None


@pytest.mark.parametrize(
    "faults",
    [(429, 500, 502, 503, 504, 408), ("cut", "lost")],
    ids=["errors", "cut-connections"],
)
def test_passing_faults_are_retried(proxied, place, local, job, monkeypatch, faults):
    soon = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: None)
    monkeypatch.setattr("google.api_core.retry.retry_unary.time", soon)
    proxied.fault = some(0.2, *faults)
    job(place.out, place.input)
    assert proxied.failed >= 10
    assert_complete(place.output, local)


def test_a_damaged_answer_is_noticed(proxied, place, local, job, tmp_path):
    """A small object is read whole, with its checksum; the second answer is right."""
    flipped = []

    def flip_once(method, path):
        if "alt=media" in path and path not in flipped:
            flipped.append(path)
            return "flip"
        return None

    proxied.fault = flip_once
    job(tmp_path / "out", place.input, block_bytes=1 << 20)
    assert flipped
    for name in ("id", "text_hash"):
        assert rows(tmp_path / "out")[name] == rows(local)[name]


@pytest.mark.parametrize(
    ("after", "only", "status", "parts"),
    [
        (5, "", 503, ["Cloud Storage cannot be reached or refuses"]),
        (3, "POST", 403, ["/out/", "may not be written"]),
    ],
    ids=["outage", "permission"],
)
def test_a_fault_that_lasts_fails_the_job_and_the_same_command_continues(
    proxied, place, local, job, monkeypatch, after, only, status, parts
):
    monkeypatch.setattr("bert_embed.storage.gcs.PATIENCE", 1.0)

    def after_a_while(method, path):
        parts = block_records(place.output)
        return status if len(parts) >= after and only in ("", method) else None

    proxied.fault = after_a_while
    told = job(place.out, place.input, place.url, *parts, code=1)
    assert "the same command continues" in told
    proxied.fault = no_fault
    job(place.out, place.input)
    assert record(place.output)["counts"]["parts_reused"] >= after
    assert_complete(place.output, local)


def test_an_outage_as_the_job_ends_is_said_to_be_one(proxied, place, local, job, monkeypatch):
    monkeypatch.setattr("bert_embed.storage.gcs.PATIENCE", 1.0)

    def at_the_end(method, path):
        is_done = (place.output / "run.json").exists() and record(place.output)["status"] == "done"
        return 503 if is_done else None

    proxied.fault = at_the_end
    job(place.out, place.input, f"{place.out}/run.json cannot be read: Cloud Storage ", code=1)
    proxied.fault = no_fault
    assert "nothing to do" in job(place.out, place.input)
    assert_complete(place.output, local)


@pytest.mark.parametrize("refused", ["write", "read", "list"])
def test_permission_denied_is_told_before_work_starts(proxied, place, job, refused):
    proxied.fault = lambda method, path: 403 if kind_of(method, path) == refused else None
    done = {"write": "written", "read": "read", "list": "listed"}[refused]
    parts = f"{place.url}/", f"may not be {done}", "Storage Object User"
    job(place.out, place.input, *parts, code=2)
    assert not place.output.exists()


@pytest.mark.parametrize(
    ("status", "message", "said"),
    [
        (403, "Object 'out' is subject to bucket's retention policy", "a retention policy of the"),
        (400, "Bucket is a requester pays bucket but no user project provided.", "requesters pay"),
    ],
)
def test_rules_of_a_bucket_are_told(proxied, place, job, status, message, said):
    body = json.dumps({"error": {"code": status, "message": message}}).encode()
    proxied.fault = lambda method, path: (status, body) if method == "POST" else None
    job(place.out, place.input, f"{place.url}/", said, code=2)


def test_a_dry_run_shows_the_plan_without_permission(proxied, place, job):
    proxied.fault = lambda method, path: 403
    plan = job(place.out, place.input, dry_run=True)
    assert "pooling mean, 32 numbers a document" in plan
    assert f"from {place.input}\n" in plan
    assert "note: input and output were not looked at" in plan
    assert "Storage Object User" in plan
    assert not place.output.exists()


def test_missing_buckets_are_named(place, job):
    job(place.out, "gs://absent/in.jsonl", "there is no bucket absent", code=2)
    job("gs://absent/out", place.input, "--output gs://absent/out", "no bucket absent", code=2)


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_an_object_replaced_while_it_is_read_fails_by_name(proxied, place, job, corpus, suffix):
    """Between the plan and the last block, another object takes the name."""
    text, seen = corpus.read_bytes(), itertools.count(1)
    blob = place.bucket.blob(f"new.{suffix}")
    blob.upload_from_string(gzip.compress(text) if suffix.endswith("gz") else text)

    def replace_late(method, path):
        # The first four are the command line's looks, one of them at what the suffix names.
        if "alt=media" in path and "new." in path and next(seen) == 5:
            place.bucket.blob(f"new.{suffix}").upload_from_string(text[::-1])

    proxied.fault = replace_late
    url = f"{place.url}/new.{suffix}"
    told = job(place.out, url, f"{url} was replaced or removed", code=1)
    assert "run again with --overwrite, or into another --output" in told
    assert "the same command continues" not in told
    assert record(place.output)["status"] == "failed"
    proxied.fault = no_fault
    place.bucket.blob("out/mine.txt").upload_from_string("keep")
    job(place.out, place.input, overwrite=True)
    assert record(place.output)["counts"]["embedded"] == LINES
    assert (place.output / "mine.txt").read_text() == "keep"


def test_a_full_disk_fails_the_job_and_leaves_no_half_file(corpus, local, job, tmp_path):
    """The kernel refuses a file over its limit, as a full disk refuses what does not fit."""
    output = tmp_path / "out"
    smallest = min(p.stat().st_size for p in local.glob("embeddings/part-*"))
    with files_of_at_most(smallest - 1):
        job(output, corpus, "File too large", code=1)
    assert stray(output) == []
    assert list(output.glob("embeddings/part-*")) == []
    job(output, corpus)
    assert_complete(output, local)


def test_a_disk_that_is_full_from_the_start_fails_the_run(corpus, job, tmp_path):
    """With exit code 1, as any full disk: schedules try again after 1, and not after 2."""
    output = tmp_path / "out"
    sentence = f"error: {output}/run.json cannot be written: File too large\n"
    with files_of_at_most(1_000):
        assert job(output, corpus, code=1).endswith(sentence)
    assert stray(output) == []
    assert not (output / "run.json").exists()
    job(output, corpus)


def test_no_space_left_is_told_with_the_files_name(corpus, local, job, tmp_path, monkeypatch):
    output, straight = tmp_path / "out", os.fsync
    part = "part-0000003-00000"

    def full(descriptor):
        if f"-{part}.parquet" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(28, "No space left on device")
        straight(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    job(output, corpus, "No space left on device", f"{output}/embeddings/{part}", code=1)
    assert stray(output) == []
    monkeypatch.setattr(os, "fsync", straight)
    job(output, corpus)
    assert_complete(output, local)


@pytest.mark.parametrize("passed", [0, 1, 5])
def test_a_precondition_that_fails_is_one_sentence(proxied, place, job, passed):
    """A store, or a rule of its bucket, answers 412 to every write but some at the start."""
    writes = itertools.count()
    proxied.fault = lambda _, path: 412 if "/upload/" in path and next(writes) >= passed else None
    parts = place.out, "cannot be written", "PreconditionFailed"
    assert "a bug of this program" not in job(place.out, place.input, *parts, code=1)


CLOSED = "http://127.0.0.1:9"  # where nothing listens


@pytest.fixture
def without_google(monkeypatch, tmp_path):
    """No credentials, and no way to Google; nothing is waited for long."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("HTTPS_PROXY", CLOSED)
    monkeypatch.setattr(gcs, "FIRST_ANSWER", 0.1)
    monkeypatch.setattr(gcs, "_answered", set())  # other tests' clients stand in for Google's


def test_missing_credentials_are_named(without_google, run):
    run("gs://nobody/a.txt", code=1)
    assert "Cloud Storage cannot be reached or refuses (" in run.err
    message = "there are no credentials on this machine: run `gcloud auth application-default"
    assert message in run.err


@pytest.mark.slow
def test_a_plan_waits_once_and_not_for_long(without_google, monkeypatch, run):
    monkeypatch.setattr(gcs, "FIRST_ANSWER", 30.0)
    began = time.monotonic()
    run({"in.txt": "the bank\n"}, "gs://nobody/out", code=1, dry_run=True)
    assert "gs://nobody/out/run.json cannot be read" in run.err
    assert time.monotonic() - began < 15


def test_bigquery_out_of_reach_is_said_soon(monkeypatch, run):
    monkeypatch.setattr("bert_embed.transforms.bigquery.client.FIRST_ANSWER", 0.1)
    monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", CLOSED)
    text, table = {"in.txt": "the bank\n"}, "test-project:d.t"
    for source, flags in (
        (text, {"output_format": "bigquery", "output_table": table}),
        (text, {"skip_existing": table}),
        (table, {}),
    ):
        run(source, code=1, **flags)
        assert f"BigQuery at {CLOSED} cannot be reached (ConnectionError)" in run.err
