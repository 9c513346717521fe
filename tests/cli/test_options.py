"""Options are one class with four readers, and each reader checks and names them the same."""

import os
import subprocess
import sys
import typing
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import yaml

import bert_embed
from bert_embed.pipeline.cli import main
from bert_embed.pipeline.options import flags
from bert_embed.pipeline.options.command_line import parse_embed, parse_estimate
from bert_embed.pipeline.options.commands import (
    CompareOptions,
    DedupOptions,
    ExportOptions,
    SearchOptions,
)
from bert_embed.pipeline.options.embed import FLAGS, Options
from bert_embed.pipeline.options.python_call import EmbedKeywords, options_of_call
from bert_embed.pipeline.options.python_call import Path as PathLike
from deploy.dataflow.template import template_options
from tests.support.command import block_records, data_files, embed, record

# Of each kind of option the type of its field, and what the keyword of Python takes.
_TYPES = {
    flags.Text: (str, str),
    flags.JoinedNames: (str, str | Sequence[str]),
    flags.Place: (str, PathLike),
    flags.FileOrUrl: (str, PathLike),
    flags.Places: (tuple[str, ...], PathLike | Sequence[PathLike]),
    flags.Choice: (str, str),
    flags.Whole: (int, int),
    flags.Decimal: (float, float),
    flags.Wholes: (tuple[int, ...], int | Sequence[int]),
    flags.Names: (tuple[str, ...], str | Sequence[str]),
    flags.Share: (str, str | int),
    flags.Switch: (bool, bool),
}


def test_the_keywords_of_a_call_are_the_options_with_their_types():
    keywords = typing.get_type_hints(EmbedKeywords)
    assert keywords.pop("beam_args") == Sequence[str] | None
    assert keywords.pop("config") == PathLike | None
    assert keywords.keys() == FLAGS.keys() - {"input", "output"}
    types = {field.name: field.type for field in fields(Options)}
    for name, flag in FLAGS.items():
        declared, taken = _TYPES[type(flag.kind)]
        assert types[name] in (declared, declared | None), name
        assert keywords.get(name) == (None if name in ("input", "output") else taken | None), name


def test_importing_and_help_load_neither_tensorflow_nor_beam():
    code = (
        "import sys, bert_embed.pipeline; bert_embed.embed\n"
        "from bert_embed.pipeline.cli import main\n"
        "for words in (['--help'], ['embed', '--help'], ['embed', '--help', 'all']):\n"
        "    main(words)\n"
        "    assert not {'apache_beam', 'tensorflow'} & set(sys.modules), words\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_four_readers_give_the_same_options(tmp_path):
    config = tmp_path / "run.yaml"
    config.write_text(
        "input: [a, b]\noutput: c\nlimit: 7\nlayers: [-1, -2]\nlayer_combine: sum\n"
        "normalize: true\nlong_text: window\nmerge_windows: false\n"
        "extra_columns: [n, 'm:int64']\nskip_blocks: 3\n"
        "max_rejected: 4\ninput_format: jsonl\n"
    )
    read = parse_embed([f"--config={config}"])
    words = ["--output=c", "--limit=7", "--layers=-1,-2", "--layer_combine=sum"]
    words += ["--extra_columns=n,m:int64", "--skip_blocks=3", "--max_rejected=4"]
    words += ["--input_format=jsonl", "--long_text=window"]
    switches = ["--normalize", "--no_merge_windows"]
    assert parse_embed(["--input=a", "--input=b", *switches, *words]) == read
    launched = ["--input=gs://a,gs://b", "--normalize=true", "--merge_windows=false", *words]
    assert template_options(launched) == parse_embed(
        ["--input=gs://a", "--input=gs://b", *switches, *words]
    )
    called = {"input": [Path("a"), "b"], "output": Path("c"), "limit": np.int64(7)}
    called |= {"layers": np.array([-1, -2]), "layer_combine": "sum", "normalize": np.bool_(True)}
    called |= {"long_text": "window", "merge_windows": False}
    called |= {"extra_columns": ["n", "m:int64"], "skip_blocks": [3, 3]}
    assert options_of_call(called | {"max_rejected": 4, "input_format": "jsonl"}) == read
    assert options_of_call({"config": config}) == read
    assert parse_embed([f"--config={config}", "--limit=2"]).limit == 2


def test_every_flag_that_takes_commas_takes_a_list(tmp_path):
    lists = {
        "text_column": ["title", "abstract"],
        "extra_columns": ["n", "m:int64"],
        "granularity": ["sentence", "token"],
        "vectors": ["dense", "scores"],
        "layers": [-1, -2],
        "pooling": ["mean", "max"],
        "skip_blocks": [1, 2],
    }
    of_chunks = {"chunk_context": ["title", "headings"]}
    several = {name for name, flag in FLAGS.items() if flag.has_several}
    assert lists.keys() | of_chunks.keys() == several
    config = tmp_path / "run.yaml"
    places = {"input": "a", "output": "b"}
    for given, others in ((lists, {"layer_combine": "sum"}), (of_chunks, {"chunk": "sentence"})):
        others |= places
        config.write_text(yaml.safe_dump(others | given))
        words = [f"--{name}={','.join(map(str, values))}" for name, values in given.items()]
        typed = parse_embed([*(f"--{name}={value}" for name, value in others.items()), *words])
        assert parse_embed([f"--config={config}"]) == typed
        assert options_of_call(others | given) == typed


def test_empty_lists_are_as_if_not_given():
    empty = {"skip_blocks": [], "extra_columns": [], "skip_existing": ()}
    assert options_of_call({"input": "a", "output": "b", **empty}) == Options(
        input=("a",), output="b"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("limit: ten", "limit must be a whole number of at least 1, got 'ten'"),
        ("limit: 1.5", "limit must be a whole number of at least 1, got 1.5"),
        ("limit: true", "limit must have a value, got True"),
        ("model: [a, b]", "model must be a text or a number, got a list"),
        ("no_normalize: true", "no_normalize is no option: set normalize to false"),
        ("stride: 3", "stride requires long_text window"),
        ("text: a", "text is for the command line"),
        ("output_format: examples", "output_format must be one of parquet, jsonl, tfrecord"),
    ],
)
def test_a_wrong_value_in_a_file_is_named_with_file_and_option(tmp_path, capsys, content, message):
    config = tmp_path / "run.yaml"
    config.write_text(content)
    assert main(["embed", "--input=a", "--output=b", f"--config={config}"]) == 2
    assert capsys.readouterr().err.startswith(f"error: --config {config}: {message}")


