"""Storage that fails: retried until the counts are exact, or told in one sentence by its name."""

import itertools
import json
import os

import pytest

from bert_embed.pipeline.cli import main
from tests.support.command import (
    embed,
    files,
    files_of_at_most,
    flags_of,
    ran,
    record,
    rejected,
    rows,
)
from tests.support.forks import python
from tests.support.servers.gcs import behind, some

pytestmark = pytest.mark.slow

SMALL = {"block_bytes": 2000}
LINES = 800


@pytest.fixture
def proxied(gcs, monkeypatch):
    with behind(gcs, monkeypatch) as proxy:
        yield proxy


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "in.jsonl"
    path.write_text(
        "".join(json.dumps({"id": f"d{n}", "text": f"line {n}"}) + "\n" for n in range(LINES))
        + '{"id": "bad"}\n'
    )
    return path


@pytest.fixture(scope="module")
def local(corpus, tiny_bundle, tmp_path_factory):
    """What a run writes on a disk that does not fail."""
    output = tmp_path_factory.mktemp("local") / "out"
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    return output


def a_bucket(gcs, name, corpus):
    bucket = gcs.client.create_bucket(name)
    bucket.blob("in.jsonl").upload_from_filename(str(corpus))
    return bucket, f"gs://{name}/in.jsonl", gcs.root / name / "out"


def assert_complete(output, local):
    counts = record(output)["counts"]
    assert counts["records"] == LINES + 1 == counts["embedded"] + counts["rejected"]
    assert len(rejected(output)) == counts["rejected"] == 1
    vectors = {n: d for n, d in files(output).items() if n.startswith("embeddings")}
    assert vectors == {n: d for n, d in files(local).items() if n.startswith("embeddings")}
    assert stray(output) == []


def stray(output):
    return [path.name for path in output.rglob(".*")]


def assert_one_sentence(errors, *parts):
    """A failure is reported by its last sentences, without a traceback."""
    assert "Traceback" not in errors
    [sentence] = [line for line in errors.splitlines() if line.startswith("error: ")]
    for part in parts:
        assert part in sentence


@pytest.mark.parametrize(
    "faults",
    [(429,), (500, 502, 503, 504, 408), ("cut", "lost")],
    ids=["too-many-requests", "errors", "cut-connections"],
)
def test_passing_faults_are_retried(gcs, proxied, corpus, local, tiny_bundle, faults):
    name = f"passing-{faults[0]}"
    _, url, output = a_bucket(gcs, name, corpus)
    proxied.fault = some(0.2, *faults)
    assert embed(f"gs://{name}/out", tiny_bundle, url, **SMALL) == 0
    assert proxied.failed >= 10
    assert_complete(output, local)


def test_a_slow_server_only_takes_longer(gcs, proxied, corpus, local, tiny_bundle):
    _, url, output = a_bucket(gcs, "slow", corpus)
    proxied.delay = 0.05
    assert embed("gs://slow/out", tiny_bundle, url, **SMALL) == 0
    assert_complete(output, local)


def test_a_damaged_answer_is_noticed(gcs, proxied, corpus, tiny_bundle, tmp_path):
    """A small object is read whole, with its checksum; the second answer is right."""
    flipped = []

    def flip_once(method, path):
        if "alt=media" in path and path not in flipped:
            flipped.append(path)
            return "flip"
        return None

    _, url, _ = a_bucket(gcs, "damaged", corpus)
    proxied.fault = flip_once
    assert embed(tmp_path / "out", tiny_bundle, url) == 0
    assert flipped
    assert len(rows(tmp_path / "out")["id"]) == LINES


def test_an_outage_fails_the_job_and_the_same_command_continues(
    gcs, proxied, corpus, local, tiny_bundle, capsys, monkeypatch
):
    monkeypatch.setattr("bert_embed.storage.gcs.PATIENCE", 1.0)
    _, url, output = a_bucket(gcs, "outage", corpus)

    def down_after_a_while(method, path):
        return 503 if len(list(output.glob("_state/blocks/0*"))) >= 5 else None

    proxied.fault = down_after_a_while
    assert embed("gs://outage/out", tiny_bundle, url, **SMALL) == 1
    message = capsys.readouterr().err
    assert_one_sentence(message, "gs://outage/", "Cloud Storage cannot be reached or refuses")
    assert "the same command continues" in message
    proxied.fault = lambda method, path: None
    assert embed("gs://outage/out", tiny_bundle, url, **SMALL) == 0
    assert record(output)["counts"]["parts_reused"] >= 5
    assert_complete(output, local)


