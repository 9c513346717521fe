"""The model on workers of other machines: copied once, fetched once a machine, never damaged."""

import dataclasses
import os
import shutil
import subprocess
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from bert_embed.backends.choose import load_engine, weight_files
from bert_embed.bundle.bundle import FORMAT, is_weights, read_bundle
from bert_embed.bundle.cache import publish_bundle, worker_bundle
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options.command_line import parse_embed
from bert_embed.pipeline.runners.dataflow import for_dataflow
from bert_embed.pipeline.runners.launch import bundle_for_workers
from tests.support.command import ROOT, embed, rows
from tests.support.forks import python

pytestmark = pytest.mark.slow


@pytest.fixture
def bundle(tiny_bundle):
    return read_bundle(tiny_bundle)


def temp_location(gcs, name):
    gcs.client.create_bucket(name)
    return f"gs://{name}/tmp"


def reads(proxy):
    """How often each file of a bundle was asked for."""
    names = (path.partition("?")[0].rpartition("%2F")[2] for _, path in proxy.paths)
    kinds = (kind for _, kind in proxy.asked)
    return Counter(name for name, kind in zip(names, kinds, strict=True) if kind == "read")


def files_below(folder):
    return {path.name for path in Path(folder).rglob("*") if path.is_file()}


def test_it_is_copied_once_and_is_the_same_model_there(gcs, proxied, cache, bundle):
    """Once more after a rule of the bucket removed a file."""
    place = publish_bundle(bundle, temp_location(gcs, "once-tmp"))
    assert place == f"gs://once-tmp/tmp/bundles/{bundle.fingerprint}-{FORMAT}"
    proxied.forget()
    assert publish_bundle(bundle, "gs://once-tmp/tmp") == place
    assert proxied.counts()["write"] == 0
    [removed] = [name for name in bundle.files if name.endswith("float32.tflite")]
    gcs.client.bucket("once-tmp").blob(f"{place.removeprefix('gs://once-tmp/')}/{removed}").delete()
    assert publish_bundle(bundle, "gs://once-tmp/tmp") == place
    found = worker_bundle(place, bundle.fingerprint)
    assert found.path == str(cache / "bundles" / bundle.fingerprint)
    assert dataclasses.replace(found, path=bundle.path) == bundle
    found.verify_files()


def test_a_copy_that_a_rule_may_soon_remove_is_made_again(gcs, bundle, monkeypatch):
    publish_bundle(bundle, temp_location(gcs, "old-tmp"))
    bucket = gcs.client.bucket("old-tmp")
    first = {blob.name: blob.generation for blob in bucket.list_blobs()}
    later = time.time() + 8 * 24 * 3600
    monkeypatch.setattr("bert_embed.bundle.cache.time.time", lambda: later)
    publish_bundle(bundle, "gs://old-tmp/tmp")
    again = {blob.name: blob.generation for blob in bucket.list_blobs()}
    assert first.keys() == again.keys()
    assert not [name for name in first if first[name] == again[name]]


def test_processes_of_a_machine_fetch_it_once(gcs, proxied, cache, bundle, tiny_bundle):
    place = publish_bundle(bundle, temp_location(gcs, "machine-tmp"))
    proxied.forget()
    script = (
        "import sys; from bert_embed.bundle.cache import worker_bundle;"
        "print(worker_bundle(*sys.argv[1:]).path)"
    )
    command = [*python(), "-c", script, place, bundle.fingerprint]
    started = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(3)]
    paths = {process.communicate(timeout=120)[0] for process in started}
    assert len(paths) == 1
    assert set(reads(proxied).values()) == {1}
    assert files_below(cache / "bundles" / bundle.fingerprint) == files_below(tiny_bundle)


