"""The Flex Template: its parameters are the flags, and its program takes them."""

import datetime
import json
import re
import runpy
import sys

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from bert_embed.pipeline.cli import exit_code
from bert_embed.pipeline.options.command_line import parse_embed
from bert_embed.pipeline.options.embed import FLAGS
from bert_embed.pipeline.run.prepare import with_dates
from deploy.dataflow.metadata import metadata_text
from deploy.dataflow.template import oldest_due, run_template, template_options
from tests.integration.deploy.test_terraform import SIMPLE, SOURCES
from tests.support.command import ROOT, record
from tests.support.daily import DATAFLOW, printed
from tests.support.servers.dataflow import dataflow_server, run_graph

DEFAULTS_PARSED = parse_embed(["--input=a", "--output=b"])
METADATA = (DATAFLOW / "metadata.json").read_text("utf-8")
KNOWN = {each["name"]: each for each in json.loads(METADATA)["parameters"]}
MINOR = sys.version_info.minor


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
    ours = {"precision": "int8", "max_rejected": "1%", "report": "true", "keep_text": "true"}
    ours |= {"long_text": "window", "limit": "10"}
    for_gcloud = {
        "worker-zone": ("worker_zone", "us-central1-a"),
        "worker-machine-type": ("machine_type", "n2-standard-4"),
        "network": ("network", "net"),
        "additional-user-labels": ("labels", "team=search"),
        "staging-location": ("staging_location", "gs://acme-texts/s"),
        "dataflow-kms-key": ("dataflow_kms_key", "k"),
        "num-workers": ("num_workers", "2"),
        "additional-experiments": ("experiments", "a"),
    }
    given = [f"--{name} {value}" for name, value in [*ours.items(), *for_gcloud.values()]]
    flags = " ".join(given).replace("report ", "report=") + " --normalize --job_name nightly"
    words, parameters = launched(tmp_path, flags)
    assert words[4] == "nightly"
    for name, (_, value) in for_gcloud.items():
        assert words[words.index(f"--{name}") + 1] == value
    image = f"us-central1-docker.pkg.dev/acme/images/bert-embed-cpu-template:py3{MINOR}-7"
    template = words[words.index("--template-file-gcs-location") + 1]
    assert template == f"gs://acme-texts/templates/bert-embed-cpu-py3{MINOR}-7.json"
    places = {"input": "gs://acme-texts/texts/*.jsonl", "output": "gs://acme-texts/vectors"}
    assert parameters == ours | places | {"sdk_container_image": image, "normalize": "true"}
    check_patterns(parameters)


def check_patterns(parameters):
    """Each is one that the template has, with a value that it takes."""
    for name, value in parameters.items():
        assert all(re.search(pattern, value) for pattern in KNOWN[name].get("regexes", [])), name


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
    assert metadata_text() == METADATA, "run python -m deploy.dataflow.metadata"
    beams = {"config", "catch_up_days", *PipelineOptions([]).get_all_options()}
    assert FLAGS.keys() - {"runner", "dry_run"} < {*KNOWN} <= FLAGS.keys() | beams
    required = {name for name, each in KNOWN.items() if not each.get("isOptional")}
    assert required == {"output", "sdk_container_image"}  # a query stands in for the input


def test_the_page_of_the_template_launches_it_with_parameters_that_it_has():
    page = (ROOT / "docs" / "cloud.md").read_text("utf-8")
    [given] = re.findall(r"--parameters '(.*)'", page)
    launched = dict(each.split("=", 1) for each in given.split(","))
    assert {"input", "output", "sdk_container_image"} <= launched.keys()
    check_patterns(launched)


