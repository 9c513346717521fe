"""Terraform's names of ours are the code's, and files of deploy/ what Google's services take.

The workflow `check` validates Terraform's. The fakes of Dataflow, BigQuery and Cloud Storage refuse
any body of any test that the services would refuse, by the same documents (support/discovery.py).
"""

import functools
import json
import re
import sys
import urllib.error
import urllib.request

import pytest
import yaml

from bert_embed.pipeline.options.embed import FLAGS
from bert_embed.transforms.ledger import SUMMED
from tests.support.command import ROOT
from tests.support.daily import DATAFLOW, EXAMPLE, printed
from tests.support.discovery import problems, schemas
from tests.support.servers.dataflow import PROJECT, REGION, dataflow_server
from tests.support.servers.gcs import proxy

FOLDER = ROOT / "deploy" / "terraform"
SOURCES = {path.name: path.read_text("utf-8") for path in sorted(FOLDER.glob("*.tf"))}
EVERY = "\n".join(SOURCES.values())
SIMPLE = (FOLDER / "examples" / "simple" / "main.tf").read_text("utf-8")
PAGE = (ROOT / "docs" / "cloud.md").read_text("utf-8")


def blocks(kind):
    """The blocks of a kind in all files, as `(labels, content)`."""
    import hcl2  # takes a second, which every process that collects tests would pay

    for text in SOURCES.values():
        for each in hcl2.loads(text).get(kind, []):
            labels = []
            while not each.get("__is_block__"):
                [(label, each)] = ((k, v) for k, v in each.items() if not k.startswith("__"))
                labels.append(label.strip('"'))
            yield tuple(labels), {k: v for k, v in each.items() if not k.startswith("__")}


@functools.cache
def resources():
    return dict(blocks("resource"))


def test_parameters_of_the_example_are_the_templates():
    metadata = json.loads((DATAFLOW / "metadata.json").read_text("utf-8"))
    parameters = {each["name"]: each for each in metadata["parameters"]}
    text = re.search(r"parameters = \{(.*?)\n  \}", SIMPLE, re.DOTALL)[1]
    given = dict(re.findall(r'^    (\w+) += "(.*)"', text, re.MULTILINE))
    assert given.keys() <= parameters.keys()
    assert {"input", "output"} <= given.keys() <= FLAGS.keys()
    for name, value in given.items():
        assert all(re.search(pattern, value) for pattern in parameters[name].get("regexes", []))
    assert "sdk_container_image" in parameters
    assert "sdk_container_image =" in SOURCES["schedule.tf"]


def test_image_and_template_are_those_that_the_script_writes(tmp_path):
    _, [build, template], _ = printed(tmp_path, ("TAG=", "TAG=7"), do="template")
    written = template[template.index("build") + 1].removeprefix("gs://acme-texts/")
    tag = f"py3{sys.version_info.minor}-7"
    body = SOURCES["schedule.tf"].replace("${var.image_tag}", tag)
    assert re.search(r'work\.name\}/(templates/[^"]*)"', body)[1] == written
    image = re.search(r'sdk_container_image = "\$\{local\.repository\}/([^"]*)"', body)[1]
    assert f"/{image}," in " ".join(build)


def test_the_scheduled_day_begins_with_its_schedule():
    """So that a launch after midnight continues the day of the schedule before it."""
    body = SOURCES["schedule.tf"]
    [pattern] = re.findall(r'regexall\("(.*?)"', body)
    [(minute, hour)] = re.findall(pattern, "17 2 * * *")
    assert FLAGS["today"].kind("today", f"{int(hour):02}:{int(minute):02}") == "02:17"
    assert re.search(r"merge\(var.parameters, \{\s+today += local.day_begins\n", body)


def test_counters_are_ours():
    counters = {"documents", "rejected", "parts", *SUMMED} - {"embedded", "blank"}
    dashboard = (FOLDER / "dashboard.json").read_text("utf-8")
    shown = set(re.findall(r'metric_name=\\"(\w+)\\"', dashboard))
    alerted = set(re.findall(r'metric_name = \\"(\w+)\\"', EVERY))
    assert {"documents", "tokens", "padded_tokens"} <= shown
    assert alerted == {"rejected"}
    assert shown | alerted <= counters


def test_roles_are_those_of_the_page():
    roles = set(re.findall(r'"roles/([\w.]+)"', EVERY))
    assert roles
    assert {role for role in roles if f"`{role}`" not in PAGE} == set()
    on_project = [c for (kind, _), c in resources().items() if kind == "google_project_iam_member"]
    assert "storage" not in str(on_project), "roles of storage are given on buckets"
    assert not re.search(r"roles/(owner|editor|viewer)\b", EVERY)


@pytest.mark.parametrize(
    "what",
    ["a BigQuery table or query in, a table in `--skip_existing`", "`--output_format bigquery`"],
)
def test_workers_get_every_role_of_the_table_that_bigquery_takes(what):
    [row] = [line for line in PAGE.splitlines() if f"| {what} |" in line]
    granted = {
        role
        for (kind, name), content in resources().items()
        if kind.endswith("_iam_member") and name.startswith("worker")
        for role in re.findall(r"roles/([\w.]+)", str(content))
    }
    assert set(re.findall(r"`(bigquery\.\w+)`", row)) <= granted


def test_outputs_fill_the_file_of_variables():
    [content] = [content for (name,), content in blocks("output") if name == "variables_env"]
    names = re.findall(r"^ *([A-Z_]+)=", content["value"], re.MULTILINE)
    known = re.findall(r"^([A-Z_]+)=", EXAMPLE, re.MULTILINE)
    assert set(names) <= set(known)
    assert {"PROJECT", "REGION", "BUCKET", "REPOSITORY", "OUTPUT", "SERVICE_ACCOUNT"} <= set(names)


def test_every_resource_waits_for_the_services_of_a_fresh_project():
    refers = {
        name: set(re.findall(r"\b(google_\w+\.\w+)\b", str(content)))
        for name, content in ((".".join(labels), c) for labels, c in resources().items())
    }
    ready = {"google_project_service.service"}
    while more := {name for name, others in refers.items() if others & ready} - ready:
        ready |= more
    assert set(refers) == ready
    enabled = set(re.findall(r'"(\w+)\.googleapis\.com"', SOURCES["main.tf"]))
    used = {"iam", "cloudresourcemanager", "monitoring", "bigquery", "secretmanager", "compute"}
    assert used <= enabled
    # The trial enables the same.
    script = (ROOT / "deploy" / "try_it.sh").read_text("utf-8")
    assert {*re.search(r"services=\((.*?)\)", script, re.DOTALL)[1].split()} == enabled


def test_page_has_every_variable():
    readme = (FOLDER / "README.md").read_text("utf-8")
    [table] = re.findall(r"\| input \|.*?\n\n", readme, re.DOTALL)
    variables = {name for (name,), _ in blocks("variable")}
    assert variables <= set(re.findall(r"`(\w+)`", table))


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
