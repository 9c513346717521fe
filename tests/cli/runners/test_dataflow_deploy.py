"""deploy/dataflow and deploy/docker: versions agree, what is printed is a job, docs are true."""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
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
from tests.support.forks import write_python

DOCKER = ROOT / "deploy" / "docker"
MINOR = sys.version_info.minor
DOCKERFILE = (DOCKER / "Dockerfile").read_text("utf-8")
PAGE = (ROOT / "docs" / "cloud.md").read_text("utf-8")
COMMANDS = re.findall(r"^bert-embed (embed (?:[^\\\n]|\\\n)*)", PAGE, re.MULTILINE)
# What the page says to write for a TPU in the command for a GPU.
_IMAGE, _FLAGS = re.search(r"For a TPU write `(.*?)` and `(.*?)`", PAGE).groups()
COMMANDS.append(
    COMMANDS[-1].replace("bert-embed-gpu:1", _IMAGE).replace("--accelerator l4", _FLAGS)
)


def pins(path):
    found = re.findall(r"^([\w.-]+)(?:\[\w+\])?==([^\s;]+)", path.read_text("utf-8"), re.MULTILINE)
    return dict(found)


def ranges(*packages):
    """What pyproject.toml asks of packages."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["tensorflow"]]
    found = {each.name: each for each in map(Requirement, asked)}
    return [found[package].specifier for package in packages]


def minor(version):
    return version.split(".")[:2]


def test_beam_and_python_are_the_same_everywhere():
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)", DOCKERFILE, re.MULTILINE))
    beam = pins(ROOT / "requirements.txt")["apache-beam"]
    assert arguments["BEAM"] == beam
    assert ranges("apache-beam")[0].contains(beam)
    python = f"3.{arguments['PYTHON_MINOR']}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["tool"]["mypy"]["python_version"] == python
    assert SpecifierSet(project["project"]["requires-python"]).contains(f"{python}.99")
    assert "python3${PYTHON_MINOR}-template-launcher-base:" in DOCKERFILE
    assert "beam_python3.${PYTHON_MINOR}_sdk:${BEAM}" in DOCKERFILE
    assert "FROM python:3.${PYTHON_MINOR}-slim" in DOCKERFILE


@pytest.mark.parametrize("minor", [11, 12, 13])
def test_images_have_the_python_of_the_command_that_submits(tmp_path, minor):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {minor}\n")
    python.chmod(0o755)
    changes = [("TAG=", "TAG=7")]
    _, [build, submit], _ = printed(tmp_path, *changes, PYTHON=str(python))
    image = f"us-central1-docker.pkg.dev/acme/images/bert-embed-cpu:py3{minor}-7"
    settings = build[build.index("--substitutions") + 1].split(",")
    assert {f"_IMAGE={image}", f"_PYTHON_MINOR={minor}"} <= {*settings}
    assert submit[submit.index("--sdk_container_image") + 1] == image
    again = ("TAG=", f"TAG=py3{minor}-7")
    assert printed(tmp_path, again, PYTHON=str(python))[1] == [build, submit]
    _, [build, _, made], _ = printed(
        tmp_path, *changes, ("BUILD=cloud", "BUILD=docker"), do="template", PYTHON=str(python)
    )
    assert f"PYTHON_MINOR={minor}" in build
    assert made[4].endswith(f"/bert-embed-cpu-py3{minor}-7.json")


def test_tensorflow_and_its_text_are_of_one_release_in_every_image():
    everywhere = pins(ROOT / "requirements.txt")
    assert minor(everywhere["tensorflow"]) == minor(everywhere["tensorflow-text"])


@pytest.fixture(scope="module")
def bucket(gcs_session):
    """What the examples embed."""
    for name in ("my-bucket", "acme-texts"):
        made = gcs_session.client.create_bucket(name)
        made.blob("texts/a.jsonl").upload_from_string('{"id": "a", "text": "the bank"}\n' * 9)


@pytest.mark.parametrize(
    ("accelerator", "device"), [("", "cpu"), ("t4", "gpu"), ("l4", "gpu"), ("v5e", "tpu")]
)
def test_what_make_dataflow_runs_is_a_job(gcs, bucket, tmp_path, accelerator, device):
    more = (
        ("FLAGS=", "FLAGS=--machine_type e2-standard-4") if not accelerator else ("TAG=", "TAG=7")
    )
    code, [build, submit], _ = printed(
        tmp_path,
        ("ACCELERATOR=", f"ACCELERATOR={accelerator}"),
        ("SUBNETWORK=", "SUBNETWORK=regions/us-central1/subnetworks/default"),
        more,
    )
    assert code == 0
    assert build[:3] == ["gcloud", "builds", "submit"]
    image = f"us-central1-docker.pkg.dev/acme/images/bert-embed-{device}:"
    [settings] = [word for word in build if word.startswith("_IMAGE=")]
    assert settings.startswith(f"_IMAGE={image}")
    assert f",_DEVICE={device}," in settings
    assert settings.endswith(",_TARGET=worker")
    assert submit[1:3] == ["-m", "bert_embed"]
    assert main([*submit[3:], "--dry_run"]) == 0
    words = " ".join(submit)
    assert image in words
    assert "regions/us-central1/subnetworks/default" in words
    assert "--no_use_public_ips" in words
    assert ("--machine_type e2-standard-4" in words) == (not accelerator)


def test_the_script_has_every_accelerator(tmp_path):
    for name, accelerator in ACCELERATORS.items():
        code, [build, submit], _ = printed(tmp_path, ("ACCELERATOR=", f"ACCELERATOR={name}"))
        assert code == 0
        [settings] = [word for word in build if word.startswith("_IMAGE=")]
        assert f",_DEVICE={accelerator.device}," in settings
        assert submit[submit.index("--accelerator") + 1] == name
    _, _, error = printed(tmp_path, ("ACCELERATOR=", "ACCELERATOR=t5"))
    assert error.endswith(f"is none of {', '.join(ACCELERATORS)}\n")


def test_images_can_be_built_here_and_templates_made(tmp_path):
    code, [build, push, made], _ = printed(
        tmp_path, ("BUILD=cloud", "BUILD=docker"), ("TAG=", "TAG=7"), do="template"
    )
    image = f"us-central1-docker.pkg.dev/acme/images/bert-embed-cpu-template:py3{MINOR}-7"
    assert code == 0
    assert build[:4] == ["env", "DOCKER_BUILDKIT=1", "docker", "build"]
    assert build[build.index("--target") + 1] == "template"
    assert push == ["docker", "push", image]
    assert made[:5] == [
        "gcloud",
        "dataflow",
        "flex-template",
        "build",
        f"gs://acme-texts/templates/bert-embed-cpu-py3{MINOR}-7.json",
    ]


_PYTHON = """#!/bin/sh
case "$1" in
  -m) [ "$2" != venv ] || { mkdir -p "$3/bin"; cp "${0%/*}/python" "${0%/*}/uv" "$3/bin"; } ;;
  -c) echo "${0%/*}" ;;
