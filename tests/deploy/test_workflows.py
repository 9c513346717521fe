"""The workflows of a fork and Cloud Build's steps: what they call is there."""

import re

import pytest
import yaml

from tests.support.command import ROOT
from tests.support.deploy import printed

WORKFLOWS = {path.name: path for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


@pytest.mark.parametrize("path", WORKFLOWS.values(), ids=WORKFLOWS)
def test_a_workflow_runs_targets_and_files_that_are_there(path):
    text = path.read_text("utf-8")
    jobs = yaml.safe_load(text)["jobs"]
    assert jobs
    for job in jobs.values():
        assert job["timeout-minutes"] <= 120
    targets = re.findall(r"\bmake ([a-z-]+)", text)
    assert set(targets) <= TARGETS
    files = re.findall(r"(?:deploy|locks|bert_embed|\.ci|\.github)/[\w./-]*\w", text)
    for file in files:
        found = file.split("/**")[0]
        assert (ROOT / found).exists() or list(ROOT.glob(found)), file
    assert "permissions" in text, "else the token may write"


def test_every_change_is_checked_and_every_night_all():
    assert {"check.yml", "nightly.yml", "images.yml", "release.yml"} == WORKFLOWS.keys()
    checked = WORKFLOWS["check.yml"].read_text("utf-8")
    for target in ("make check", "make test-quick", "make docs"):
        assert target in checked
    assert ".ci/run" in WORKFLOWS["nightly.yml"].read_text("utf-8")
    assert "push: true" not in WORKFLOWS["images.yml"].read_text("utf-8")


def test_cloud_build_gets_the_values_that_it_needs(tmp_path):
    build = yaml.safe_load((ROOT / "deploy" / "docker" / "cloudbuild.yaml").read_text("utf-8"))
    needed = set(re.findall(r"\$(_\w+)", str(build)))
    account = ("BUILD_ACCOUNT=", "BUILD_ACCOUNT=a@acme.iam.gserviceaccount.com")
    _, [words, _], _ = printed(tmp_path, account)
    given = words[words.index("--substitutions") + 1].split(",")
    assert {each.split("=")[0] for each in given} == needed
    assert build["substitutions"].keys() <= needed, "Cloud Build refuses those that no step uses"
    assert words[words.index("--service-account") + 1] == (
        "projects/acme/serviceAccounts/a@acme.iam.gserviceaccount.com"
    )
    assert build["options"]["logging"] == "CLOUD_LOGGING_ONLY"  # own accounts require it
    assert [step["id"] for step in build["steps"]] == ["build", "test"]
