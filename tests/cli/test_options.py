"""Options are one class with four doors, and each door checks and names them the same."""

import datetime
import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import yaml

import bert_embed
from bert_embed.pipeline.cli import exit_code, main
from bert_embed.pipeline.options.command_line import parse_embed, read_command
from bert_embed.pipeline.options.commands import CompareOptions, ExportOptions, SearchOptions
from bert_embed.pipeline.options.embed import FLAGS, EstimateOptions, Options
from bert_embed.pipeline.options.python_call import options_of_call
from deploy.dataflow.template import run_template, template_options
from tests.support.command import block_records, data_files, embed, record

# Of every option a value; of these its text is all that it is.
PLAIN = """
input_format=jsonl text_b_column=body id_column=key today=02:17 output_format=tfrecord
output_dtype=int8 model=other long_text=window chunk=sentence:20 precision=int8 device=cpu
engine=tensorflow runner=PrismRunner
"""
# Of others as text and as YAML and Python have it, and what it requires.
VALUES = {
    **{name: (text, text, {}) for name, text in (row.split("=") for row in PLAIN.split())},
    "query": ("SELECT 1", "SELECT 1", {"input": None, "beam_args": ["--project=p"]}),
    "text_column": ("title,abstract", ["title", "abstract"], {}),
    "extra_columns": ("n,m:int64", ["n", "m:int64"], {}),
    "csv_quoting": ("none", "none", {"input_format": "csv"}),
    "csv_separator": ("tab", "\t", {"input_format": "csv"}),
    "csv_header": ("id,text", ["id", "text"], {"input_format": "csv"}),
    "limit": ("7", 7, {}),
    "overwrite": ("true", True, {}),
    "max_rejected": ("4", 4, {}),
    "skip_blocks": ("1,3", [3, 1, 3], {}),
    "block_bytes": ("4096", 4096, {}),
    "output_table": ("p:d.t", "p:d.t", {"output_format": "bigquery"}),
    "write_disposition": ("fail", "fail", {"output_format": "bigquery", "output_table": "p:d.t"}),
    "skip_existing": ("gs://b/e", ["gs://b/e"], {}),
    "max_deleted": ("5%", "5%", {"skip_existing": ["gs://b/e"]}),
    "keep_text": ("true", True, {}),
    "report": ("false", False, {}),
    "granularity": ("sentence,token", ["sentence", "token"], {}),
    "vectors": ("dense,scores", ["dense", "scores"], {}),
    "top_k": ("9", 9, {"vectors": ["sparse"]}),
    "layers": ("-1,-2", [-1, -2], {"layer_combine": "sum"}),
    "layer_combine": ("sum", "sum", {"layers": [-1, -2]}),
    "pooling": ("mean,max", ["mean", "max"], {}),
    "max_seq_length": ("16", 16, {}),
    "overlap": ("3", 3, {"long_text": "window"}),
    "chunk_context": ("title,headings", ["title", "headings"], {"chunk": "sentence"}),
    "prompt": ("query: ", "query: ", {}),
    "dim": ("8", 8, {}),
    "normalize": ("true", True, {}),
    "batch_tokens": ("512", 512, {}),
    "threads": ("2", 2, {}),
    "accelerator": ("t4", "t4", {"runner": "DataflowRunner"}),
    "dry_run": ("true", True, {}),
}


def words_of(options):
    """The flags of options; each of several places has its own."""
    words = list(options.get("beam_args", ()))
    for name, value in options.items():
        several = isinstance(value, list) and name in ("input", "skip_existing")
        for each in () if name == "beam_args" else value if several else [value]:
            text = ",".join(map(str, each)) if isinstance(each, list) else str(each)
            words.append(f"--{name}={text.lower() if isinstance(each, bool) else text}")
    return words


def written(options, path):
    path.write_text(yaml.safe_dump({n: v for n, v in options.items() if n != "beam_args"}))
    return parse_embed([f"--config={path}", *options.get("beam_args", ())])


# How options come in: each takes them and a path for a file.
DOORS = {
    "command line": lambda options, _: parse_embed(words_of(options)),
    "YAML": written,
    "Python": lambda options, _: options_of_call(options),
    "template": lambda options, _: template_options(words_of(options)),
}


def test_every_option_has_a_value_here():
    others = {"input", "output"}
    assert VALUES.keys() == FLAGS.keys() - others
    several = {name for name, (_, value, _) in VALUES.items() if isinstance(value, list)}
    assert several == {name for name, flag in FLAGS.items() if flag.has_several} | {"skip_existing"}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", VALUES)