def test_the_templates_program_takes_every_parameter(gcs, minilm, capsys, monkeypatch):
    """With its default, or left empty, as a form sends those that nobody filled in."""
    gcs.put("acme-template", {"texts/a.jsonl": '{"id": "a", "text": "the bank"}\n' * 9})
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
    for name, each in KNOWN.items():
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
        ("--catch_up_days=99999999", "catch_up_days must be at most 3,660, got '99999999'"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            template_options([*given, word])


def test_parameters_that_cannot_work_are_refused_by_the_template():
    for name, right, wrong in (
        ("input", ["gs://b/a*.txt", "my-project:set.table"], ["texts/*.txt", ""]),
        ("output", ["gs://b/out"], ["build/out", "gs://"]),
        ("max_rejected", ["10", "0.5%"], ["many", "-1"]),
    ):
        [pattern] = KNOWN[name]["regexes"]
        for value in (*right, *wrong):
            assert bool(re.search(pattern, value)) == (value in right), value


DAYS = ("2026-03-01", "2026-03-02", "2026-03-03")


@pytest.fixture
def cloud(gcs, tmp_path):
    gcs.put("days", {f"texts/{day}/a.jsonl": '{"id": "a", "text": "red"}\n' for day in DAYS})
    with dataflow_server(tmp_path, gcs) as server, server.at_hand():
        yield server


def launcher(cloud, model, folder):
    """What the schedule's body has a launcher do at a time: the exit code, and its job or None."""
    body = SOURCES["schedule.tf"]
    asked = dict(re.findall(r"^ +(today|catch_up_days) += (\S+)$", body, re.MULTILINE))
    assert asked == {"today": "local.day_begins", "catch_up_days": "var.catch_up_days"}
    words = [*cloud.flags("days"), "--sdk_container_image=us-docker.pkg.dev/p/r/i:1"]
    words += [f"--model={model}", "--job_name=daily"]
    words += ["--input=gs://days/texts/{yesterday}/*.jsonl", "--output=gs://days/v/{yesterday}"]
    words += ["--today=00:00", f"--template_location={folder}/job.json"]

    def launch(time, *more):
        job = folder / "job.json"
        job.unlink(missing_ok=True)
        now = datetime.datetime.fromisoformat(f"2026-03-{time}+00:00")
        given = tuple(word.partition("=")[0] for word in more)
        left = [word for word in words if not (more and word.startswith(given))]
        code = exit_code("embed", lambda: run_template([*left, *more], now))
        return code, json.loads(job.read_text()) if job.exists() else None

    return launch


def done(gcs):
    runs = sorted((gcs.root / "days" / "v").glob("*"))
    return [run.name for run in runs if record(run)["status"] == "done"]


def test_no_day_is_lost(cloud, gcs, tiny_bundle, tmp_path, capsys):
    launch = launcher(cloud, tiny_bundle, tmp_path)
    week = "--catch_up_days=7"
    code, failed = launch("02T02:17", week)
    assert code == 0, capsys.readouterr().err
    assert failed is not None
    # It fails. The launch of the next day is refused, as it still runs: nothing starts at all.
    assert done(gcs) == []
    for time, day in (("04T02:17", 0), ("04T14:17", 1), ("05T02:17", 2)):
        code, job = launch(time, week)
        assert code == 0, capsys.readouterr().err
        run_graph(cloud, job)
        assert done(gcs) == list(DAYS[: day + 1]), "the oldest first"
    code, job = launch("04T14:17", week)
    assert (code, "nothing to do" in capsys.readouterr().out) == (0, True)
    # A launch without an error has a job: else it would fail, and say nothing.
    assert job is not None
    gcs.put("days", {"texts/none/a.jsonl": ""})
    empty = ["--input=gs://days/texts/none/*.jsonl", "--output=gs://days/none"]
    code, job = launch("05T02:17", *empty)
    assert (code, job is None) == (0, False)
    assert launch("02T02:17", "--max_seq_length=16") == (2, None), "another run is there"
    assert launch("05T02:17", "--input=gs://days/no/*.jsonl", "--output=gs://days/v") == (2, None)


def test_days_without_a_day_in_the_output_are_refused(cloud, tiny_bundle, tmp_path, capsys):
    launch = launcher(cloud, tiny_bundle, tmp_path)
    assert launch("02T02:17", "--catch_up_days=2", "--output=gs://days/all") == (2, None)
    assert "catch_up_days 2 requires a day in output" in capsys.readouterr().err


def test_a_day_is_due_of_a_table_whose_name_could_be_a_files(bigquery, tmp_path):
    for day in (1, 2):
        bigquery.fill(f"acme.due.t_2026030{day}", [])
    words = ["--input=acme.due.t_{yesterday:%Y%m%d}", f"--output={tmp_path}/{{yesterday}}"]
    options = template_options([*words, "--input_format=bigquery"])
    now = datetime.datetime(2026, 3, 3, tzinfo=datetime.UTC)
    assert oldest_due(options, 5, now).input == ("acme.due.t_20260301",)


def test_the_schedule_launches_more_often_than_days_begin():
    """So that what the first launch of a day left is embedded by the next."""
    [schedule] = re.findall(r'default +\= "(\d+ [\d,]+ \* \* \*)"', SOURCES["variables.tf"])
    assert len(schedule.split()[1].split(",")) > 1
    assert "{" in re.search(r"output += (.*)", SIMPLE)[1]
