"""deploy/dataflow and deploy/docker: versions agree, what is printed is a job, docs are true."""

import importlib.util
import os
import re
import shlex
import shutil
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from bert_embed.pipeline.cli import main
from bert_embed.pipeline.runners.options import ACCELERATORS
from tests.support.command import ROOT, ran
from tests.support.daily import DATAFLOW, EXAMPLE, printed

DOCKER = ROOT / "deploy" / "docker"
DOCKERFILE = (DOCKER / "Dockerfile").read_text("utf-8")
PAGE = (ROOT / "docs" / "cloud.md").read_text("utf-8")
COMMANDS = re.findall(r"^bert-embed (embed (?:[^\\\n]|\\\n)*)", PAGE, re.MULTILINE)
# What the page says to write for a TPU in the command for a GPU.
_IMAGE, _FLAGS = re.search(r"For a TPU write `(.*?)` and `(.*?)`", PAGE).groups()
COMMANDS.append(
    COMMANDS[-1].replace("bert-embed-gpu:1", _IMAGE).replace("--accelerator l4", _FLAGS)
)


def test_beam_and_python_are_the_same_everywhere():
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)", DOCKERFILE, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    pins = (ROOT / "requirements.txt").read_text("utf-8")
    [beam] = re.findall(r"^apache-beam(?:\[\w+\])?==([^\s;]+)", pins, re.MULTILINE)
    assert arguments["BEAM"] == beam
    asked = {each.name: each for each in map(Requirement, project["project"]["dependencies"])}
    assert asked["apache-beam"].specifier.contains(beam)
    python = f"3.{arguments['PYTHON_MINOR']}"
    assert project["tool"]["mypy"]["python_version"] == python
    assert SpecifierSet(project["project"]["requires-python"]).contains(f"{python}.99")
    assert "python3${PYTHON_MINOR}-template-launcher-base:" in DOCKERFILE
    assert "beam_python3.${PYTHON_MINOR}_sdk:${BEAM}" in DOCKERFILE
    assert "FROM python:3.${PYTHON_MINOR}-slim" in DOCKERFILE


def program(folder, name, text):
    """Writes a program of a few lines of shell."""
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    return str(folder / name)


def test_images_have_the_python_of_the_command_that_submits(tmp_path):
    env = {"PYTHON": program(tmp_path, "python", "echo 12")}
    _, [build, submit], _ = printed(tmp_path, ("TAG=", "TAG=7"), **env)
    image = "us-central1-docker.pkg.dev/acme/images/bert-embed-cpu:py312-7"
    settings = build[build.index("--substitutions") + 1].split(",")
    assert {f"_IMAGE={image}", "_PYTHON_MINOR=12"} <= {*settings}
    assert submit[submit.index("--sdk_container_image") + 1] == image
    assert printed(tmp_path, ("TAG=", "TAG=py312-7"), **env)[1] == [build, submit]


@pytest.fixture(scope="module")
def bucket(gcs_session):
    """What the examples embed."""
    for name in ("my-bucket", "acme-texts"):
        gcs_session.put(name, {"texts/a.jsonl": '{"id": "a", "text": "the bank"}\n' * 9})


@pytest.mark.parametrize(("accelerator", "device"), [("", "cpu"), ("l4", "gpu"), ("v5e", "tpu")])
def test_what_make_dataflow_runs_is_a_job(gcs, bucket, tmp_path, accelerator, device):
    network = "regions/us-central1/subnetworks/default"
    code, [build, submit], _ = printed(
        tmp_path,
        ("ACCELERATOR=", f"ACCELERATOR={accelerator}"),
        ("SUBNETWORK=", f"SUBNETWORK={network}"),
        ("TAG=", "TAG=7") if accelerator else ("FLAGS=", "FLAGS=--machine_type e2-standard-4"),
    )
    assert code == 0
    assert build[:3] == ["gcloud", "builds", "submit"]
    image = f"us-central1-docker.pkg.dev/acme/images/bert-embed-{device}:"
    [settings] = [word for word in build if word.startswith(f"_IMAGE={image}")]
    assert f",_DEVICE={device}," in settings
    assert settings.endswith(",_TARGET=worker")
    assert submit[1:3] == ["-m", "bert_embed"]
    assert main([*submit[3:], "--dry_run"]) == 0
    words = " ".join(submit)
    assert all(part in words for part in (image, network, "--no_use_public_ips"))
    assert ("--machine_type e2-standard-4" in words) == (not accelerator)