def test_every_option_means_the_same_through_each_door(name, door, tmp_path):
    text, value, besides = VALUES[name]
    given = {"input": ["gs://b/x"], "output": "gs://b/o"} | besides
    given = {key: each for key, each in given.items() if each is not None}
    wanted = parse_embed([*words_of(given), f"--{name}={text}"])
    assert getattr(wanted, name) != getattr(Options(), name)
    for each in (value, text):
        assert DOORS[door](given | {name: each}, tmp_path / "run.yaml") == wanted
    if FLAGS[name].is_switch:
        bare = f"--{name}" if value else f"--no_{name}"
        assert parse_embed([*words_of(given), bare]) == wanted
        other = DOORS[door](given | {name: not value}, tmp_path / "run.yaml")
        assert getattr(other, name) is (not value)


def test_a_call_takes_paths_and_numbers_of_numpy_and_a_file(tmp_path):
    config = tmp_path / "run.yaml"
    config.write_text("input: [a, b]\noutput: c\nlimit: 7\nlayers: [-1, -2]\nlayer_combine: sum\n")
    read = parse_embed([f"--config={config}"])
    called = {"input": [Path("a"), "b"], "output": Path("c"), "limit": np.int64(7)}
    called |= {"layers": np.array([-1, -2]), "layer_combine": "sum", "normalize": np.bool_(True)}
    assert options_of_call(called) == replace(read, normalize=True)
    assert options_of_call({"config": config}) == read
    assert parse_embed([f"--config={config}", "--limit=2"]).limit == 2


def test_each_item_of_a_list_for_beam_is_a_flag_of_its_own(tmp_path):
    """Beam takes labels with commas for one, and so an experiment that has a value."""
    places, lists = (
        ["--input=a", "--output=b"],
        {"labels": ["n=1", "m=2"], "experiments": ["k=v", "x"]},
    )
    words = [f"--{name}={item}" for name, items in lists.items() for item in items]
    config = tmp_path / "run.yaml"
    config.write_text(yaml.safe_dump(lists, sort_keys=False))
    wanted = parse_embed([*places, *words])
    assert parse_embed([*places, f"--config={config}"]) == wanted
    assert options_of_call({"input": "a", "output": "b", **lists}) == wanted


def said_of(door, given, path, capsys):
    """What is said of options that are refused, before anything is opened."""
    if door == "Python":
        with pytest.raises(bert_embed.SettingError) as refused:
            bert_embed.embed(**given)
        return str(refused.value)
    path.write_text(yaml.safe_dump(given))
    words = [f"--config={path}"] if door == "YAML" else words_of(given)
    now = datetime.datetime.now(datetime.UTC)
    of_template = door == "template"
    run = partial(run_template, words, now) if of_template else partial(main, ["embed", *words])
    assert exit_code("embed", run) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    return said.err.removeprefix("error: ").removeprefix(f"--config {path}: ").rstrip()


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("limit", "ten", "--limit must be a whole number of at least 1, got 'ten'"),
        ("limit", f"{10**20}", "--limit must be at most 9,223,372,036,854,775,807, got"),
        ("layers", "x", "--layers must be numbers with commas, such as -1,-2, got 'x'"),
        ("max_rejected", "many", "--max_rejected must be a whole number or a share"),
        ("max_rejected", "200%", "--max_rejected must be at most 100%"),
        ("max_rejected", "9" * 5000, "--max_rejected must be at most 9,223,372,036,854,775,807,"),
        ("today", "0001-01-01", "--today must be a day such as 2026-03-01, or a time"),
        ("normalize", "yes", "--normalize must be true or false, got 'yes'"),
        ("precision", "int4", "--precision must be one of float32,"),
        ("chunk", "line:4", "--chunk must be one of sentence, paragraph, tokens, got 'line'"),
        ("chunk", "tokens:0", "--chunk must have a whole number of at least 1 behind tokens:, got"),
        ("pooling", "best", "--pooling must be one of mean, max, mean_max, cls,"),
        ("overlap", "3", "--overlap requires --long_text window or windows, or --chunk"),
        ("runner", "Best", "--runner Best is not available"),
    ],
)
def test_a_wrong_value_is_named_alike_by_each_door(name, text, message, door, tmp_path, capsys):
    given = {"input": "a.txt", "output": f"{tmp_path}/out", name: text}
    said = said_of(door, given, tmp_path / "run.yaml", capsys)
    dashed = door in ("command line", "template")
    assert (message if dashed else message.replace(" --", " ").removeprefix("--")) in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("door", ["YAML", "Python"])
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("limit", 1.5, "limit must be a whole number of at least 1, got 1.5"),
        ("limit", True, "limit must have a value, got True"),
        ("model", ["a", "b"], "model must be a text or a number, got a list"),
        ("no_normalize", True, "no_normalize is no option: set normalize to false"),
        ("help", True, "help is for the command line"),
    ],
)
def test_a_value_that_no_flag_can_have_is_named(name, value, message, door, tmp_path, capsys):
    given = {"input": "a.txt", "output": f"{tmp_path}/out", name: value}
    assert message in said_of(door, given, tmp_path / "run.yaml", capsys)