def test_what_arrives_damaged_is_fetched_once_more(gcs, proxied, cache, bundle, caplog):
    place = publish_bundle(bundle, temp_location(gcs, "damaged-tmp"))
    seen = []

    def flip_first(method, path):
        if "alt=media" in path and "generation=" in path and "vocab.txt" in path:
            seen.append(path)
            return "flip" if len(seen) <= 3 else None
        return None

    # The copy itself is damaged: its sha256 is not the one that bundle.json tells.
    for name in ("vocab.txt", "float32.tflite"):
        blob = gcs.client.bucket("damaged-tmp").blob(
            f"tmp/bundles/{bundle.fingerprint}-{FORMAT}/{name}"
        )
        whole = blob.download_as_bytes()
        blob.upload_from_string(whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(ValueError, match=f"the model arrived damaged: .*{name} is damaged"):
            worker_bundle(place, bundle.fingerprint)
        assert "arrived damaged, it is fetched again" in caplog.text
        assert files_below(cache) == {f".{bundle.fingerprint}.lock"}
        caplog.clear()
        blob.upload_from_string(whole)

    # Damaged on the way only: noticed, and right at another try.
    proxied.fault = flip_first
    worker_bundle(place, bundle.fingerprint).verify_files()
    assert seen


def test_another_model_is_refused(gcs, cache, bundle, tiny_bundle):
    with pytest.raises(ValueError, match="holds another model than when the job started"):
        worker_bundle(tiny_bundle, "0" * 32)
    gone = f"{temp_location(gcs, 'gone-tmp')}/bundles/{bundle.fingerprint}-{FORMAT}"
    with pytest.raises(ValueError, match="the model's copy for workers was removed"):
        worker_bundle(gone, bundle.fingerprint)
    with pytest.raises(ValueError, match="give temp_location a folder in Cloud Storage"):
        worker_bundle("/nowhere/bundle", bundle.fingerprint)


def test_where_the_workers_of_a_runner_find_it(gcs, cache, bundle, tiny_bundle):
    temporary = temp_location(gcs, "runner-tmp")
    url = gcs.put_folder(Path(tiny_bundle), "runner-tmp", "models/mine")

    def place(model, *flags):
        options = parse_embed(["--input=a.txt", "--output=out", f"--model={model}", *flags])
        if options.job.is_dataflow:
            for_dataflow(options.job, (), temporary)
        return bundle_for_workers(bundle, options.model, options.job).path

    copy = f"{temporary}/bundles/{bundle.fingerprint}-{FORMAT}"
    flink = "--runner=FlinkRunner"
    assert place(tiny_bundle) == tiny_bundle
    assert place(tiny_bundle, "--runner=PrismRunner", f"--temp_location={temporary}") == tiny_bundle
    assert place(tiny_bundle, flink) == tiny_bundle
    assert place(url, flink) == url
    assert place(url, flink, f"--temp_location={temporary}") == copy
    worker_bundle(url, bundle.fingerprint)
    with pytest.raises(UsageError, match="--temp_location is missing: --runner DataflowRunner"):
        place(tiny_bundle, "--runner=DataflowRunner")


def test_a_job_on_workers_elsewhere_computes_with_the_copy(
    gcs, cache, tmp_path, bundle, tiny_bundle, monkeypatch
):
    """Workers are processes of Beam's portable runner, and the bundle's folder is gone for them."""
    (tmp_path / "in.txt").write_text("one line\nand another\n")
    local = tmp_path / "only-here"
    shutil.copytree(tiny_bundle, local)

    def publish_and_leave(bundle, location):
        place = publish_bundle(bundle, location)
        os.rename(local, tmp_path / "away")
        return place

    monkeypatch.setattr("bert_embed.pipeline.runners.launch.publish_bundle", publish_and_leave)
    flags = {"runner": "PortableRunner", "job_endpoint": "embed", "environment_type": "LOOPBACK"}
    flags |= {"temp_location": temp_location(gcs, "job-tmp")}
    assert embed(tmp_path / "out", str(local), tmp_path / "in.txt", **flags) == 0
    assert len(rows(tmp_path / "out")["id"]) == 2
    fetched = {path.parent.name for path in (cache / "bundles").glob("*/bundle.json")}
    names = ("tokenizer", "float32.tflite")
    assert fetched == {f"{bundle.fingerprint}-{name}" for name in names}


@pytest.mark.parametrize(
    ("precision", "weights"), [("float32", {"float32.tflite"}), ("int8", {"int8.tflite"})]
)
def test_a_processor_fetches_the_weights_of_its_engine_alone(
    gcs, proxied, cache, bundle, tiny_bundle, precision, weights
):
    place = publish_bundle(bundle, temp_location(gcs, f"{precision}-tmp"))
    proxied.forget()
    needed = partial(weight_files, precision=precision, device="cpu")
    found = worker_bundle(place, bundle.fingerprint, needed)
    every = {Path(name).name for name in filter(is_weights, bundle.files)}
    small = files_below(tiny_bundle) - every
    assert reads(proxied).keys() - small == weights
    assert files_below(found.path) == small | weights
    load_engine(found, (2, 3), precision, "cpu")
    with pytest.raises(ValueError, match="is missing"):
        read_bundle(found.path)
