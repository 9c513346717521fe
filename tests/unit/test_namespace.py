"""`bert_embed` is our only name: beside a user's own storage, bert, transforms and pipeline."""

import json
import os
import subprocess
import sys
from operator import itemgetter
from pathlib import Path

import pytest

import bert_embed
from tests.support.command import ran

pytestmark = pytest.mark.slow

ROOT = Path(bert_embed.__file__).parents[1]
NAMES = ["storage", "bert", "transforms", "pipeline"]
FOLDERS = ["tests", "benchmarks", "examples", "deploy", "docs", "src"]
PROJECT = {
    "storage.py": "raise ImportError('this storage is the user\\'s')",
    "bert.py": "raise ImportError('this bert is the user\\'s')",
    "transforms/__init__.py": "def louder(text):\n    return text.upper()",
    "pipeline.py": "def text_of(line):\n    return line.strip()",
    "job.py": """
import importlib.util
import json
import sys

import apache_beam as beam
from apache_beam.ml.transforms.base import MLTransform
from apache_beam.options.pipeline_options import PipelineOptions

import bert_embed
from pipeline import text_of
from transforms import louder


def seen(record):
    places = [importlib.util.find_spec(name).origin for name in ("transforms", "pipeline")]
    return json.dumps({**record, "places": places})


if __name__ == "__main__":
    output, artifacts, model = sys.argv[1:]
    columns = bert_embed.BertEmbeddings(model, columns=["text"], output_columns=["vector"])
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as job:
        lines = job | beam.Create([" a river bank ", "the vault", " "])
        texts = lines | beam.Map(text_of) | "Louder" >> beam.Map(louder)
        embedded, rejected = texts | bert_embed.EmbedDocuments(model)
        both = embedded | MLTransform(write_artifact_location=artifacts).with_transform(columns)
        both | "Tell" >> beam.Map(seen) | beam.io.WriteToText(output, shard_name_template="")
""",
}


@pytest.fixture
def project(tmp_path):
    """A working folder that has every name that this project used to take."""
    for name, text in PROJECT.items():
        path = tmp_path / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")
    return tmp_path / "project"


def run(folder, *words):
    """What a program prints that finds only what is installed."""
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*map(str, words)], cwd=folder, env=outside, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def places(python, folder):
    """Where a Python finds each name from a folder, by its name; None where it does not."""
    code = (
        "import importlib.util as u, json, sys; found = {n: u.find_spec(n) for n in sys.argv[1:]};"
        "print(json.dumps({n: s and [s.origin, *(s.submodule_search_locations or [])]"
        " for n, s in found.items()}))"
    )
    return json.loads(run(folder, python, "-c", code, "bert_embed", *NAMES, *FOLDERS))


def is_ours(place):
    """Whether a module lies in the repository, and not among the packages installed there."""
    path = Path(place or "/").resolve()
    return path.is_relative_to(ROOT) and not path.is_relative_to(Path(sys.prefix).resolve())


def test_a_users_job_runs_beside_its_own_modules(project, tiny_bundle):
    output, texts = project / "out.jsonl", ["A RIVER BANK", "THE VAULT"]
    run(project, sys.executable, "job.py", output, project.parent / "artifacts", tiny_bundle)
    lines = sorted(map(json.loads, output.read_text("utf-8").splitlines()), key=itemgetter("text"))
    assert [line["text"] for line in lines] == texts
    wanted = bert_embed.load(tiny_bundle).encode(texts).tolist()
    for line, vector in zip(lines, wanted, strict=True):
        assert line["embedding"] == pytest.approx(vector, abs=1e-6)
        assert line["vector"] == pytest.approx(vector, abs=1e-6)
        assert all(Path(place).is_relative_to(project) for place in line["places"])


def test_an_installation_for_editing_offers_no_other_name(tmp_path):
    found = places(sys.executable, tmp_path)
    assert found.pop("bert_embed") is not None
    assert [name for name, every in found.items() if any(map(is_ours, every or []))] == []


def test_windows_is_told_where_to_run():
    code = "import sys; sys.platform = 'win32'; import bert_embed"
    last = ran([sys.executable, "-c", code]).stderr.splitlines()[-1]
    assert last.startswith("ImportError: bert-embed does not run on Windows: run it in WSL")
