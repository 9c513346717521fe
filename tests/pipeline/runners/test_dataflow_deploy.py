"""deploy/dataflow and deploy/docker: versions agree, what is printed is a job, docs are true."""

import json
import re
import shlex
import shutil
import subprocess
import tomllib

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from pipeline.accelerators import ACCELERATORS
from pipeline.cli import main
from pipeline.parser import command_parser
from tests.support.command import ROOT

DOCKER, DATAFLOW = ROOT / "deploy" / "docker", ROOT / "deploy" / "dataflow"
DOCKERFILE = (DOCKER / "Dockerfile").read_text("utf-8")
EXAMPLE = (DATAFLOW / "variables.env.example").read_text("utf-8")
METADATA = json.loads((DATAFLOW / "metadata.json").read_text("utf-8"))
PAGE = (ROOT / "docs" / "dataflow.md").read_text("utf-8")
COMMANDS = re.findall(r"^python -m pipeline (embed (?:[^\\\n]|\\\n)*)", PAGE, re.MULTILINE)


def pins(path):
    found = re.findall(r"^([\w.-]+)(?:\[\w+\])?==([^\s;]+)", path.read_text("utf-8"), re.MULTILINE)
    return dict(found)


def ranges(*packages):
    """What pyproject.toml asks of packages."""
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    found = {each.name: each for each in map(Requirement, asked)}
    return [found[package].specifier for package in packages]


def minor(version):
    return version.split(".")[:2]


def test_beam_and_python_are_the_same_everywhere():
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)", DOCKERFILE, re.MULTILINE))
    beam = pins(ROOT / "requirements.txt")["apache-beam"]
    assert arguments["BEAM"] == beam
    assert f">={'.'.join(minor(beam))}" in map(str, ranges("apache-beam")[0])
    python = arguments["PYTHON"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert project["tool"]["mypy"]["python_version"] == python
    assert SpecifierSet(project["project"]["requires-python"]).contains(f"{python}.99")
    assert f"python{python.replace('.', '')}-template-launcher-base:" in DOCKERFILE
    assert "beam_python${PYTHON}_sdk:${BEAM}" in DOCKERFILE
    assert "FROM python:${PYTHON}-slim" in DOCKERFILE


def test_tensorflow_and_its_text_are_of_one_release_in_every_image():
    everywhere = pins(ROOT / "requirements.txt")
    assert minor(everywhere["tensorflow"]) == minor(everywhere["tensorflow-text"])
    gpu = (DOCKER / "requirements-gpu.txt").read_text("utf-8")
    assert "-r ../../requirements.txt" in gpu
    assert "tensorflow==" not in gpu
    device, text = pins(DOCKER / "requirements-tpu.txt"), pins(DOCKER / "requirements-tpu-text.txt")
    release = minor(device["tensorflow-tpu"])
    assert release == minor(text["tensorflow-text"]) == minor(text["tf_keras"])
    assert all(each.contains(".".join(release)) for each in ranges("tensorflow", "tensorflow-text"))
    replaced = re.search(r"'\^\((.*)\)=='", (DOCKER / "install.sh").read_text("utf-8"))[1]
    assert set(replaced.split("|")) == {"tensorflow", *text}


def test_an_image_has_every_package_and_file_that_it_copies():
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE)
    sources = {source for line in copied for source in line.split()}
    assert {"bert", "transforms", "pipeline", "setup.py", "LICENSE", "requirements.txt"} <= sources
    allowed = {
        line[1:]
        for line in (DOCKER / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
        if line.startswith("!")
    }
    for source in sources:
        assert list(ROOT.glob(source)), source
        assert any(source == path or source.startswith(f"{path}/") for path in allowed), source


def printed(folder, *replacements, do="submit"):
    """What `make dataflow PRINT=1` does with a file of variables: exit code, commands, errors."""
    text = EXAMPLE
    for old, new in replacements:
        assert f"\n{old}" in text
        text = text.replace(f"\n{old}", f"\n{new}")
    (folder / "variables.env").write_text(text)
    made = subprocess.run(
        [str(DATAFLOW / "dataflow.sh"), do, str(folder / "variables.env"), "--print"],
        capture_output=True,
        text=True,
        check=False,
    )
    return made.returncode, [shlex.split(line) for line in made.stdout.splitlines()], made.stderr


@pytest.fixture(scope="module")
def bucket(gcs_session):
    """What the examples embed."""
    made = gcs_session.client.create_bucket("my-bucket")
    made.blob("texts/a.jsonl").upload_from_string('{"id": "a", "text": "the bank"}\n' * 9)


@pytest.mark.parametrize(
    ("accelerator", "device", "machine"),
    [
        ("", "cpu", "n2-standard-8"),
        ("t4", "gpu", "n1-standard-8"),
        ("l4", "gpu", "g2-standard-8"),
        ("v5e", "tpu", "ct5lp-hightpu-1t"),
    ],
)
def test_what_make_dataflow_runs_is_a_job(
    gcs, bucket, tmp_path, capsys, accelerator, device, machine
):
    more = (
        ("FLAGS=", "FLAGS=--machine_type e2-standard-4") if not accelerator else ("TAG=", "TAG=7")
    )
    machine = "e2-standard-4" if not accelerator else machine
    code, [build, submit], _ = printed(
        tmp_path,
        ("ACCELERATOR=", f"ACCELERATOR={accelerator}"),
        ("SUBNETWORK=", "SUBNETWORK=regions/us-central1/subnetworks/default"),
        more,
    )
    assert code == 0
    assert build[:3] == ["gcloud", "builds", "submit"]
    image = f"us-central1-docker.pkg.dev/my-project/images/bert-embed-{device}:"
    [settings] = [word for word in build if word.startswith("_IMAGE=")]
    assert settings.startswith(f"_IMAGE={image}")
    assert f",_DEVICE={device}," in settings
    assert settings.endswith(",_TARGET=worker")
    assert submit[1:3] == ["-m", "pipeline"]
    assert main([*submit[3:], "--dry_run"]) == 0
    plan = capsys.readouterr().out
    assert f"{machine}, 1 to 20" in plan
    assert image in plan
    assert "subnetworks/default, private addresses" in plan


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
    image = "us-central1-docker.pkg.dev/my-project/images/bert-embed-cpu-template:7"
    assert code == 0
    assert build[:2] == ["docker", "build"]
    assert build[build.index("--target") + 1] == "template"
    assert push == ["docker", "push", image]
    assert made[:5] == [
        "gcloud",
        "dataflow",
        "flex-template",
        "build",
        "gs://my-bucket/templates/bert-embed-cpu.json",
    ]
    flags = ("FLAGS=", "FLAGS=--precision int8 --max_rejected=1%")
    code, [launch], _ = printed(tmp_path, ("TAG=", "TAG=7"), flags, do="launch")
    given = launch[launch.index("--parameters") + 1].removeprefix("^;^").split(";")
    parameters = dict(each.split("=", 1) for each in given)
    assert parameters["sdk_container_image"] == image
    assert (parameters["precision"], parameters["max_rejected"]) == ("int8", "1%")
    for each in METADATA["parameters"]:
        for pattern in each.get("regexes", []) if each["name"] in parameters else []:
            assert re.search(pattern, parameters[each["name"]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("PROJECT=my-project", "PROJECT="), "PROJECT is empty"),
        (("TAG=", "PROJET=x"), "PROJET is none of the variables"),
        (("ACCELERATOR=", "ACCELERATOR=t5"), "ACCELERATOR t5 is none of t4, l4"),
        (("FLAGS=", 'FLAGS="--limit 10"'), "FLAGS has quotes, leave them out"),
    ],
)
def test_a_wrong_file_of_variables_is_refused(tmp_path, change, message):
    code, commands, errors = printed(tmp_path, change)
    assert (code, commands) == (2, [])
    assert message in errors


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--limit 10", "--limit is no parameter of the template"),
        ("--precision", "--precision has no value"),
        ("precision", "precision is no flag"),
    ],
)
def test_a_template_is_not_launched_with_flags_that_it_would_drop(tmp_path, flags, message):
    code, commands, errors = printed(tmp_path, ("FLAGS=", f"FLAGS={flags}"), do="launch")
    assert (code, commands) == (2, [])
    assert message in errors