@pytest.mark.parametrize("refused", ["write", "read", "list"])
def test_permission_denied_is_told_before_work_starts(
    gcs, proxied, corpus, tiny_bundle, capsys, refused
):
    from tests.support.servers.gcs import kind_of

    name = f"denied-{refused}"
    _, url, output = a_bucket(gcs, name, corpus)
    proxied.fault = lambda method, path: 403 if kind_of(method, path) == refused else None
    assert embed(f"gs://{name}/out", tiny_bundle, url) == 2
    done = {"write": "written", "read": "read", "list": "listed"}[refused]
    assert_one_sentence(
        capsys.readouterr().err, f"gs://{name}/", f"may not be {done}", "Storage Object User"
    )
    assert not output.exists()


@pytest.mark.parametrize(
    ("status", "message", "said"),
    [
        (403, "Object 'out' is subject to bucket's retention policy", "a retention policy of the"),
        (400, "Bucket is a requester pays bucket but no user project provided.", "requesters pay"),
    ],
)
def test_rules_of_a_bucket_are_told(
    gcs, proxied, corpus, tiny_bundle, capsys, status, message, said
):
    _, url, _ = a_bucket(gcs, f"ruled-{status}", corpus)
    body = json.dumps({"error": {"code": status, "message": message}}).encode()
    proxied.fault = lambda method, path: (status, body) if method == "POST" else None
    assert embed(f"gs://ruled-{status}/out", tiny_bundle, url) == 2
    assert_one_sentence(capsys.readouterr().err, f"gs://ruled-{status}/", said)


def test_a_dry_run_shows_the_plan_without_permission(gcs, proxied, corpus, tiny_bundle, capsys):
    _, url, output = a_bucket(gcs, "unseen", corpus)
    proxied.fault = lambda method, path: 403
    assert embed("gs://unseen/out", tiny_bundle, url, dry_run=True) == 0
    plan = capsys.readouterr().out
    assert "pooling mean, 32 numbers a document" in plan
    assert f"from {url}\n" in plan
    assert "note: input and output were not looked at" in plan
    assert "Storage Object User" in plan
    assert not output.exists()


def test_permission_lost_on_the_way_fails_the_job_by_name(
    gcs, proxied, corpus, local, tiny_bundle, capsys
):
    _, url, output = a_bucket(gcs, "lost-right", corpus)
    proxied.fault = lambda method, path: (
        403 if method == "POST" and len(list(output.glob("_state/blocks/0*"))) >= 3 else None
    )
    assert embed("gs://lost-right/out", tiny_bundle, url, **SMALL) == 1
    assert_one_sentence(capsys.readouterr().err, "gs://lost-right/out/", "may not be written")
    proxied.fault = lambda method, path: None
    assert embed("gs://lost-right/out", tiny_bundle, url, **SMALL) == 0
    assert_complete(output, local)


def test_missing_buckets_are_named(gcs, corpus, tiny_bundle, capsys):
    _, url, _ = a_bucket(gcs, "present", corpus)
    assert embed("gs://present/out", tiny_bundle, "gs://absent/in.jsonl") == 2
    assert_one_sentence(capsys.readouterr().err, "there is no bucket absent")
    assert embed("gs://absent/out", tiny_bundle, url) == 2
    assert_one_sentence(capsys.readouterr().err, "--output gs://absent/out", "no bucket absent")


