"""A Flex Template's launcher, which has no way out: its image brings the default model.

The test starts this file as a program in a network namespace of its own, where the fakes of Cloud
Storage and Dataflow are all that there is.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import ROOT, ran
from tests.support.servers.dataflow import PROJECT, REGION, dataflow_server
from tests.support.servers.gcs import gcs_server

pytestmark = pytest.mark.slow
IMAGE = f"us-docker.pkg.dev/p/r/bert-embed:py3{sys.version_info.minor}-1"


def launch(folder: Path, dataflow, output: str, *more: str) -> dict:
    """What a launcher does with parameters: exit code, errors, and whether there is a job."""
    job = folder / "job.json"
    job.unlink(missing_ok=True)
    words = ["--runner=DataflowRunner", f"--project={PROJECT}", f"--region={REGION}"]
    words += ["--temp_location=gs://launches/tmp", f"--sdk_container_image={IMAGE}"]
    words += [f"--output=gs://launches/{output}", f"--dataflow_endpoint={dataflow.url}"]
    words += [f"--template_location={job}", *more]
    made = ran(
        [sys.executable, "deploy/dataflow/template.py", *words],
        **dataflow.environment,
        PYTHONPATH=str(ROOT),
    )
    return {
        "code": made.returncode,
        "said": made.stdout + made.stderr,
        "steps": len(dataflow.graph(json.loads(job.read_text())).components.transforms)
        if job.exists()
        else 0,
    }


def launches(folder: Path) -> dict[str, dict]:
    """Launches of a new run, a finished run, an empty input and a day that is locked."""
    with gcs_server(folder / "gcs") as gcs, dataflow_server(folder, gcs) as dataflow:
        bucket = gcs.client.create_bucket("launches")
        bucket.blob("in/a.jsonl").upload_from_string('{"id": "a", "text": "the bank"}\n' * 9)
        bucket.blob("empty/a.jsonl").upload_from_string("")
        given = "--input=gs://launches/in/*.jsonl", "--model=minilm"
        done = {"new": launch(folder, dataflow, "new", *given)}
        local = [sys.executable, "-m", "bert_embed", "embed", *given, "--output=gs://launches/done"]
        ran(local, check=True, **gcs.environment)
        done["finished"] = launch(folder, dataflow, "done", *given)
        done["empty"] = launch(folder, dataflow, "empty-out", "--input=gs://launches/empty/*.jsonl")
        done["no input"] = launch(folder, dataflow, "no-out", "--input=gs://launches/none/*.jsonl")
        # Another command is at work there.
        done["locked"] = launch(folder, dataflow, "new", *given, "--max_seq_length=64")
    return done


@pytest.fixture(scope="module")
def done(minilm, tmp_path_factory):
    """The same in a namespace without a route, with the cache that the image has."""
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("needs root, for unshare")
    folder = tmp_path_factory.mktemp("launcher")
    place = Path(minilm.path)
    shutil.copytree(place, folder / "cache" / place.name)
    program = f"ip link set lo up && exec {sys.executable} -m {__name__} {folder}"
    made = subprocess.run(
        ["unshare", "--net", "sh", "-c", program],
        cwd=ROOT,
        env={**os.environ, "BERT_EMBED_CACHE": str(folder / "cache"), "PIP_RETRIES": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert made.returncode == 0, made.stderr
    return json.loads(made.stdout.splitlines()[-1])


def test_the_default_model_is_found_without_a_route(done):
    assert done["new"]["code"] == 0, done["new"]["said"]
    assert done["new"]["steps"] > 5
    dockerfile = (ROOT / "deploy" / "docker" / "Dockerfile").read_text("utf-8")
    cache = re.search(r"BERT_EMBED_CACHE=(\S+)", dockerfile)[1]
    assert not cache.startswith("/tmp"), "which a launcher may have mounted"
    bake = (ROOT / "deploy" / "docker" / "bake.sh").read_text("utf-8")
    assert "\npython -m bert_embed.bundle.find\n" in bake, "into that cache"


def test_a_launch_without_an_error_has_a_job(done):
    for name, made in done.items():
        assert (made["code"] == 0) == (made["steps"] > 0), (name, made["said"])
    assert "nothing to do" in done["finished"]["said"]
    assert done["no input"]["code"] == 2


if __name__ == "__main__":
    sys.stdout.write(json.dumps(launches(Path(sys.argv[1]))))
