"""A graph that each Python submits to Dataflow, run by the packages of an image of each Python."""

import json

import pytest

from tests.integration.install.environments import PYTHONS, environment, find_python
from tests.support.servers.dataflow import PROJECT, REGION, dataflow_server
from tests.support.servers.gcs import gcs_server

pytestmark = pytest.mark.slow
_RUN = """
import sys
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_runner_api_pb2
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
graph = beam_runner_api_pb2.Pipeline.FromString(open(sys.argv[1], "rb").read())
for each in graph.components.environments.values():
    each.urn, each.payload = "beam:env:embedded_python:v1", b""
FnApiRunner().run_via_runner_api(graph, PipelineOptions([])).wait_until_finish()
"""
_MINORS = [version.split(".")[1] for version in PYTHONS[:3]]  # of which there are images


@pytest.fixture(scope="module")
def pythons(wheel):
    """Environments with what images have for Cloud Storage and Dataflow, by the minor version."""
    found = {minor: find_python(f"3.{minor}") for minor in _MINORS}
    return {
        minor: environment(f"graph-{minor}", wheel, ["gcp"], program)
        for minor, program in found.items()
        if program
    }


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cloud")
    with gcs_server(folder / "gcs") as gcs, dataflow_server(folder, gcs) as server:
        bucket = gcs.client.create_bucket("graphs")
        bucket.blob("in.jsonl").upload_from_string('{"id": "a", "text": "the bank"}\n' * 9)
        yield server


def submit(python, cloud, model, folder, image, output):
    words = ["-m", "bert_embed", "embed", f"--model={model}", "--input=gs://graphs/in.jsonl"]
    words += [f"--output=gs://graphs/{output}", "--temp_location=gs://graphs/tmp"]
    words += ["--runner=DataflowRunner", f"--project={PROJECT}", f"--region={REGION}"]
    words += [f"--dataflow_endpoint={cloud.url}", "--no_wait_until_finish"]
    image = f"--sdk_container_image=us-docker.pkg.dev/p/r/bert-embed-cpu:{image}"
    return python.run("python", *words, image, cwd=folder, **cloud.environment)


@pytest.mark.parametrize("minor", _MINORS)
def test_a_graph_runs_in_images_of_its_python_alone(pythons, cloud, tiny_bundle, tmp_path, minor):
    if minor not in pythons:
        pytest.skip(f"there is no Python 3.{minor} here")
    python = pythons[minor]
    made = submit(python, cloud, tiny_bundle, tmp_path, f"py3{minor}-1", minor)
    assert made.returncode == 0, made.stderr
    graph = tmp_path / "graph"
    graph.write_bytes(cloud.staged_graph(cloud.job))
    for other, image in pythons.items():
        ran = image.run("python", "-c", _RUN, graph, cwd=tmp_path, **cloud.environment)
        assert (ran.returncode == 0) == (other == minor), ran.stderr
        if other == minor:
            record = json.loads((cloud.gcs.root / "graphs" / minor / "run.json").read_text())
            assert (record["status"], record["counts"]["embedded"]) == ("done", 9)
            continue
        assert "environment are not compatible" in ran.stderr
        jobs = len(cloud.jobs)
        made = submit(python, cloud, tiny_bundle, tmp_path, f"py3{other}-1", f"{minor}-{other}")
        assert (made.returncode, len(cloud.jobs)) == (2, jobs)
        assert f"has Python 3.{other} and this command runs with 3.{minor}" in made.stderr