def flags_shown():
    """Flags that `embed --help` lists, each with the values that it offers."""
    page = command_parser("embed").format_help()
    found = re.findall(r"^  --(\w+)(?: \{([\w,-]+)\})?", page, re.MULTILINE)
    return {name: values.split(",") for name, values in found}


def test_parameters_of_the_template_are_flags():
    shown = flags_shown()
    beams = set(PipelineOptions([]).get_all_options())
    required = set()
    for each in METADATA["parameters"]:
        name = each["name"]
        assert name in shown or name in beams
        assert {"label", "helpText"} <= each.keys()
        if not each.get("isOptional"):
            required.add(name)
        offered = [option["value"] for option in each.get("enumOptions", [])]
        assert not offered or offered == shown[name]
    assert required == {"input", "output", "sdk_container_image"}


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("input", ["gs://b/a*.txt", "my-project:set.table"], ["texts/*.txt", ""]),
        ("output", ["gs://b/out"], ["build/out", "gs://"]),
        ("max_rejected", ["10", "0.5%"], ["many", "-1"]),
    ],
)
def test_parameters_that_cannot_work_are_refused_by_the_template(name, right, wrong):
    [patterns] = [each["regexes"] for each in METADATA["parameters"] if each["name"] == name]
    for value in right:
        assert all(re.search(pattern, value) for pattern in patterns), value
    for value in wrong:
        assert not all(re.search(pattern, value) for pattern in patterns), value


@pytest.mark.skipif(shutil.which("gcloud") is None, reason="gcloud is not installed")
def test_gcloud_takes_the_template(tmp_path):
    command = ["gcloud", "dataflow", "flex-template", "build", "gs://my-bucket/template.json"]
    command += ["--image=us-docker.pkg.dev/p/r/bert-embed:1", "--sdk-language=PYTHON"]
    command += [f"--metadata-file={DATAFLOW / 'metadata.json'}", "--print-only", "--project=p"]
    made = subprocess.run(
        command,
        env={"PATH": "/usr/bin:/bin", "CLOUDSDK_CONFIG": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    template = json.loads(made.stdout[made.stdout.index("{") :])
    names = [each["name"] for each in template["metadata"]["parameters"]]
    assert names == [each["name"] for each in METADATA["parameters"]]


@pytest.mark.parametrize("command", COMMANDS, ids=["cpu", "l4", "t4", "v5e"])
def test_the_page_of_commands_is_true(gcs, bucket, minilm, command, capsys):
    assert main([*shlex.split(command.replace("\\\n", " ")), "--dry_run"]) == 0
    plan = capsys.readouterr().out
    device = re.search(r"bert-embed-(\w+):1", command)[1]
    assert f"--device {device.replace('cpu', 'auto')}" in plan


def test_the_page_has_a_command_for_every_kind():
    assert len(COMMANDS) == 4
    assert set(re.findall(r"--accelerator (\w+)", " ".join(COMMANDS))) == {"t4", "l4", "v5e"}