_PYTHON = """case "$1" in
  -m) [ "$2" != venv ] || { mkdir -p "$3/bin"; cp "${0%/*}/python" "${0%/*}/uv" "$3/bin"; } ;;
  -c) echo "${0%/*}" ;;
esac
"""
_UV = f"""[ "$1" != export ] || exec "{ROOT}/.venv/bin/uv" "$@"
for last; do :; done
grep == "$last" | sed 's/ .*//' >> "$LOG"
"""


@pytest.mark.parametrize(
    ("words", "wanted", "without"),
    [
        (["cpu"], ["tensorflow", "openvino"], ["jax", "nvidia"]),
        (["gpu"], ["tensorflow", "jax", "jax-cuda12-plugin", "nvidia-cudnn-cu12"], ["cu13"]),
        (["gpu", "no"], ["jax", "jax-cuda12-plugin"], ["tensorflow", "openvino", "cu13", "cuda13"]),
        (["gpu", "no", "13"], ["jax", "jax-cuda13-plugin"], ["tensorflow", "-cu12", "cuda12"]),
        (["gpu", "cuda"], ["tensorflow", "nvidia-cudnn-cu12"], ["jax"]),
        (["tpu"], ["tensorflow", "jax", "libtpu"], ["nvidia"]),
    ],
)
def test_jax_is_in_images_of_accelerators_but_for_tensorflow(tmp_path, words, wanted, without):
    for name, text in (("python", _PYTHON), ("uv", _UV)):
        program(tmp_path, name, text)
    path, log = f"{tmp_path}:{os.environ['PATH']}", tmp_path / "log"
    ran([DOCKER / "install.sh", *words], check=True, PATH=path, TMPDIR=str(tmp_path), LOG=str(log))
    installed = [line.partition("==")[0] for line in log.read_text().splitlines()]
    assert {*wanted} <= {*installed}
    assert not [name for name in installed for part in without if part in name]


@pytest.mark.parametrize(
    ("answer", "code", "commands"),
    [
        ("echo digest", 0, 1),
        ("echo 'ERROR: Image not found.' >&2; exit 1", 0, 2),
        ("echo 'ERROR: no active account' >&2; exit 1", 2, 0),
    ],
)
def test_only_a_missing_image_is_built(tmp_path, answer, code, commands):
    """An image that gcloud cannot look up may be there."""
    log = tmp_path / "log"
    log.touch()
    (tmp_path / "bin").mkdir()
    program(
        *(tmp_path / "bin", "gcloud"),
        f'if [ "$1" = artifacts ]; then {answer}; else echo "$*" >> {log}; fi',
    )
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    found, _, errors = printed(tmp_path, ("TAG=", "TAG=7"), do="template", more=(), PATH=path)
    assert found == code
    assert ("gcloud cannot say whether" in errors) == (code == 2)
    assert len(log.read_text().splitlines()) == commands


@pytest.mark.parametrize("place", ["gs://acme-texts/texts/*.jsonl", "acme:texts.news"])
def test_what_embed_refuses_builds_no_image(tmp_path, place):
    program(tmp_path, "gcloud", f'echo "gcloud $*" >> {tmp_path}/log')
    python = program(tmp_path, "python", "[ $1 != -c ] || exec echo 11; exit 3")
    change = ("INPUT=gs://acme-texts/texts/*.jsonl", f"INPUT={place}")
    path = f"{tmp_path}:{os.environ['PATH']}"
    assert printed(tmp_path, change, more=(), PATH=path, PYTHON=python)[0] == 3
    assert not (tmp_path / "log").exists()