def test_a_server_out_of_reach_is_told_soon(corpus, tiny_bundle, capsys, monkeypatch):
    monkeypatch.setattr("bert_embed.storage.gcs.FIRST_ANSWER", 1.0)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:9")  # nobody listens there
    assert embed("gs://any/out", tiny_bundle, "gs://any/in.txt") == 1, "the command is not wrong"
    assert_one_sentence(capsys.readouterr().err, "gs://any/in.txt", "cannot be reached")


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz"])
def test_an_object_replaced_while_it_is_read_fails_by_name(
    gcs, proxied, corpus, tiny_bundle, capsys, suffix
):
    """Between the plan and the last block, another object takes the name."""
    import gzip

    name = f"replaced-{suffix.replace('.', '-')}"
    bucket, _, output = a_bucket(gcs, name, corpus)
    text = corpus.read_bytes()
    bucket.blob(f"new.{suffix}").upload_from_string(
        gzip.compress(text) if suffix.endswith("gz") else text
    )
    seen = []

    def replace_late(method, path):
        if "alt=media" in path and "new." in path:
            seen.append(path)
            if len(seen) == 3:  # the first two are the command line's looks
                bucket.blob(f"new.{suffix}").upload_from_string(text[::-1])
        return None

    proxied.fault = replace_late
    assert embed(f"gs://{name}/out", tiny_bundle, f"gs://{name}/new.{suffix}", **SMALL) == 1
    message = capsys.readouterr().err
    assert_one_sentence(message, f"gs://{name}/new.{suffix} was replaced or removed")
    assert "run again with --overwrite, or into another --output" in message
    assert "the same command continues" not in message
    assert record(output)["status"] == "failed"
    proxied.fault = lambda method, path: None
    bucket.blob(f"new.{suffix}").upload_from_filename(str(corpus))
    good = f"gs://{name}/in.jsonl"
    assert main(["embed", *flags_of(f"gs://{name}/out", tiny_bundle, good, overwrite=True)]) == 0
    assert record(output)["counts"]["embedded"] == LINES


def test_a_full_disk_fails_the_job_and_leaves_no_half_file(corpus, local, tiny_bundle, tmp_path):
    """The kernel refuses a file over its limit, as a full disk refuses what does not fit."""
    output = tmp_path / "out"
    smallest = min(p.stat().st_size for p in local.glob("embeddings/part-*"))
    script = (
        "import resource, signal, sys; from bert_embed.pipeline.cli import main;"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({smallest - 1},) * 2);"
        "sys.exit(main(sys.argv[1:]))"
    )
    command = [*python(), "-c", script, "embed"]
    done = ran([*command, *flags_of(output, tiny_bundle, corpus, **SMALL)])
    assert done.returncode == 1, done.stderr
    assert_one_sentence(done.stderr, "File too large")
    assert stray(output) == []
    assert list(output.glob("embeddings/part-*")) == []
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    assert_complete(output, local)


def test_a_disk_that_is_full_from_the_start_fails_the_run(corpus, tiny_bundle, tmp_path, capsys):
    """With exit code 1, as any full disk: schedules try again after 1, and not after 2."""
    output = tmp_path / "out"
    with files_of_at_most(1_000):
        assert embed(output, tiny_bundle, corpus, **SMALL) == 1
    sentence = f"error: {output}/run.json cannot be written: File too large\n"
    assert capsys.readouterr().err == sentence
    assert stray(output) == []
    assert not (output / "run.json").exists()
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0


def test_no_space_left_is_told_with_the_files_name(
    corpus, local, tiny_bundle, tmp_path, capsys, monkeypatch
):
    output = tmp_path / "out"
    straight = os.fsync

    def full(descriptor):
        if "-part-0000003-00000.parquet" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(28, "No space left on device")
        straight(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    assert embed(output, tiny_bundle, corpus, **SMALL) == 1
    assert_one_sentence(
        capsys.readouterr().err,
        "No space left on device",
        f"{output}/embeddings/part-0000003-00000",
    )
    assert stray(output) == []
    monkeypatch.setattr(os, "fsync", straight)
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    assert_complete(output, local)


@pytest.mark.parametrize("passed", [0, 1, 5])
def test_a_precondition_that_fails_is_one_sentence(
    gcs, proxied, corpus, tiny_bundle, capsys, passed
):
    """A store, or a rule of its bucket, answers 412 to every write but some at the start."""
    name, writes = f"precondition-{passed}", itertools.count()
    _, url, _ = a_bucket(gcs, name, corpus)
    proxied.fault = lambda _, path: 412 if "/upload/" in path and next(writes) >= passed else None
    assert embed(f"gs://{name}/out", tiny_bundle, url, **SMALL) == 1
    told = capsys.readouterr().err
    assert "a bug of this program" not in told
    assert_one_sentence(told, f"gs://{name}/out", "cannot be written", "PreconditionFailed")