esac
"""
_UV = f"""#!/bin/sh
[ "$1" != export ] || exec "{ROOT}/.venv/bin/uv" "$@"
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
def test_jax_is_in_images_of_accelerators_unless_cuda_is_for_tensorflow(
    tmp_path, words, wanted, without
):
    for name, text in (("python", _PYTHON), ("uv", _UV)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    places = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)}
    log = tmp_path / "log"
    env = {**os.environ, **places, "LOG": str(log)}
    subprocess.run([DOCKER / "install.sh", *words], env=env, check=True)
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
    gcloud = tmp_path / "bin" / "gcloud"
    gcloud.parent.mkdir()
    gcloud.write_text(
        f'#!/bin/sh\nif [ "$1" = artifacts ]; then {answer}; else echo "$*" >> {log}; fi\n'
    )
    gcloud.chmod(0o755)
    path = f"{gcloud.parent}:{os.environ['PATH']}"
    found, _, errors = printed(tmp_path, ("TAG=", "TAG=7"), do="template", more=(), PATH=path)
    assert found == code
    assert ("gcloud cannot say whether" in errors) == (code == 2)
    ran = log.read_text().splitlines() if log.exists() else []
    assert len(ran) == commands


@pytest.mark.parametrize("place", ["gs://acme-texts/texts/*.jsonl", "acme:texts.news"])
def test_what_embed_refuses_builds_no_image(tmp_path, place):
    log = tmp_path / "log"
    for name, text in (
        ("gcloud", f'echo "gcloud $*" >> {log}'),
        ("python", "[ $1 != -c ] || exec echo 11; exit 3"),
    ):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    found, _, _ = printed(
        tmp_path,
        ("INPUT=gs://acme-texts/texts/*.jsonl", f"INPUT={place}"),
        more=(),
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        PYTHON=str(tmp_path / "python"),
    )
    assert found == 3
    assert not log.exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--limit 5", "gcloud cannot say whether"),
        ("--limit 5 --text_column body", "error: --text_column body is no column of --input test-"),
        ("--text_colum body", "error: unknown flag --text_colum; did you mean --text_column?"),
    ],
)
def test_of_a_table_flags_are_checked_before_an_image_is_built(
    gcs, bigquery, bucket, minilm, tmp_path, flags, message
):
    (tmp_path / "gcloud").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "gcloud").chmod(0o755)
    table = "test-project.early.t"
    bigquery.client.delete_table(table, not_found_ok=True)
    bigquery.fill(table, [("id", "STRING", "NULLABLE"), ("text", "STRING", "NULLABLE")], [])
    code, _, errors = printed(
        tmp_path,
        ("INPUT=gs://acme-texts/texts/*.jsonl", "INPUT=test-project:early.t"),
        ("FLAGS=", f"FLAGS={flags}"),
        more=(),
        PATH=f"{tmp_path}:{os.environ['PATH']}",
        PYTHON=write_python(tmp_path),
    )
    assert code == 2
    assert errors.count("\n") == 1
    assert message in errors


