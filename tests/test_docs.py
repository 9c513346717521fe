"""What the pages promise is there: flags, links, arguments, and the test behind every "yes"."""

import contextlib
import inspect
import io
import json
import re
import shlex

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

import bert_embed
from bert_embed.pipeline.cli import main
from docs.options_page import KEYWORDS, keywords, options_page
from docs.options_page import PAGE as OPTIONS
from docs.reference_page import PAGE as REFERENCE
from docs.reference_page import reference_page
from tests.support.command import ROOT, embed, record

PAGE = (ROOT / "docs" / "migrating.md").read_text("utf-8")
# Flags of programs other than ours and Beam's, which the pages name all the same.
OTHER_FLAGS = {
    "extract_features.py": "--do_lower_case",
    "Beam": "--container_executable --service_port --worker_pool --flink_conf_dir",
    "docker": "--entrypoint --network --detach --file",
    "gcloud, kubectl and bq": "--parameters --location --namespace --wait",
    "systemctl, embed_daily.sh and Flink": "--now --stdout --number_of_execution_retries",
    "embedding-atlas": "--sample --vector",
    "apache_beam.yaml": "--yaml_pipeline_file",
    "examples": "--examples --labels",
}


@pytest.fixture(scope="module")
def known():
    """Every flag that a command's help names."""
    commands = ["compare", "embed", "estimate", "export", "report", "search", "tokenize", "verify"]
    commands = [*map(str.split, [*commands, "model import", "model inspect"])]
    with contextlib.redirect_stdout(io.StringIO()) as helps:
        for command in commands:
            with contextlib.suppress(SystemExit):
                main([*command, "--help", "all"])
    return set(re.findall(r"--\w+", helps.getvalue()))


def test_every_flag_on_a_page_is_there(known):
    helps = []
    PipelineOptions([]).get_all_options(
        add_extra_args_fn=lambda parser: helps.append(parser.format_help())
    )
    beams = set(re.findall(r"--\w+", "".join(helps)))
    assert len(beams) > 100
    for page in [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("deploy/**/README.md")]:
        # Ours are written with underscores; those with dashes are of other programs.
        named = set(re.findall(r"(?<![\w-])--[a-z]\w*(?![\w-])", page.read_text("utf-8")))
        assert named - known - beams - {*" ".join(OTHER_FLAGS.values()).split()} == set(), page


def test_the_command_for_extract_features_writes_what_it_wrote(tmp_path, tiny_bundle):
    (tmp_path / "input.txt").write_text("the bank of the river\n\nmoney\n", encoding="utf-8")
    command = re.search(r"```bash\nM (embed .*?)```", PAGE, re.DOTALL)[1].replace("\\\n", " ")
    words = shlex.split(command.replace("-1,-2,-3,-4", "-1,-2"))
    here = {"input": tmp_path / "input.txt", "output": tmp_path / "out"}
    for name, value in (here | {"model": tiny_bundle, "max_seq_length": 32}).items():
        words[words.index(f"--{name}") + 1] = str(value)
    assert main(words) == 0
    [path] = (tmp_path / "out").glob("tokens/part-*.jsonl")
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [line["id"].rpartition(":")[2] for line in lines] == ["0", "23"]
    for feature in lines[0]["features"]:
        assert [layer["index"] for layer in feature["layers"]] == [-1, -2]


@pytest.mark.parametrize(
    "path", [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))], ids=lambda path: path.name
)
def test_links_lead_somewhere(path):
    text = path.read_text("utf-8")
    links = [link for link in re.findall(r"\]\(([^)\s]+)", text) if "://" not in link]
    for link in links:
        place, _, anchor = link.partition("#")
        target = path.parent / place if place else path
        assert target.exists(), link
        if anchor:
            titles = re.findall(r"^#+ (.*)$", target.read_text("utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor in anchors, link


@pytest.mark.parametrize("name", ["encode", "encode_query", "encode_document", "units"])
def test_help_shows_the_settings_of_a_call(name):
    parameters = inspect.signature(getattr(bert_embed.Encoder, name)).parameters
    assert {"layers", "dim", "prompt", "max_seq_length"} <= parameters.keys()
    assert ("pooling" in parameters) == (name != "units")
    assert "settings" not in parameters


PAGE_OF_KEYS = (ROOT / "docs" / "report.md").read_text("utf-8")
KEYS = PAGE_OF_KEYS.partition("\n## run.json\n")[2].partition("\n## ")[0]


def test_generated_pages_are_what_is_generated_now():
    assert REFERENCE.read_text("utf-8") == reference_page(), "run python -m docs.reference_page"
    assert OPTIONS.read_text("utf-8") == options_page(), "run python -m docs.options_page"
    assert KEYWORDS.read_text("utf-8") == keywords(), "run python -m docs.options_page"


def documented():
    """Keys of the lists, and whether an item says that not every run has them."""
    for line in KEYS.splitlines():
        if line.startswith("- `"):
            keys, meaning = line.split(": ", 1)
            for key in re.findall(r"`([^`]+)`", keys):
                yield key, "only" in meaning or "null" in meaning


def paths(value, prefix=""):
    """Keys of a record, joined by dots; those of a list's objects without a number."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from paths(inner, f"{prefix}.{key}" if prefix else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield from paths(value[0], prefix)
    else:
        yield prefix


def test_run_json_has_the_documented_keys_and_no_others(tmp_path, tiny_bundle):
    (tmp_path / "in.jsonl").write_text('{"text": "one", "n": "1"}\n\n{"text": "two three"}\n')
    names = {"extra_columns": "n"}
    assert embed(tmp_path / "a", tiny_bundle, tmp_path / "in.jsonl", **names) == 0
    names |= {"skip_existing": tmp_path / "a"}
    (tmp_path / "in.jsonl").write_text('{"text": "one", "n": "1"}\n\n{"text": "more"}\n')
    assert embed(tmp_path / "b", tiny_bundle, tmp_path / "in.jsonl", **names) == 0
    found = set(paths(record(tmp_path / "b")))
    known = {key: re.sub(r"\b[A-Z]+\b", "[^.]+", re.escape(key)) for key, _ in documented()}
    unknown = {key for key in found if not any(re.fullmatch(p, key) for p in known.values())}
    assert unknown == set()
    missing = {
        key
        for key, sometimes in documented()
        if not sometimes and not any(re.fullmatch(known[key], path) for path in found)
    }
    assert missing == set()
    assert record(tmp_path / "b")["lengths"]["counts"] == [1]


def test_one_file_reads_beams_flags():
    readers = {
        path.name
        for path in (ROOT / "pipeline").rglob("*.py")
        if re.search(r"\.view_as\(|get_all_options|Options\(list\(", path.read_text("utf-8"))
    }
    assert readers == {"beam.py"}
