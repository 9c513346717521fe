"""The Flex Template: its parameters are the flags, and its program takes them."""

import datetime
import json
import re
import runpy
import sys

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from bert_embed.pipeline.options.command_line import parse_embed, parser_of
from bert_embed.pipeline.options.embed import FLAGS, Options
from bert_embed.pipeline.run.prepare import with_dates
from deploy.dataflow.metadata import metadata_text
from deploy.dataflow.template import template_options
from tests.support.command import ROOT
from tests.support.daily import DATAFLOW, printed

DEFAULTS_PARSED = parse_embed(["--input=a", "--output=b"])
METADATA = json.loads((DATAFLOW / "metadata.json").read_text("utf-8"))
MINOR = sys.version_info.minor


@pytest.fixture(scope="module")
def bucket(gcs_session):
    """What the template embeds."""
    made = gcs_session.client.create_bucket("acme-template")
    made.blob("texts/a.jsonl").upload_from_string('{"id": "a", "text": "the bank"}\n' * 9)


def launched(tmp_path, flags):
    """The words of the command that `launch` prints, and the template's parameters in it."""
    changes = ("TAG=", "TAG=7"), ("FLAGS=", f"FLAGS={flags}")
    code, [words], errors = printed(tmp_path, *changes, do="launch")
    assert (code, errors) == (0, "")
    assert words[:4] == ["gcloud", "dataflow", "flex-template", "run"]
    _, separator, given = words[words.index("--parameters") + 1].split("^", 2)
    return words, dict(each.split("=", 1) for each in given.split(separator))


def test_a_template_is_launched_with_its_own_image_and_parameters(tmp_path):
    """What gcloud takes itself is given to it."""
    for_gcloud = {
        "worker-zone": "us-central1-a",
        "worker-machine-type": "n2-standard-4",
        "network": "net",
        "additional-user-labels": "team=search",
        "staging-location": "gs://acme-texts/s",
        "dataflow-kms-key": "k",
        "num-workers": "2",
        "additional-experiments": "a",
    }
    flags = (
        "--precision int8 --max_rejected=1% --normalize --report true --keep_text=true "
        "--long_text window --limit 10 --worker_zone us-central1-a --machine_type=n2-standard-4 "
        "--network net --labels=team=search --staging_location gs://acme-texts/s "
        "--dataflow_kms_key k --num_workers 2 --job_name nightly --experiments=a"
    )
    words, parameters = launched(tmp_path, flags)
    assert words[4] == "nightly"
    assert {name: words[words.index(f"--{name}") + 1] for name in for_gcloud} == for_gcloud
    image = f"us-central1-docker.pkg.dev/acme/images/bert-embed-cpu-template:py3{MINOR}-7"
    template = words[words.index("--template-file-gcs-location") + 1]
    assert template == f"gs://acme-texts/templates/bert-embed-cpu-py3{MINOR}-7.json"
    assert parameters == {
        "sdk_container_image": image,
        "input": "gs://acme-texts/texts/*.jsonl",
        "output": "gs://acme-texts/vectors",
        "precision": "int8",
        "max_rejected": "1%",
        "normalize": "true",
        "report": "true",
        "long_text": "window",
        "keep_text": "true",
        "limit": "10",
    }
    for each in METADATA["parameters"]:
        for pattern in each.get("regexes", []) if each["name"] in parameters else []:
            assert re.search(pattern, parameters[each["name"]])


def test_jobs_of_two_outputs_have_two_names(tmp_path):
    first, parameters = launched(tmp_path, "--text_column=;|~ --prompt a;b")
    assert (parameters["text_column"], parameters["prompt"]) == (";|~", "a;b")
    _, [second], _ = printed(tmp_path, ("OUTPUT=", "OUTPUT=gs://acme-texts/b"), do="launch")
    assert re.fullmatch(r"bert-embed-[0-9a-f]{8}-20\d{6}", first[4])
    assert first[4] != second[4]


def test_a_launch_again_is_of_the_same_day(tmp_path):
    words, parameters = launched(tmp_path, "--skip_existing gs://b/{yesterday}")
    assert words[4].endswith(parameters["today"].replace("-", ""))
    given = [f"--{name}={value}" for name, value in parameters.items()]
    now = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    before = datetime.date.fromisoformat(parameters["today"]) - datetime.timedelta(days=1)
    assert with_dates(template_options(given), now).skip_existing == (f"gs://b/{before}",)