def test_a_changed_tree_is_another_tag(tmp_path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "init", "-q", clone], check=True)
    (clone / "deploy" / "dataflow").mkdir(parents=True)
    script = clone / "deploy" / "dataflow" / "dataflow.sh"
    shutil.copy(DATAFLOW / "dataflow.sh", script)
    text = EXAMPLE.replace("my-project", "acme").replace("my-bucket", "acme-texts")
    (tmp_path / "variables.env").write_text(text)

    def tag():
        command = [script, "submit", tmp_path / "variables.env", "--print"]
        made = ran(command, check=True, PYTHON=sys.executable)
        return re.search(r"bert-embed-cpu:([\w-]+)", made.stdout)[1]

    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "add", "."], cwd=clone, check=True)
    subprocess.run(["git", *identity, "commit", "-qm", "a"], cwd=clone, check=True)
    committed = tag()
    (clone / "new.py").write_text("one")
    added = tag()
    (clone / "new.py").write_text("two")
    changed = tag()
    assert len({committed, added, changed}) == 3
    assert changed.startswith(committed)
    assert tag() == changed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("PROJECT=acme", "PROJECT="), "PROJECT is empty"),
        (("PROJECT=acme", "PROJECT=my-project"), "PROJECT has the example's value my-project"),
        (("PROJECT=acme", "PROJECT=other"), "REPOSITORY is in the project acme, PROJECT is other"),
        (("BUCKET=gs://acme-texts", "BUCKET=gs://my-bucket"), "BUCKET has the example's value"),
        (("BUCKET=gs://acme-texts", "BUCKET=acme-texts"), "acme-texts does not begin with gs:"),
        (("MAX_WORKERS=20", "MAX_WORKERS=twenty"), "MAX_WORKERS twenty is no number above 0"),
        (("MAX_WORKERS=20", "MAX_WORKERS=0"), "MAX_WORKERS 0 is no number above 0"),
        (("BUILD=cloud", "BUILD=clod"), "BUILD clod is none of cloud, docker"),
        (("TAG=", "PROJET=x"), "PROJET is none of the variables"),
        (("ACCELERATOR=", "ACCELERATOR=t5"), "ACCELERATOR t5 is none of t4, l4"),
        (("TAG=", "TAG=py310-7"), "TAG py310-7 is of another Python than"),
        (("FLAGS=", 'FLAGS="--limit 10"'), "FLAGS has quotes, leave them out"),
    ],
)
def test_a_wrong_file_of_variables_is_refused(tmp_path, change, message):
    code, commands, errors = printed(tmp_path, change)
    assert (code, commands) == (2, [])
    assert message in errors


def test_blanks_and_ends_of_lines_belong_to_no_value(tmp_path):
    """A file that was edited on Windows, or by hand, whose last line has no end."""
    wanted = printed(tmp_path, ("MAX_WORKERS=20", "MAX_WORKERS=7"), do="launch")
    lines = EXAMPLE.replace("my-project", "acme").replace("my-bucket", "acme-texts").splitlines()
    kept = [line.replace("=", " =\t", 1) for line in lines if "MAX_WORKERS" not in line]
    (tmp_path / "variables.env").write_bytes(" \r\n ".join([*kept, "MAX_WORKERS=7"]).encode())
    command = [DATAFLOW / "dataflow.sh", "launch", tmp_path / "variables.env", "--print"]
    made = ran(command)
    assert (made.returncode, made.stderr) == (0, "")
    assert [shlex.split(line) for line in made.stdout.splitlines()] == wanted[1]
    assert "7" in wanted[1][0]


def test_all_that_is_left_of_the_example_is_named_at_once(tmp_path):
    (tmp_path / "variables.env").write_text(EXAMPLE)
    for what, problems in (("submit", ["PROJECT", "BUCKET", "OUTPUT"]), ("lunch", ["not lunch"])):
        command = [DATAFLOW / "dataflow.sh", what, tmp_path / "variables.env", "--print"]
        made = ran(command)
        assert (made.returncode, made.stdout) == (2, "")
        assert all(problem in made.stderr for problem in problems), made.stderr


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
