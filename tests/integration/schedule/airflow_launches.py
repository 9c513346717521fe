"""The DAGs as a real Airflow 3 and 2 read and render them: run by `make test-airflow`.

Google and Kubernetes do not answer here: what they would be sent is held against what they take.
"""

import ast
import json
import re
import subprocess
from types import SimpleNamespace

import pytest

from bert_embed.pipeline.options.command_line import parse_embed
from tests.support.command import ROOT
from tests.support.daily import DAGS, DATAFLOW, DAYS, fields_of

_DATAFLOW = {
    "project": "my-project",
    "region": "us-central1",
    "temp_location": "gs://bucket/tmp",
    "image": "us-docker.pkg.dev/my-project/images/bert-embed:1",
}
_TEMPLATE = {
    "project": "my-project",
    "region": "us-central1",
    "template": "gs://my-bucket/templates/bert-embed-cpu-1.json",
    "parameters": {
        "input": "gs://my-bucket/texts/{day}/*.jsonl",
        "output": "gs://my-bucket/vectors/{day}",
        "sdk_container_image": "us-docker.pkg.dev/my-project/images/bert-embed-cpu-template:1",
        "max_rejected": "1%",
    },
    "environment": {
        "tempLocation": "gs://my-bucket/tmp",
        "serviceAccountEmail": "bert-embed-worker@my-project.iam.gserviceaccount.com",
        "maxWorkers": 20,
    },
}
_CLUSTER = """
apiVersion: v1
kind: Config
clusters: [{name: none, cluster: {server: "http://127.0.0.1:9"}}]
contexts: [{name: none, context: {cluster: none, user: none}}]
current-context: none
users: [{name: none, user: {}}]
"""
# Last the description of Dataflow's interface that Google's client for Python brings.
_READ = f"""
import importlib.util, json
from pathlib import Path
import googleapiclient
from airflow.models.dagbag import DagBag
from kubernetes.client import ApiClient
bag = DagBag({str(DAGS)!r})
pod = bag.dags["bert_embed_pod"].get_task("embed")
launch = bag.dags["bert_embed_template"].get_task("embed")
documents = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents"
print("read", json.dumps({{
    "dags": sorted(bag.dags),
    "errors": bag.import_errors,
    "package": importlib.util.find_spec("bert_embed"),
    "pod": ApiClient().sanitize_for_serialization(pod.build_pod_request_obj()),
    "launch": [launch.deferrable, launch.append_job_name, launch.depends_on_past, launch.retries],
    "schemas": json.loads((documents / "dataflow.v1b3.json").read_text("utf-8"))["schemas"],
}}))
"""
NAMES = ["bert_embed_daily", "bert_embed_dataflow", "bert_embed_pod", "bert_embed_template"]


@pytest.fixture(scope="module")
def seen(new_airflow, tmp_path_factory):
    """What Airflow makes of the DAGs, for a midnight in Berlin, still the day before in UTC."""
    folder = tmp_path_factory.mktemp("read")
    airflow = new_airflow.copied(folder / "airflow")
    (folder / "cluster").write_text(_CLUSTER)
    env = {
        "KUBECONFIG": f"{folder}/cluster",
        "PYTHONPATH": str(DAGS),  # in an installation the folder of DAGs is on the path
        "BERT_EMBED_TIME_ZONE": "Europe/Berlin",
        "AIRFLOW_VAR_BERT_EMBED_SETTINGS": "/s.sh",
        "AIRFLOW_VAR_BERT_EMBED_DATAFLOW": json.dumps(_DATAFLOW),
        "AIRFLOW_VAR_BERT_EMBED_TEMPLATE": json.dumps(_TEMPLATE),
    }
    code, said = airflow.python(_READ, **env)
    found = re.findall(r"^read (.*)", said, re.MULTILINE)
    assert (code, len(found)) == (0, 1), said
    date = f"{DAYS[1]}T23:00:00+00:00"
    code, said = airflow.run(
        *(("tasks", "render", name, "embed", date) for name in NAMES[1:]), **env
    )
    assert code == 0, said
    fields = dict(zip(NAMES[1:], fields_of(said), strict=True))
    return SimpleNamespace(**json.loads(found[0]), fields=fields)