def test_a_file_for_tokenize_holds_no_option_of_embed_alone(tmp_path, capsys):
    config = tmp_path / "run.yaml"
    config.write_text("pooling: cls\n")
    assert main(["tokenize", "--input=a", "--output=b", f"--config={config}"]) == 2
    assert f"error: --config {config}: unknown flag --pooling" in capsys.readouterr().err
    assert main(["embed", "--input=a", "--output=b", "--output_format=examples"]) == 2
    assert "--output_format must be one of parquet" in capsys.readouterr().err


CONFIGS = [
    (SearchOptions, ("out", "a text"), "k: 3\nby: sparse\njson: true\n"),
    (CompareOptions, ("old", "new"), "sample: 20\nseed: 4\n"),
    (ExportOptions, ("out", "dest"), "to: delta\n"),
    (DedupOptions, ("out", "dest"), "eps: 0.1\nmax_num_workers: 3\n"),
]


@pytest.mark.parametrize(("options", "places", "content"), CONFIGS)
def test_every_command_takes_a_file_of_its_flags(tmp_path, options, places, content):
    config = tmp_path / "flags.yaml"
    config.write_text(content)
    settings = dict(line.split(": ") for line in content.splitlines())
    words = [
        f"--{name}" if value == "true" else f"--{name}={value}" for name, value in settings.items()
    ]
    assert options.parse([*places, f"--config={config}"]) == options.parse([*places, *words])
    if "sample" in settings:
        assert options.parse([*places, "--config", str(config), "--sample=7"]).sample == 7


def test_a_file_for_estimate_holds_its_own_flags_and_those_of_embed(tmp_path):
    config = tmp_path / "flags.yaml"
    config.write_text("input: a\nprice_per_hour: 0.1\nlimit: 3\nskip_blocks: [1, 2]\njson: true\n")
    options, own = parse_estimate([f"--config={config}", "--json=false"])
    assert (options.input, options.limit, options.skip_blocks) == (("a",), 3, (1, 2))
    assert (own.price_per_hour, own.json) == (0.1, False)


def test_a_file_of_flags_is_read_once():
    reading, writing = os.pipe()
    with open(reading), open(writing, "w") as file:
        file.write("input: a\nprice_per_hour: 0.1\n")
        file.close()
        options, own = parse_estimate([f"--config=/dev/fd/{reading}"])
    assert (options.input, own.price_per_hour) == (("a",), 0.1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("smaple: 3", "compare has no flag smaple; did you mean sample?"),
        ("old: out", "compare has no flag old"),
        ("sample: 0", "sample must be a whole number of at least 1, got 0"),
        ("sample: 3\nsample: 4", "names sample twice"),
    ],
)
def test_a_wrong_flag_in_a_file_of_a_command_is_named(tmp_path, capsys, content, message):
    config = tmp_path / "flags.yaml"
    config.write_text(content)
    assert main(["compare", "old", "new", f"--config={config}"]) == 2
    error = capsys.readouterr().err
    assert str(config) in error
    assert message in error


def test_windows_of_late_chunks_may_share_more_tokens():
    late = {"chunk": "sentence", "chunk_pooling": "late"}
    assert Options(**late, stride=8).text_spec(64, "").stride == 8
    with pytest.raises(bert_embed.SettingError, match="chunk conflicts with long_text reject"):
        Options(**late, long_text="reject")


def test_a_folder_named_like_a_switch_is_searched_for_true_and_false(
    tmp_path, tiny_bundle, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text("true\nfalse\n")
    assert embed(Path("report"), tiny_bundle, "in.txt") == 0
    capsys.readouterr()
    for query in ("true", "false"):
        assert main(["search", "report", query, "--k", "1"]) == 0
        assert query in capsys.readouterr().out


def test_a_run_with_relative_places_is_repaired_from_another_folder(
    tmp_path, tiny_bundle, capsys, monkeypatch
):
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
