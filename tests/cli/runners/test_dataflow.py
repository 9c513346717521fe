"""Submission to Dataflow: what the service and its workers are given, and what the command says."""

import signal
import tarfile
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from apache_beam.internal import pickler
from apache_beam.portability.api import beam_runner_api_pb2

from tests.support.command import embed, files, record, start
from tests.support.servers.dataflow import PROJECT, REGION, dataflow_server, run_graph

pytestmark = pytest.mark.slow

IMAGE = "--sdk_container_image=us-docker.pkg.dev/p/r/bert-embed:1"
DETACHED = "--no_wait_until_finish"
PATIENCE = 300
NETWORK, ACCOUNT = f"regions/{REGION}/subnetworks/own", "workers@p.iam.gserviceaccount.com"
OF_THE_SERVICE = ("--no_use_public_ips", f"--subnetwork={NETWORK}", "--max_num_workers=9")
OF_THE_SERVICE += (f"--service_account_email={ACCOUNT}",)


@pytest.fixture(scope="module")
def dataflow(gcs_session, tmp_path_factory):
    gcs_session.put("dataflow", {"in/a.txt": "the bank of the river\n\nred stars\n" * 40})
    with dataflow_server(tmp_path_factory.mktemp("dataflow"), gcs_session) as server:
        yield server


def words_of(dataflow, model, output, *flags):
    words = ["embed", f"--model={model}", "--input=gs://dataflow/in", "--block_bytes=400"]
    return [*words, f"--output=gs://dataflow/{output}", *dataflow.flags("dataflow"), *flags]


@contextmanager
def started(dataflow, *arguments, **how):
    """The command in a process of its own, which does not outlive the test."""
    process = start(*words_of(dataflow, *arguments), **dataflow.environment, **how)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def submit(dataflow, command):
    """Runs the command to its end in this process; returns what it says."""

    def submitted(*arguments, code=0):
        with dataflow.at_hand():
            return command(*words_of(dataflow, *arguments), code=code)

    return submitted


def hinted(graph):
    """Whether a step's environment has resource hints, which stand for other workers."""
    return any(made.resource_hints for made in graph.components.environments.values())


def handler(graph):
    """What loads the model on workers."""
    [step] = [
        step
        for step in graph.components.transforms.values()
        if step.unique_name.endswith("BeamML_RunInference")
    ]
    payload = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
    return vars(pickler.loads(payload.do_fn.payload)[0])["_model_handler"]


def test_submission_loads_no_tensorflow_and_describes_the_job_whole(dataflow, tiny_bundle):
    asked = (dataflow, tiny_bundle, "cpu", IMAGE, DETACHED, *OF_THE_SERVICE)
    with started(*asked, fresh=True, PYTHONPROFILEIMPORTTIME="1") as process:
        out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    imports = [line for line in errors.splitlines() if line.startswith("import time:")]
    modules, job = {line.rpartition("|")[2].strip() for line in imports}, dataflow.job
    assert "apache_beam" in modules
    assert not {"tensorflow", "tensorflow_text"} & modules
    assert f"Dataflow job {job['id']} ({job['name']}) continues" in out
    assert f"dataflow/jobs/{REGION}/{job['id']}?project={PROJECT}" in out
    assert "gs://dataflow/cpu/run.json says when it is done" in out
    run = record(dataflow.gcs.root / "dataflow" / "cpu")
    assert run["status"] == "running"
    [pool] = job["environment"]["workerPools"]
    assert job["name"].startswith(f"bert-embed-{run['run'][:12]}-")
    assert job["labels"] == {
        "application": "bert-embed",
        "version": "0-1-0",
        "run": run["run"],
        "model": run["model"]["fingerprint"][:32],
    }
    assert (pool["machineType"], pool["diskSizeGb"]) == ("n2-standard-8", 50)
    assert (pool["subnetwork"], pool["ipConfiguration"]) == (NETWORK, 2), "private"
    assert pool["autoscalingSettings"]["maxNumWorkers"] == 9
    assert job["environment"]["serviceAccountEmail"] == ACCOUNT
    [image] = pool["sdkHarnessContainerImages"]
    assert image["containerImage"] == "us-docker.pkg.dev/p/r/bert-embed:1"
    # Which brings the code: nothing of it is staged.
    staged = {each["name"] for each in pool["packages"]}
    assert staged == {"submission_environment_dependencies.txt"}
    assert "no_use_multiple_sdk_containers" not in job["environment"]["experiments"]
    assert "serviceOptions" not in job["environment"]
    graph = dataflow.graph(job)
    assert not hinted(graph)
    assert vars(handler(graph))["threads"] == 1, "there is a process a core"


