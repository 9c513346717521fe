"""deploy/dataflow and deploy/docker: versions agree, what is printed is a job, docs are true."""

import datetime
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from pipeline.accelerators import ACCELERATORS
from pipeline.cli import main
from pipeline.commands.flex_template import metadata_text, template_arguments
from pipeline.options import FLAGS
from pipeline.parser import command_parser, parse_embed
from tests.support.command import ROOT

DOCKER, DATAFLOW = ROOT / "deploy" / "docker", ROOT / "deploy" / "dataflow"
DOCKERFILE = (DOCKER / "Dockerfile").read_text("utf-8")
EXAMPLE = (DATAFLOW / "variables.env.example").read_text("utf-8")
METADATA = json.loads((DATAFLOW / "metadata.json").read_text("utf-8"))
DEFAULTS_PARSED = parse_embed(["--input=a", "--output=b"])
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


def printed(folder, *replacements, do="submit", more=("--print",), **env):
    """What `make dataflow PRINT=1` does with a file of variables: exit code, commands, errors."""
    text = EXAMPLE.replace("my-project", "acme").replace("my-bucket", "acme-texts")
    for old, new in replacements:
        assert f"\n{old}" in text
        text = text.replace(f"\n{old}", f"\n{new}")
    (folder / "variables.env").write_text(text)
    made = subprocess.run(
        [str(DATAFLOW / "dataflow.sh"), do, str(folder / "variables.env"), *more],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | env,
    )
    return made.returncode, [shlex.split(line) for line in made.stdout.splitlines()], made.stderr


@pytest.fixture(scope="module")
def bucket(gcs_session):
    """What the examples embed."""
    for name in ("my-bucket", "acme-texts"):
        made = gcs_session.client.create_bucket(name)
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
    image = f"us-central1-docker.pkg.dev/acme/images/bert-embed-{device}:"
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
    image = "us-central1-docker.pkg.dev/acme/images/bert-embed-cpu-template:7"
    assert code == 0
    assert build[:4] == ["env", "DOCKER_BUILDKIT=1", "docker", "build"]
    assert build[build.index("--target") + 1] == "template"
    assert push == ["docker", "push", image]
    assert made[:5] == [
        "gcloud",
        "dataflow",
        "flex-template",
        "build",
        "gs://acme-texts/templates/bert-embed-cpu-7.json",
    ]


def launched(tmp_path, flags):
    """The words of the command that `launch` prints, and the template's parameters in it."""
    changes = ("TAG=", "TAG=7"), ("FLAGS=", f"FLAGS={flags}")
    code, [words], errors = printed(tmp_path, *changes, do="launch")
    assert (code, errors) == (0, "")
    assert words[:4] == ["gcloud", "dataflow", "flex-template", "run"]
    _, separator, given = words[words.index("--parameters") + 1].split("^", 2)
    return words, dict(each.split("=", 1) for each in given.split(separator))


def test_a_template_is_launched_with_its_own_image_and_parameters(tmp_path):
    flags = "--precision int8 --max_rejected=1% --normalize --no_dense --keep_text=true --limit 10"
    words, parameters = launched(tmp_path, flags)
    image = "us-central1-docker.pkg.dev/acme/images/bert-embed-cpu-template:7"
    template = words[words.index("--template-file-gcs-location") + 1]
    assert template == "gs://acme-texts/templates/bert-embed-cpu-7.json"
    assert parameters == {
        "sdk_container_image": image,
        "input": "gs://acme-texts/texts/*.jsonl",
        "output": "gs://acme-texts/vectors",
        "precision": "int8",
        "max_rejected": "1%",
        "normalize": "true",
        "dense": "false",
        "keep_text": "true",
        "limit": "10",
    }
    for each in METADATA["parameters"]:
        for pattern in each.get("regexes", []) if each["name"] in parameters else []:
            assert re.search(pattern, parameters[each["name"]])


