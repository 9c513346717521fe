"""The pages of deployment: every file has its row, and every figure its source."""

import re
import subprocess

import pytest
import yaml

from tests.support.command import ROOT

DEPLOY = ROOT / "deploy"
README = (DEPLOY / "README.md").read_text("utf-8")
DATAFLOW_PAGE = (ROOT / "docs" / "dataflow.md").read_text("utf-8")


def test_every_file_of_deploy_says_what_checks_it():
    rows = README.partition("## Every file")[2].splitlines()
    named = [name for row in rows for name in re.findall(r"`([^` ]+)`", row.partition(" | ")[0])]
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "."]
    listed = subprocess.run(command, cwd=DEPLOY, capture_output=True, text=True, check=True)
    there = [path for path in listed.stdout.splitlines() if (DEPLOY / path).exists()]
    assert sorted(name for name in named if "make" not in name) == sorted(there)
    for row in rows:
        cells = row.strip("| ").split(" | ")
        assert not row.startswith("| `") or (len(cells) == 3 and all(cells)), row
    for link in re.findall(r"\]\(([^)#]+)", README):
        assert (DEPLOY / link).exists(), link


def test_the_crontab_calls_the_script_with_its_settings():
    lines = (DEPLOY / "cron" / "crontab.example").read_text("utf-8").splitlines()
    [line] = [line for line in lines if re.match(r"\d", line)]
    *times, script, settings = line.split()
    assert len(times) == 5
    assert all(re.fullmatch(r"\*|\d+", time) for time in times)
    assert (ROOT / script.removeprefix("/opt/bert-embed/")).exists()
    assert settings == "/etc/bert-embed/settings.sh"


@pytest.fixture(scope="module")
def prices():
    """The packaged prices."""
    path = ROOT / "pipeline" / "estimate" / "prices.yaml"
    return yaml.safe_load(path.read_text("utf-8"))


def test_the_ten_steps_cost_what_the_prices_say(prices):
    table = DATAFLOW_PAGE.partition("## Ten steps")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| .* \| (.*) \| .* \|$", table, re.MULTILINE)
    costs = {int(number): cost for number, cost in rows}
    assert list(costs) == list(range(1, 11))
    worker = prices["dataflow"]
    [machine] = [each for each in prices["machines"] if each["name"] == worker["machine"]]
    hour = machine["vcpus"] * worker["vcpu_hour"]
    hour += machine["memory_gb"] * worker["memory_gb_hour"]
    hour += worker["disk_gb"] * worker["disk_gb_hour"]
    first = prices["processors"][0]
    core = float(re.search(r"([\d,]+) tokens/s", first["basis"])[1].replace(",", ""))
    speed = core / first["core_speed"] * machine["vcpu_speed"] * machine["vcpus"]
    others = {each["name"]: each["price"] for each in prices["others"]}
    for step, expected in {
        3: [others["Cloud Storage"], others["Artifact Registry"]],
        6: [20 * others["Cloud Build"], hour * 10 / 60],
        8: [hour, hour * 100e6 / speed / 3600],
        10: [others["Cloud Scheduler"]],
    }.items():
        found = re.findall(r"\d+\.\d\d", costs.pop(step))
        assert found == [f"{price:.2f}" for price in expected], step
    assert not re.search(r"\d+\.\d", str(costs)), "figures that no price backs"


def test_the_page_lists_what_google_alone_can_show():
    table = DATAFLOW_PAGE.partition("\n## What could not be shown without Google")[2]
    for subject in ("Dataflow itself", "Artifact Registry", "apply", "IAM", "alerts", "GPUs"):
        assert subject in table
