"""deploy/terraform: it parses, names only what it declares, and every name of ours is the code's.

The provider's schema cannot be had without its download: `ARGUMENTS` is taken from its pages.
"""

import json
import re
import shutil
import subprocess

import hcl2
import pytest

from bert_embed.pipeline.options import FLAGS
from bert_embed.transforms.records.report import SUMMED
from tests.support.command import ROOT
from tests.support.deploy import DATAFLOW, EXAMPLE, printed

FOLDER = ROOT / "deploy" / "terraform"
SOURCES = {path.name: path.read_text("utf-8") for path in sorted(FOLDER.glob("*.tf"))}
EVERY = "\n".join(SOURCES.values())
SIMPLE = (FOLDER / "examples" / "simple" / "main.tf").read_text("utf-8")
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")
META = {"count", "for_each", "depends_on", "lifecycle"}
ARGUMENTS = {
    "google_artifact_registry_repository": "project location repository_id format description "
    "cleanup_policies",
    "google_artifact_registry_repository_iam_member": "project location repository role member",
    "google_bigquery_dataset": "project dataset_id location",
    "google_bigquery_dataset_iam_member": "project dataset_id role member",
    "google_cloud_run_v2_job_iam_member": "project location name role member",
    "google_cloud_scheduler_job": "project region name schedule time_zone attempt_deadline "
    "retry_config http_target",
    "google_compute_firewall": "project name network direction source_tags target_tags allow",
    "google_compute_network": "project name auto_create_subnetworks",
    "google_compute_subnetwork": "project name region network ip_cidr_range "
    "private_ip_google_access",
    "google_monitoring_alert_policy": "project display_name combiner notification_channels "
    "conditions documentation",
    "google_monitoring_dashboard": "project dashboard_json",
    "google_project_iam_member": "project role member",
    "google_project_service": "project service disable_on_destroy",
    "google_secret_manager_secret": "project secret_id replication",
    "google_secret_manager_secret_iam_member": "project secret_id role member",
    "google_service_account": "project account_id display_name",
    "google_service_account_iam_member": "service_account_id role member",
    "google_storage_bucket": "project name location uniform_bucket_level_access "
    "public_access_prevention soft_delete_policy lifecycle_rule",
    "google_storage_bucket_iam_member": "bucket role member",
}


def blocks(kind):
    """The blocks of a kind in all files, as `(labels, content)`."""
    for text in SOURCES.values():
        for each in hcl2.loads(text).get(kind, []):
            labels = []
            while not each.get("__is_block__"):
                [(label, each)] = ((k, v) for k, v in each.items() if not k.startswith("__"))
                labels.append(label.strip('"'))
            yield tuple(labels), {k: v for k, v in each.items() if not k.startswith("__")}


RESOURCES = dict(blocks("resource"))


def test_resources_have_arguments_that_the_provider_documents():
    assert {kind for kind, _ in RESOURCES} == ARGUMENTS.keys()
    for (kind, name), content in RESOURCES.items():
        extra = content.keys() - set(ARGUMENTS[kind].split()) - META
        assert not extra, f"{kind}.{name}"
        where = {"project", "bucket", "service_account_id"} & content.keys()
        assert where, f"{kind}.{name} would be made in the provider's own project"


def test_every_name_is_declared_and_every_declaration_is_used():
    declared = {name for (name,), _ in blocks("variable")}
    used = set(re.findall(r"\bvar\.(\w+)", EVERY))
    assert used == declared
    for kind, name in set(re.findall(r"\b(google_\w+)\.(\w+)", EVERY)):
        assert (kind, name) in RESOURCES, f"{kind}.{name}"
    [locals_] = [hcl2.loads(text)["locals"] for name, text in SOURCES.items() if name == "main.tf"]
    names = {key for each in locals_ for key in each if not key.startswith("__")}
    assert set(re.findall(r"\blocal\.(\w+)", EVERY)) == names | {"counter"}
    for (_,), content in blocks("variable"):
        assert {"description", "type"} <= content.keys()
    given = set(re.findall(r"^  (\w+) +=", SIMPLE.partition("module")[2], re.MULTILINE))
    assert given - {"source", "value"} <= declared
    required = {name for (name,), content in blocks("variable") if "default" not in content}
    assert required <= given


def test_the_module_says_which_terraform_and_provider_it_needs():
    [block] = hcl2.loads(SOURCES["versions.tf"])["terraform"]
    assert {"required_version", "required_providers"} == {n for n in block if n[0] != "_"}
    [providers] = block["required_providers"]
    assert providers["google"]["source"] == '"hashicorp/google"'
    assert providers["google"]["version"]


def test_no_batch_job_is_a_resource():
    """Every apply would start it again."""
    assert "google_dataflow_flex_template_job" not in EVERY


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
    body = SOURCES["schedule.tf"]
    assert re.search(r'work\.name\}/(templates/[^"]*)"', body)[1].replace(
        "${var.image_tag}", "7"
    ) == (written)
    image = re.search(r'sdk_container_image = "\$\{local\.repository\}/([^"]*)"', body)[1]
    assert f"/{image.replace('${var.image_tag}', '7')}," in " ".join(build)


def test_counters_are_ours():
    counters = {"documents", "rejected", "parts", *SUMMED} - {"embedded", "blank"}
    dashboard = (FOLDER / "dashboard.json").read_text("utf-8")
    shown = set(re.findall(r'metric_name=\\"(\w+)\\"', dashboard))
    alerted = set(re.findall(r'metric_name = \\"(\w+)\\"', EVERY))
    assert {"documents", "tokens", "padded_tokens"} <= shown
    assert alerted == {"rejected"}
    assert shown | alerted <= counters
    tiles = json.loads(dashboard)["mosaicLayout"]["tiles"]
    assert all(tile["xPos"] + tile["width"] <= 48 for tile in tiles)


def test_roles_are_those_of_the_page():
    roles = set(re.findall(r'"roles/([\w.]+)"', EVERY))
    assert roles
    assert {role for role in roles if f"`{role}`" not in PAGE} == set()
    on_project = [c for (kind, _), c in RESOURCES.items() if kind == "google_project_iam_member"]
    assert "storage" not in str(on_project), "roles of storage are given on buckets"
    assert not re.search(r"roles/(owner|editor|viewer)\b", EVERY)


def test_one_page_alone_has_a_table_of_roles():
    named = re.compile(
        r"`(?:roles/)?((?:bigquery|storage|dataflow|artifactregistry)\.[a-z]+[A-Z]?\w*)`"
    )
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("deploy/**/README.md")]
    tables = {
        page.name
        for page in pages
        for line in page.read_text("utf-8").splitlines()
        if line.startswith("|") and named.search(line)
    }
    assert tables == {"security.md"}


@pytest.mark.parametrize("what", ["a BigQuery table or query in", "`--output_format bigquery`"])
def test_workers_get_every_role_of_the_table_that_bigquery_takes(what):
    [row] = [line for line in PAGE.splitlines() if f"| {what} |" in line]
    granted = {
        role
        for (kind, name), content in RESOURCES.items()
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


@pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not installed")
def test_the_files_are_formatted():
    subprocess.run(["terraform", "fmt", "-check", "-recursive", FOLDER], check=True)