def test_what_gcloud_takes_itself_is_given_to_it(tmp_path):
    flags = (
        "--worker_zone us-central1-a --machine_type=n2-standard-4 --network net "
        "--labels=team=search --staging_location gs://acme-texts/s --dataflow_kms_key k "
        "--num_workers 2 --job_name nightly --experiments=a"
    )
    words, parameters = launched(tmp_path, flags)
    assert words[4] == "nightly"
    for name, value in (
        ("worker-zone", "us-central1-a"),
        ("worker-machine-type", "n2-standard-4"),
        ("network", "net"),
        ("additional-user-labels", "team=search"),
        ("staging-location", "gs://acme-texts/s"),
        ("dataflow-kms-key", "k"),
        ("num-workers", "2"),
        ("additional-experiments", "a"),
    ):
        assert words[words.index(f"--{name}") + 1] == value
    assert parameters.keys() == {"sdk_container_image", "input", "output"}


def test_jobs_of_two_outputs_have_two_names(tmp_path):
    first, parameters = launched(tmp_path, "--pair_separator=;|~ --prompt a;b")
    assert (parameters["pair_separator"], parameters["prompt"]) == (";|~", "a;b")
    _, [second], _ = printed(tmp_path, ("OUTPUT=", "OUTPUT=gs://acme-texts/b"), do="launch")
    assert re.fullmatch(r"bert-embed-[0-9a-f]{8}-20\d{6}", first[4])
    assert first[4] != second[4]


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
        made = subprocess.run(command, capture_output=True, text=True, check=True)
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
        ("--runner x", "--runner is no parameter of the template"),
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
    assert metadata_text() == (DATAFLOW / "metadata.json").read_text("utf-8"), (
        "run python -m pipeline.commands.flex_template"
    )
    shown = flags_shown()
    beams = {"config", *PipelineOptions([]).get_all_options()}
    required = set()
    for each in METADATA["parameters"]:
        name = each["name"]
        assert name in shown or name in beams
        assert {"label", "helpText"} <= each.keys()
        if not each.get("isOptional"):
            required.add(name)
        offered = [option["value"] for option in each.get("enumOptions", [])]
        assert not offered or offered == shown[name]
    assert required == {"output", "sdk_container_image"}  # a query stands in for the input
    assert {each["name"] for each in METADATA["parameters"]} > FLAGS.keys() - {"runner", "dry_run"}


def test_the_templates_program_takes_every_parameter(gcs, bucket, minilm, capsys, monkeypatch):
    """With its default, or left empty, as a form sends those that nobody filled in."""
    words = [
        "--runner=DataflowRunner",  # as the launcher
        "--project=acme",
        "--region=us-central1",
        "--temp_location=gs://acme-texts/tmp",
        "--job_name=a",
        "--dry_run",
    ]
    given = {
        "input": "gs://acme-texts/texts/a.jsonl,gs://acme-texts/texts/*.jsonl",
        "output": "gs://acme-texts/vectors/{date:%Y}",
        "sdk_container_image": "us-docker.pkg.dev/p/r/i:1",
    }
    for each in METADATA["parameters"]:
        name = each["name"]
        value = given.get(name, each.get("defaultValue", ""))
        if name in FLAGS and name not in given and value:
            assert parse_embed(["--input=a", "--output=b", f"--{name}={value}"]) == DEFAULTS_PARSED
        words.append(f"--{name}={value}")
    monkeypatch.setattr(sys, "argv", ["main.py", *words])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(DATAFLOW / "template.py"), run_name="__main__")
    plan = capsys.readouterr()
    assert (ended.value.code, plan.err) == (0, "")
    assert "1 files" in plan.out
    assert f"to gs://acme-texts/vectors/{datetime.datetime.now(datetime.UTC).year}, " in plan.out


def test_every_switch_of_the_template_takes_a_value():
    switches = [each for each in METADATA["parameters"] if each.get("paramType") == "BOOLEAN"]
    assert {each["name"] for each in switches} == {
        name for name, flag in FLAGS.items() if flag.switch and name != "dry_run"
    }
    for each in switches:
        for value in ("true", "false"):
            words = template_arguments([f"--{each['name']}={value}"])
            options = parse_embed(["--input=a", "--output=b", *words])
            assert getattr(options, each["name"]) is (value == "true")


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