def test_empty_lists_are_as_if_not_given():
    names = ("skip_blocks", "extra_columns", "csv_header", "chunk_context", "skip_existing")
    empty = options_of_call({"input": "a", "output": "b", **{name: [] for name in names}})
    assert empty == Options(input=("a",), output="b")


@pytest.mark.parametrize(
    ("words", "content", "message"),
    [
        ("embed", "layrs: 1", ": unknown flag --layrs; did you mean --layers?"),
        ("embed", "overwite: false", ": unknown flag --no_overwite"),
        ("embed", "[1, 2]", " must hold flags"),
        ("embed", "input: !!python/object/apply:os.system ['touch ran']", " is not YAML"),
        ("embed", "a: 1\nb: 'x", " is not YAML: line 2: while scanning a quoted scalar; line"),
        ("embed", "output: 2026-02-30", " is not YAML"),
        ("embed", "input: a\ninput: b", " names input twice"),
        ("tokenize", "pooling: cls", ": unknown flag --pooling"),
        ("tokenize", "extra_columns: a", ": unknown flag --extra_columns; see"),
        ("compare old new", "smaple: 3", " compare has no flag smaple; did you mean sample?"),
        ("estimate", "price_per_hour: true", " price_per_hour must have a value, got True"),
        ("compare old new", "sample: 0", " sample must be a whole number of at least 1, got 0"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_the_file(tmp_path, command, words, content, message):
    config = tmp_path / "flags.yaml"
    config.write_text(content)
    name, *places = words.split()
    said = command(name, *(places or ["--input=a", "--output=b"]), config=config, code=2).err
    assert said.startswith("error: ")
    assert f"--config {config}" in said
    assert message in said
    assert not Path("ran").exists(), "a configuration is flags and nothing else"
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "options", "places", "content"),
    [
        ("search", SearchOptions, "out text", "k: 3\nby: sparse\njson: true\n"),
        ("compare", CompareOptions, "old new", "sample: 20\n"),
        ("export", ExportOptions, "out dest", "to: faiss\nindex: flat\n"),
        ("estimate", EstimateOptions, "", "input: a\nprice_per_hour: 0.1\nskip_blocks: [1]\n"),
    ],
)
def test_every_command_takes_a_file_of_its_flags(tmp_path, command, options, places, content):
    """Of several for the same flag that of the command line wins; a pipe is read once."""
    config = tmp_path / "flags.yaml"
    config.write_text(content)
    words = re.sub(r"(\w+): \[?([^\]\n]+)\]?\n", r"--\1=\2 ", content)
    read, places = partial(read_command, options, command), places.split()
    wanted = read([*places, *words.replace("=true", "").split()])
    assert read([*places, f"--config={config}"]) == wanted
    reading, writing = os.pipe()
    with open(reading), open(writing, "w") as file:
        file.write(content)
        file.close()
        assert read([*places, "--config", f"/dev/fd/{reading}"]) == wanted
    if command == "compare":
        assert read([*places, f"--config={config}", "--sample=7"]).sample == 7


def test_a_query_is_taken_as_it_is(monkeypatch):
    """It is no place, nor do dashes in it become underscores, as in the names of flags."""
    monkeypatch.setenv("HOME", "/home/me")
    for query in ("~/.bashrc", "--dry-run what", "-5 degrees", "--a-b is c=d-e"):
        options = read_command(SearchOptions, "search", ["~/out", query])
        assert (options.folders, options.query) == (("/home/me/out",), query)
    assert read_command(SearchOptions, "search", ["out", "--", "--dry-run"]).query == "--dry-run"
    sql = "-- each-day\nSELECT id, text FROM `my-project.d.t` WHERE day = '2026-03-01'"
    assert parse_embed(["--output=o", "--project=p", "--query", sql]).query == sql


def test_a_folder_named_like_a_switch_is_searched(tmp_path, run, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run({"in.txt": "true\nfalse\n"}, "report")
    for query in ("true", "false"):
        assert query in command("search", "report", query, "--k", "1").out


def test_relative_places_are_repaired_from_elsewhere(tmp_path, tiny_bundle, capsys, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (here / "in.txt").write_text("the bank\n")
    (here / "model").symlink_to(tiny_bundle)
    monkeypatch.chdir(here)
    assert embed(Path("out"), "model", "in.txt") == 0
    options = record(here / "out")["options"]
    assert options["model"] == str(here / "model") == record(here / "out")["model"]["name"]
    data_files(here / "out")[0].unlink()
    monkeypatch.chdir(there)
    assert main(["verify", str(here / "out"), "--repair"]) == 0
    assert block_records(here / "out")
    assert main(["search", str(here / "out"), "bank"]) == 0
    assert list(there.iterdir()) == []
