"""What Google's services and Terraform's provider take: files of deploy/, and what fakes refuse.

The fakes of Dataflow, BigQuery and Cloud Storage refuse any body of any test that the services
would refuse, by the same documents (tests/support/discovery.py).
"""

import json
import re
import urllib.error
import urllib.request

import pytest
import yaml

from tests.integration.deploy.test_terraform import SOURCES, resources
from tests.support.command import ROOT
from tests.support.discovery import problems, schemas
from tests.support.servers.dataflow import PROJECT, REGION, dataflow_server
from tests.support.servers.gcs import proxy

DEPLOY = ROOT / "deploy"


def content(path):
    text = (DEPLOY / path).read_text("utf-8")
    return json.loads(text) if path.endswith(".json") else yaml.safe_load(text)


@pytest.mark.parametrize(
    ("path", "document", "schema"),
    [
        ("dataflow/metadata.json", "dataflow.v1b3", "TemplateMetadata"),
        ("docker/cloudbuild.yaml", "cloudbuild.v1", "Build"),
        ("cloud_run/job.yaml", "run.v1", "Job"),
        ("terraform/dashboard.json", "monitoring.v1", "Dashboard"),
    ],
)
def test_a_file_is_what_its_service_takes(path, document, schema):
    assert schemas(document), "google-api-python-client is installed"
    assert problems(content(path), document, schema) == []
    wrong = problems(content(path) | {"nam": 1}, document, schema)
    assert wrong == [f"{schema}: Unknown name 'nam'"]


def test_the_schedule_launches_with_fields_that_dataflow_has():
    known = schemas("dataflow.v1b3")
    [body] = re.findall(r"jsonencode\((\{.*?\n    \})\)", SOURCES["schedule.tf"], re.DOTALL)
    launch = known["LaunchFlexTemplateParameter"]["properties"]
    environment = known[launch["environment"]["$ref"]]["properties"]
    top = set(re.findall(r"^        (\w+) += ", body, re.MULTILINE))
    inside = set(re.findall(r"^            (\w+) += ", body, re.MULTILINE))
    inside |= set(re.findall(r": \{ (\w+) = ", body))
    assert {"jobName", "parameters", "environment"} <= top <= launch.keys()
    assert {"tempLocation", "launcherMachineType", "kmsKeyName"} <= inside <= environment.keys()


def wrong_arguments(content, known, at):
    """What a resource, or a block of it, gives that the provider has not, or lacks."""
    meta = {"count", "for_each", "depends_on", "lifecycle", "provider", "dynamic"}
    given = {name: value for name, value in content.items() if not name.startswith("__")}
    for block in given.get("dynamic", []):
        [(name, inner)] = ((k.strip('"'), v) for k, v in block.items() if not k.startswith("__"))
        given[name] = inner["content"]
    for name, value in given.items():
        if name not in known and name not in meta:
            yield f"{at}: no argument {name}"
        elif name in known and known[name][1]:
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, dict):
                    yield from wrong_arguments(inner, known[name][1], f"{at}.{name}")
    for name, (is_required, _) in known.items():
        if is_required and name not in given:
            yield f"{at}: {name} is missing"


def test_terraform_gives_arguments_that_the_provider_has():
    path = ROOT / "tests" / "integration" / "deploy" / "schemas" / "terraform.json"
    known = json.loads(path.read_text("utf-8"))
    for (kind, name), given in resources().items():
        assert list(wrong_arguments(given, known[kind], f"{kind}.{name}")) == []
    bucket = resources()["google_storage_bucket", "work"]
    wrong = {"lifecycle_rule": [{"action": [{"typ": "Delete"}]}], "nam": "x"}
    found = list(wrong_arguments(bucket | wrong, known["google_storage_bucket"], "b"))
    assert "b: no argument nam" in found
    assert "b.lifecycle_rule.action: no argument typ" in found


def refused(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request, timeout=10)
    return error.value.code, error.value.read().decode()


def test_fakes_refuse_fields_that_no_service_has(gcs, bigquery, tmp_path):
    wrong = {"name": "a", "labls": {}}
    with dataflow_server(tmp_path, gcs) as dataflow, proxy(gcs.url) as storage:
        answers = [
            refused(f"{dataflow.url}/v1b3/projects/{PROJECT}/locations/{REGION}/jobs", wrong),
            refused(f"{storage.url}/storage/v1/b?project=p", wrong),
        ]
    service = bigquery.environment["BIGQUERY_EMULATOR_HOST"]
    places = f"{service}/bigquery/v2/projects/{PROJECT}/datasets"
    answers.append(refused(places, {"datasetReference": {"datasetId": "a"}, "labls": {}}))
    for code, said in answers:
        assert code in (400, 403)
        assert "Unknown name 'labls'" in said