@pytest.mark.parametrize(
    ("name", "machine", "option"),
    [
        ("v5e", "ct5lp-hightpu-1t", "type:tpu-v5-lite-podslice;topology:1x1"),
        ("v6e-8", "ct6e-standard-8t", "type:tpu-v6e-slice;topology:2x4"),
        ("l4-4", "g2-standard-48", "type:nvidia-l4;count:4;install-nvidia-driver:5xx"),
    ],
)
def test_an_accelerator_is_given_to_every_worker(
    dataflow, tiny_bundle, submit, name, machine, option
):
    flags = [IMAGE, DETACHED, f"--accelerator={name}", "--labels=run=mine", "--labels=team=a"]
    submit(tiny_bundle, name, *flags)
    job = dataflow.job
    [pool] = job["environment"]["workerPools"]
    assert (pool["machineType"], pool["diskSizeGb"]) == (machine, 100)
    assert pool["numThreadsPerWorker"] == 12
    assert job["environment"]["serviceOptions"] == [f"worker_accelerator={option}"]
    assert "no_use_multiple_sdk_containers" in job["environment"]["experiments"]
    assert "use_multiple_sdk_containers" not in job["environment"]["experiments"]
    graph = dataflow.graph(job)
    assert not hinted(graph)
    # A device makes batches of the few shapes that it compiles:
    # tests/unit/backends/test_xla.py.
    device = "tpu" if "topology" in option else "gpu"
    assert vars(handler(graph))["device"] == device
    assert vars(handler(graph))["threads"] is None
    [model] = dataflow.gcs.root.glob("dataflow/tmp/bundles/*")
    assert vars(handler(graph))["programs"] == f"gs://dataflow/tmp/bundles/{model.name}/programs"
    told = vars(handler(graph))["environment"]
    assert told.get("TPU_ACCELERATOR_TYPE") == {"v5e": "v5litepod-1", "v6e-8": "v6e-8"}.get(name)
    assert told.get("TPU_CHIPS_PER_HOST_BOUNDS") == {"v5e": "1,1,1", "v6e-8": "2,4,1"}.get(name)
    assert record(dataflow.gcs.root / "dataflow" / name)["options"].get("device", "auto") == device
    assert (job["labels"]["run"], job["labels"]["team"]) == ("mine", "a")


FAILED = "the job failed:"


def wait_for_job(dataflow, process, number):
    """The job that a command submits, once the service has it."""
    limit = time.monotonic() + PATIENCE
    while len(dataflow.jobs) < number:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.05)
    return dataflow.job


def test_a_job_outlives_its_command_and_is_not_started_twice(
    dataflow, gcs, tiny_bundle, tmp_path, submit
):
    asked = (tiny_bundle, "outlives", IMAGE)
    with started(dataflow, *asked) as process:
        job = wait_for_job(dataflow, process, len(dataflow.jobs) + 1)
        for line in process.stderr:
            if "was submitted" in line:
                break
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, errors
    assert f"Dataflow job {job['id']} ({job['name']}) continues" in out
    assert f"gcloud dataflow jobs cancel {job['id']} --region {REGION}" in out
    output = gcs.root / "dataflow" / "outlives"
    assert record(output)["status"] == "running"

    said = submit(*asked, code=1)
    assert said.out == ""
    assert f"error: a job named {job['name']} is already running" in said.err
    assert record(output)["status"] == "running", "the job that runs has not failed"

    run_graph(dataflow, job)
    assert embed(tmp_path / "out", tiny_bundle, "gs://dataflow/in", block_bytes=400) == 0
    assert files(output) == files(tmp_path / "out")
    assert record(output)["counts"]["embedded"] == 80
    assert "nothing to do: gs://dataflow/outlives holds this run" in submit(*asked).out


def test_a_command_that_waits_sums_up_its_job(dataflow, gcs, tiny_bundle, tmp_path, monkeypatch):
    """Without an image of ours: every worker installs the code that is staged."""
    monkeypatch.setenv("BERT_EMBED_CACHE", str(tmp_path))
    with started(dataflow, tiny_bundle, "waits", "--setup_file=./setup.py") as process:
        job = wait_for_job(dataflow, process, len(dataflow.jobs) + 1)
        run_graph(dataflow, job)
        out, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert "80 embedded" in out
    [pool] = job["environment"]["workerPools"]
    [package] = [each for each in pool["packages"] if each["name"] == "workflow.tar.gz"]
    place = package["location"].removeprefix("storage.googleapis.com/")
    with tarfile.open(gcs.root / place) as archive:
        names = {name.partition("/src/bert_embed/")[2] for name in archive.getnames()}
    assert {"pipeline/run/graph.py", "transforms/infer.py", "encoder.py"} <= names


@pytest.mark.parametrize(
    ("fault", "value", "said", "status"),
    [
        (
            "state",
            "JOB_STATE_FAILED",
            f"{FAILED} Dataflow job {{id}} ({{name}}) ended as",
            "failed",
        ),
        ("refusal", "no network", f"{FAILED} Dataflow does not accept the job: 400", "failed"),
        ("silence", "account disabled", "it is not known whether Dataflow job {id}", "running"),
    ],
)
def test_what_the_service_says_of_a_job_is_told(
    dataflow, tiny_bundle, submit, monkeypatch, fault, value, said, status
):
    monkeypatch.setattr(dataflow, fault, value)
    # It waits 50 s for a reason.
    clock = SimpleNamespace(sleep=lambda seconds: None, time=time.time)
    monkeypatch.setattr("apache_beam.runners.dataflow.dataflow_runner.time", clock)
    errors = submit(tiny_bundle, fault, IMAGE, code=1).err
    assert said.format(**dataflow.job) in errors
    assert (value in errors) == (fault != "state")
    assert "Traceback" not in errors
    assert record(dataflow.gcs.root / "dataflow" / fault)["status"] == status
