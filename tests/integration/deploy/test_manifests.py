"""Containers, manifests, units and scripts fit together; `make check` lints them."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from bert_embed.pipeline.options.command_line import parse_embed
from bert_embed.pipeline.runners.options import ACCELERATORS
from tests.support.command import ROOT
from tests.support.daily import DAYS, daily, write_day, write_settings
from tests.support.forks import write_python

DEPLOY = ROOT / "deploy"
CRON = DEPLOY / "cron"
MANIFESTS = {
    path: next(yaml.safe_load_all((DEPLOY / path).read_text("utf-8")))
    for path in (
        *("cloud_run/job.yaml", "flink/kubernetes.yaml", "airflow/bert_embed_pod.yaml"),
        *("gke/tpu.yaml", "gke/gpu.yaml"),
    )
}
TERRAFORM = "\n".join(path.read_text("utf-8") for path in sorted(DEPLOY.glob("terraform/*.tf")))


def test_containers_run_the_daily_script_with_its_settings():
    """The image's entrypoint takes the arguments, and the file is where it is mounted."""
    job = MANIFESTS["cloud_run/job.yaml"]["spec"]["template"]["spec"]["template"]["spec"]
    pod = MANIFESTS["airflow/bert_embed_pod.yaml"]["spec"]
    dockerfile = (CRON / "Dockerfile").read_text("utf-8")
    default = json.loads(re.search(r"^CMD (.*)", dockerfile, re.MULTILINE)[1])
    for spec in (job, pod):
        [container], [volume] = spec["containers"], spec["volumes"]
        [mounted] = container["volumeMounts"]
        assert mounted["name"] == volume["name"]
        assert container["args"] == default == [f"{mounted['mountPath']}/settings.sh"]
        assert "command" not in container
    assert job["containers"][0]["image"] == pod["containers"][0]["image"]
    [secret] = [volume["secret"] for volume in job["volumes"]]
    assert secret["items"] == [{"key": "latest", "path": "settings.sh"}]
    account = job["serviceAccountName"].partition("@")[0]
    for made in (secret["secretName"], account):
        assert f'"${{var.name}}{made.removeprefix("bert-embed")}"' in TERRAFORM


@pytest.mark.parametrize("device", ["tpu", "gpu"])
def test_a_pod_asks_for_the_chips_that_its_command_computes_on(device):
    pod = MANIFESTS[f"gke/{device}.yaml"]["spec"]
    [container] = pod["containers"]
    options = parse_embed(container["args"])
    assert (options.device, options.command) == (device, container["command"][-1])
    assert f"/bert-embed-{device}:" in container["image"]
    wanted = {name.rpartition("-")[2]: value for name, value in pod["nodeSelector"].items()}
    known = [(one.type, one.topology, one.chips) for one in ACCELERATORS.values()]
    chips = container["resources"]["limits"][
        {"tpu": "google.com/tpu"}.get(device, "nvidia.com/gpu")
    ]
    assert (wanted["accelerator"], wanted.get("topology"), int(chips)) in known