def test_a_template_is_not_launched_with_flags_that_it_would_drop(tmp_path):
    for flags, message in (
        ("--runner x", "--runner is no parameter of the template"),
        ("--precision", "--precision has no value"),
        ("precision", "precision is no flag"),
    ):
        code, commands, errors = printed(tmp_path, ("FLAGS=", f"FLAGS={flags}"), do="launch")
        assert (code, commands) == (2, [])
        assert message in errors


def test_parameters_of_the_template_are_flags():
    assert metadata_text() == (DATAFLOW / "metadata.json").read_text("utf-8"), (
        "run python -m deploy.dataflow.metadata"
    )
    page = parser_of(Options, "embed").format_help()
    found = re.findall(r"^  --(\w+)(?: \{([\w,-]+)\})?", page, re.MULTILINE)
    shown = {name: values.split(",") for name, values in found}
    beams = {"config", "catch_up_days", *PipelineOptions([]).get_all_options()}
    for each in METADATA["parameters"]:
        assert each["name"] in shown or each["name"] in beams
        assert {"label", "helpText"} <= each.keys()
        offered = [option["value"] for option in each.get("enumOptions", [])]
        assert not offered or offered == shown[each["name"]]
    required = {each["name"] for each in METADATA["parameters"] if not each.get("isOptional")}
    assert required == {"output", "sdk_container_image"}  # a query stands in for the input
    assert {each["name"] for each in METADATA["parameters"]} > FLAGS.keys() - {"runner", "dry_run"}
    switches = [each for each in METADATA["parameters"] if each.get("paramType") == "BOOLEAN"]
    assert {each["name"] for each in switches} == {
        name for name, flag in FLAGS.items() if flag.is_switch and name != "dry_run"
    }


def test_the_page_of_the_template_launches_it_with_parameters_that_it_has():
    page = (ROOT / "docs" / "cloud.md").read_text("utf-8")
    [given] = re.findall(r"--parameters '(.*)'", page)
    launched = dict(each.split("=", 1) for each in given.split(","))
    assert {"input", "output", "sdk_container_image"} <= launched.keys()
    known = {each["name"]: each for each in METADATA["parameters"]}
    for name, value in launched.items():
        assert all(re.search(pattern, value) for pattern in known[name].get("regexes", []))


def test_the_templates_program_takes_every_parameter(gcs, bucket, minilm, capsys, monkeypatch):
    """With its default, or left empty, as a form sends those that nobody filled in."""
    words = [
        "--runner=DataflowRunner",  # as the launcher
        "--project=acme",
        "--region=us-central1",
        "--temp_location=gs://acme-template/tmp",
        "--job_name=a",
        "--dry_run",
    ]
    given = {
        "input": "gs://acme-template/texts/a.jsonl,gs://acme-template/texts/*.jsonl",
        "output": "gs://acme-template/vectors/{date:%Y}",
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
    assert "1 file, " in plan.out
    now = datetime.datetime.now(datetime.UTC).year
    years = (now - 1, now)  # one may have ended meanwhile
    assert any(f"to gs://acme-template/vectors/{year}, " in plan.out for year in years)


def test_several_places_of_a_parameter_are_separated_by_commas():
    words = [
        "--input=gs://b/x,gs://b/y,z.txt,my-project:set.table_{yesterday:%Y%m%d}",
        "--skip_existing=my-project.d.t,my-project.d.u,gs://b/c",
        *("--output=gs://b/out", "--model=", "--layers=-1,-2", "--layer_combine=sum"),
        "--num_workers=2",
    ]
    options = template_options(words)
    table = "my-project:set.table_{yesterday:%Y%m%d}"
    assert options.input == ("gs://b/x", "gs://b/y,z.txt", table)
    assert options.skip_existing == ("my-project.d.t", "my-project.d.u", "gs://b/c")
    assert (options.model, options.layers) == ("minilm", (-1, -2))
    assert options.beam_args == ("--num_workers=2",)


def test_a_wrong_parameter_of_the_template_is_named():
    given = ["--input=gs://b/x", "--output=gs://b/o"]
    for word, message in (
        ("input", "input is not name=value"),
        ("--poolin=cls", "unknown flag --poolin; did you mean --pooling?"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            template_options([*given, word])


def test_parameters_that_cannot_work_are_refused_by_the_template():
    for name, right, wrong in (
        ("input", ["gs://b/a*.txt", "my-project:set.table"], ["texts/*.txt", ""]),
        ("output", ["gs://b/out"], ["build/out", "gs://"]),
        ("max_rejected", ["10", "0.5%"], ["many", "-1"]),
    ):
        [patterns] = [each["regexes"] for each in METADATA["parameters"] if each["name"] == name]
        for value in (*right, *wrong):
            matches = all(re.search(pattern, value) for pattern in patterns)
            assert matches == (value in right), value