def test_the_dags_are_read_where_the_package_is_not_installed(seen):
    assert (seen.dags, seen.errors, seen.package) == (NAMES, {}, None)


def test_the_first_day_must_be_given(new_airflow):
    """A default would start a job for each day since then."""
    _, said = new_airflow.python(_READ, PYTHONPATH=str(DAGS), BERT_EMBED_FIRST_DAY="")
    assert "BERT_EMBED_FIRST_DAY is not set: give the first day to embed" in said


def test_a_day_is_that_of_the_time_zone_and_dataflow_gets_its_flags(seen):
    command = ast.literal_eval(seen.fields["bert_embed_dataflow"]["command"])
    script = str(ROOT / "deploy" / "cron" / "embed_daily.sh")
    assert command[:5] == [script, "--stdout", "/s.sh", DAYS[2], "--"]
    options = parse_embed(["--input=gs://b/i", "--output=gs://b/o", *command[5:]])
    assert options.runner == "DataflowRunner"
    assert "--temp_location=gs://bucket/tmp" in options.beam_args
    assert "--job_name=bert-embed-{day}" in options.beam_args


def test_a_day_launches_the_template_with_parameters_that_it_has(seen):
    fields = seen.fields["bert_embed_template"]
    assert (fields["project_id"], fields["location"]) == ("my-project", "us-central1")
    launch = ast.literal_eval(fields["body"])["launchParameter"]
    assert launch["jobName"] == f"bert-embed-{DAYS[2]}"
    assert re.fullmatch("[a-z]([-a-z0-9]*[a-z0-9])?", launch["jobName"])
    assert launch["parameters"]["input"] == f"gs://my-bucket/texts/{DAYS[2]}/*.jsonl"
    assert launch["parameters"]["output"] == f"gs://my-bucket/vectors/{DAYS[2]}"
    metadata = json.loads((DATAFLOW / "metadata.json").read_text("utf-8"))["parameters"]
    known = {each["name"]: each for each in metadata}
    for name, value in launch["parameters"].items():
        assert all(re.search(pattern, value) for pattern in known[name].get("regexes", []))
    taken = seen.schemas["LaunchFlexTemplateParameter"]["properties"]
    assert launch.keys() <= taken.keys()
    environment = seen.schemas[taken["environment"]["$ref"]]["properties"]
    assert launch["environment"].keys() <= environment.keys()
    assert launch["environment"]["maxWorkers"] == 20


def test_a_template_is_waited_for_without_a_worker_and_under_its_own_name(seen):
    deferrable, append_job_name, depends_on_past, retries = seen.launch
    assert (deferrable, append_job_name) == (True, False)
    assert (depends_on_past, retries) == (True, 32)


def test_a_days_pod_runs_the_daily_script_of_its_image(seen):
    [container] = seen.pod["spec"]["containers"]
    assert not container.get("command"), "else the image's entrypoint would not run"
    assert container["name"] == "base", "another one would run beside Airflow's"
    assert container["image"].endswith("/bert-embed-cron:1")
    assert seen.pod["metadata"]["namespace"] == "composer-user-workloads"
    [mounted] = container["volumeMounts"]
    arguments = ast.literal_eval(seen.fields["bert_embed_pod"]["arguments"])
    assert arguments == [f"{mounted['mountPath']}/settings.sh", DAYS[2]]
    image = (ROOT / "deploy" / "cron" / "Dockerfile").read_text("utf-8")
    script, *words = json.loads(re.search(r"^ENTRYPOINT (.*)", image, re.MULTILINE)[1])
    here = script.replace("/opt/bert-embed", str(ROOT))
    made = subprocess.run([here, *words, *arguments], capture_output=True, text=True)
    # It takes the words, and misses only the file that the pod mounts.
    assert made.stderr == f"embed_daily: there is no file of settings {arguments[0]}\n"