@pytest.mark.slow
def test_the_image_of_the_daily_script_embeds_a_day(tmp_path, tiny_bundle, monkeypatch):
    """What deploy/cron/Dockerfile copies; the packages, which its base brings, are those here."""
    dockerfile = (CRON / "Dockerfile").read_text("utf-8")
    [(sources, target)] = re.findall(r"^COPY (.+) (\S+)$", dockerfile, re.MULTILINE)
    folder = tmp_path / "image" / target.lstrip("/")
    folder.mkdir(parents=True)
    allowed = (CRON / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    for source in sources.split():
        assert f"!{source.rpartition('/')[0]}" in allowed, "else a build does not see it"
        shutil.copy(ROOT / source, folder)
    [entrypoint] = re.findall(r"^ENTRYPOINT (.+)$", dockerfile, re.MULTILINE)
    script, *words = json.loads(entrypoint)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    write_day(tmp_path / "texts", DAYS[0], {"a": "red river"})
    command = [f"{tmp_path}/image{script}", *words, write_settings(tmp_path, tiny_bundle), DAYS[0]]
    made = subprocess.run(command, capture_output=True, text=True)
    assert made.returncode == 0, made.stdout + made.stderr
    assert f"{DAYS[0]} ended with exit code 0" in made.stdout
    settings = write_settings(tmp_path, tiny_bundle, PYTHON=write_python(tmp_path))
    assert daily(settings, DAYS[0])[0] == 0, "the script of the clone finds the day done"


def test_settings_of_a_container_are_settings_of_the_script():
    names = {}
    for file in ("settings.example.sh", "settings.container.example.sh"):
        text = (CRON / file).read_text("utf-8")
        names[file] = set(re.findall(r"^([A-Z_]+)=", text, re.MULTILINE))
    assert names["settings.container.example.sh"] - {"PYTHON"} <= names["settings.example.sh"]
    script = (CRON / "embed_daily.sh").read_text("utf-8")
    for name in set().union(*names.values()):
        assert re.search(rf"\b{name}\b", script), name


def flat(value, *names):
    """The settings of a tree, by their names joined with dots."""
    if not isinstance(value, dict):
        return {".".join(names): str(value)}
    return {k: v for name in value for k, v in flat(value[name], *names, name).items()}


def test_flink_on_kubernetes_is_the_cluster_of_the_scripts():
    spec = MANIFESTS["flink/kubernetes.yaml"]["spec"]
    given = spec["flinkConfiguration"] | {
        f"{kind.lower()}.memory.process.size": spec[kind]["resource"]["memory"]
        for kind in ("jobManager", "taskManager")
    }
    asked = flat(yaml.safe_load((DEPLOY / "flink" / "conf" / "config.yaml").read_text("utf-8")))
    addresses = {name for name in asked if name.startswith(("jobmanager.rpc.", "rest."))}
    assert given == {name: value for name, value in asked.items() if name not in addresses}
    pom = (DEPLOY / "flink" / "pom.xml").read_text("utf-8")
    release = re.search(r"beam-runners-flink-([\d.]+)<", pom)[1]
    assert spec["flinkVersion"] == f"v{release.replace('.', '_')}"
    words = (DEPLOY / "flink" / "job_server.sh").read_text("utf-8").split()
    server = spec["jobManager"]["podTemplate"]["spec"]["containers"][1]
    own = {word for word in server["args"] if word.startswith("--artifacts-dir=")}
    assert {word for word in server["args"] if word.startswith("--")} - own <= set(words)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_units(tmp_path):
    """With the programs where this clone is."""
    for path in (*CRON.glob("*.service"), *CRON.glob("*.timer")):
        text = path.read_text("utf-8").replace("/opt/bert-embed", str(ROOT))
        (tmp_path / path.name).write_text(text, "utf-8")
    command = ["systemd-analyze", "verify", *sorted(tmp_path.iterdir())]
    made = subprocess.run(command, capture_output=True, text=True)
    assert (made.returncode, made.stderr) == (0, "")


def test_the_mail_of_a_failure_has_the_end_of_the_log(tmp_path):
    """systemctl, journalctl and mail are stand-ins, as nothing is mailed from here."""
    for name, body in (
        ("systemctl", 'echo "Result=exit-code"; echo "ExecMainStatus=2"'),
        ("journalctl", f'echo "log of $2: {sys.version_info.major}"'),
        ("mail", 'echo "to ${*: -1}: $2"; cat'),
    ):
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "ALERT": "oncall@example.com"}
    script = CRON / "mail_failure.sh"
    made = subprocess.run([script, "bert-embed.service"], env=env, capture_output=True, text=True)
    assert (made.returncode, made.stderr) == (0, "")
    first, *rest = made.stdout.splitlines()
    assert first.startswith("to oncall@example.com: bert-embed.service failed on ")
    assert rest == ["Result=exit-code", "ExecMainStatus=2", "", "log of bert-embed.service: 3"]
    env.pop("ALERT")
    made = subprocess.run([script, "bert-embed.service"], env=env, capture_output=True, text=True)
    assert made.returncode != 0
    assert "ALERT: must be the address that the mail goes to" in made.stderr
