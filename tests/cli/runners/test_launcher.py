"""A Flex Template's launcher, which has no way out: its image brings the default model.

The test starts this file as a program in a network namespace of its own, where the fakes of Cloud
Storage and Dataflow are all that there is.
"""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.command import ROOT, ran
from tests.support.servers.dataflow import dataflow_server
from tests.support.servers.gcs import gcs_server

pytestmark = pytest.mark.slow
IMAGE = f"us-docker.pkg.dev/p/r/bert-embed:py3{sys.version_info.minor}-1"


def launched(folder: Path, dataflow) -> dict:
    """What a launcher does: exit code, what it said, and how many steps its job has."""
    job = folder / "job.json"
    words = [*dataflow.flags("launches"), f"--sdk_container_image={IMAGE}"]
    words += ["--input=gs://launches/in/*.jsonl", "--output=gs://launches/new", "--model=minilm"]
    command = [sys.executable, "deploy/dataflow/template.py", *words, f"--template_location={job}"]
    made = ran(command, **dataflow.environment, PYTHONPATH=str(ROOT))
    graph = dataflow.graph(json.loads(job.read_text())) if job.exists() else None
    steps = len(graph.components.transforms) if graph else 0
    return {"code": made.returncode, "said": made.stdout + made.stderr, "steps": steps}


def test_the_default_model_is_found_without_a_route(minilm, tmp_path):
    """In a namespace without a route, with the cache that the image has."""
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("needs root, for unshare")
    place = Path(minilm.path)
    shutil.copytree(place, tmp_path / "cache" / place.name)
    program = f"ip link set lo up && exec {sys.executable} -m {__name__} {tmp_path}"
    variables = {"BERT_EMBED_CACHE": str(tmp_path / "cache"), "PIP_RETRIES": "0"}
    made = ran(["unshare", "--net", "sh", "-c", program], **variables)
    assert made.returncode == 0, made.stderr
    done = json.loads(made.stdout.splitlines()[-1])
    assert done["code"] == 0, done["said"]
    assert done["steps"] > 5
    dockerfile = (ROOT / "deploy" / "docker" / "Dockerfile").read_text("utf-8")
    cache = re.search(r"BERT_EMBED_CACHE=(\S+)", dockerfile)[1]
    assert not cache.startswith("/tmp"), "which a launcher may have mounted"
    bake = (ROOT / "deploy" / "docker" / "bake.sh").read_text("utf-8")
    assert "\npython -m bert_embed.bundle.find\n" in bake, "into that cache"


if __name__ == "__main__":
    place = Path(sys.argv[1])
    with gcs_server(place / "gcs") as gcs, dataflow_server(place, gcs) as server:
        gcs.put("launches", {"in/a.jsonl": '{"id": "a", "text": "the bank"}\n' * 9})
        sys.stdout.write(json.dumps(launched(place, server)))