def test_a_changed_tree_is_another_tag(tmp_path):
    clone = tmp_path / "clone"
    script = clone / "deploy" / "dataflow" / "dataflow.sh"
    script.parent.mkdir(parents=True)
    shutil.copy(DATAFLOW / "dataflow.sh", script)
    text = EXAMPLE.replace("my-project", "acme").replace("my-bucket", "acme-texts")
    (tmp_path / "variables.env").write_text(text)

    def tag():
        command = [script, "submit", tmp_path / "variables.env", "--print"]
        made = ran(command, check=True, PYTHON=sys.executable)
        return re.search(r"bert-embed-cpu:([\w-]+)", made.stdout)[1]

    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "-q"], ["add", "."], [*identity, "commit", "-qm", "a"]):
        ran(["git", *words], cwd=clone, check=True)
    tags = [tag()]
    for content in ("one", "two"):
        (clone / "new.py").write_text(content)
        tags.append(tag())
    assert len({*tags}) == 3
    assert tags[2].startswith(tags[0])
    assert tag() == tags[2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("PROJECT=acme PROJECT=", "PROJECT is empty"),
        ("PROJECT=acme PROJECT=my-project", "PROJECT has the example's value my-project"),
        ("PROJECT=acme PROJECT=other", "REPOSITORY is in the project acme, PROJECT is other"),
        ("BUCKET=gs://acme-texts BUCKET=acme-texts", "acme-texts does not begin with gs:"),
        ("MAX_WORKERS=20 MAX_WORKERS=0", "MAX_WORKERS 0 is no number above 0"),
        ("BUILD=cloud BUILD=clod", "BUILD clod is none of cloud, docker"),
        ("TAG= PROJET=x", "PROJET is none of the variables"),
        ("TAG= TAG=py310-7", "TAG py310-7 is of another Python than"),
        ('FLAGS= FLAGS="--limit', "FLAGS has quotes, leave them out"),
    ],
)
def test_a_wrong_file_of_variables_is_refused(tmp_path, change, message):
    code, commands, errors = printed(tmp_path, change.split())
    assert (code, commands) == (2, [])
    assert message in errors


def test_blanks_and_ends_of_lines_belong_to_no_value(tmp_path):
    """A file that was edited on Windows, or by hand, whose last line has no end."""
    wanted = printed(tmp_path, ("MAX_WORKERS=20", "MAX_WORKERS=7"), do="launch")
    path = tmp_path / "variables.env"
    lines = [line for line in path.read_text().splitlines() if "MAX_WORKERS" not in line]
    kept = [line.replace("=", " =\t", 1) for line in lines]
    path.write_bytes(" \r\n ".join([*kept, "MAX_WORKERS=7"]).encode())
    made = ran([DATAFLOW / "dataflow.sh", "launch", path, "--print"])
    assert (made.returncode, made.stderr) == (0, "")
    assert [shlex.split(line) for line in made.stdout.splitlines()] == wanted[1]
    assert "7" in wanted[1][0]


@pytest.mark.parametrize("command", COMMANDS, ids=["bigquery", "l4", "v5e"])
def test_the_page_of_commands_is_true(gcs, bigquery, bucket, minilm, command):
    bigquery.client.create_dataset("test-project.deployed", exists_ok=True)
    table = ("my-project:vectors.", "test-project:deployed.")
    words = shlex.split(command.replace("\\\n", " ").replace(*table))
    assert main([*words, "--dry_run"]) == 0
    device = re.search(r"bert-embed-(\w+):1", command)[1]
    accelerator = re.search(r"--accelerator (\w+)", command)
    assert device == (ACCELERATORS[accelerator[1]].device if accelerator else "cpu")


def test_cloud_build_gets_the_values_that_it_needs(tmp_path):
    build = yaml.safe_load((DOCKER / "cloudbuild.yaml").read_text("utf-8"))
    needed = set(re.findall(r"\$(_\w+)", str(build)))
    account = ("BUILD_ACCOUNT=", "BUILD_ACCOUNT=a@acme.iam.gserviceaccount.com")
    _, [words, _], _ = printed(tmp_path, account)
    given = words[words.index("--substitutions") + 1].split(",")
    assert {value.split("=")[0] for value in given} == needed
    assert build["substitutions"].keys() <= needed, "Cloud Build refuses those that no step uses"
    assert words[words.index("--service-account") + 1] == (
        "projects/acme/serviceAccounts/a@acme.iam.gserviceaccount.com"
    )
    assert build["options"]["logging"] == "CLOUD_LOGGING_ONLY"  # own accounts require it
    # Where the builder may read; Cloud Build's own bucket it may not.
    assert words[words.index("--gcs-source-staging-dir") + 1].startswith("gs://acme-texts/tmp/")
    [_, check] = build["steps"]
    assert check["args"][0] == "-m"
    assert importlib.util.find_spec(f"{check['args'][1]}.__main__") is not None
