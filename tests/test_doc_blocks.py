"""Every fenced block of the documentation is run, compared or listed with a reason."""

import io
import json
import re
import runpy
import shlex
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bert_embed
from bert_embed.base.arrays import cosines, unit_length
from bert_embed.pipeline.cli import main
from bert_embed.results.names import OUTPUT_DTYPES
from tests.support.blocks import (
    described,
    embedding_block,
    every_kind,
    kept_windows,
    numbers,
    with_heads,
    write,
)
from tests.support.command import ROOT
from tests.support.models.tiny import write_tiny_huggingface

pytestmark = pytest.mark.slow  # a minute and a half on two quiet cores

PAGES = ["README.md", "docs/*.md", "deploy/README.md", "deploy/*/README.md"]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_OURS = re.compile(r"^(\.venv/bin/)?bert-embed ")
# Blocks that no page's own test below runs: the page, how the block begins, what is in it, or * for
# all of the page, and why, or which test runs it or compares it.
ELSEWHERE = r"""
README.md | make embed | CI runs it
README.md | 1 file,  | test_the_readme_shows_what_its_commands_print
README.md | $ .venv/bin/bert-embed search | test_the_readme_shows_what_its_commands_print
README.md | import bert_embed | test_the_python_of_a_page_gives_these_shapes
docs/beam.md | python -m examples.embed_stream | tests/cli/examples/test_examples.py
docs/beam.md | … quality = | tests/unit/transforms/adapters/test_recipes.py
docs/beam.md | … FILE_LOADS | tests/unit/transforms/adapters/test_recipes.py
docs/beam.md | pipeline: | tests/integration/notebooks/test_yaml.py
docs/beam.md | FROM apache | needs Docker
docs/compare.md | of 200 queries  | a part of what compare prints; tests/cli/search/test_compare.py
docs/bigquery.md | .venv/bin/bert-embed | tests/cli/bigquery/test_load.py
docs/bigquery.md | LOAD DATA | the emulator reads no files
docs/output.md | python -m examples.train | tests/cli/examples/test_examples.py
docs/export.md | .venv/bin/pip install | tests/integration/export_readers/test_docs.py
docs/export.md | import faiss | tests/integration/export_readers/test_docs.py
docs/export.md | import lancedb | tests/integration/export_readers/test_docs.py
docs/export.md | rows = ds.dataset | tests/integration/export_readers/test_docs.py
docs/export.md | import bert_embed\nimport torch | tests/integration/ecosystem/test_fast_plaid.py
docs/export.md | python -m examples | tests/integration/export_readers/test_loads.py
docs/search.md | .venv/bin/python -m examples | tests/integration/export_readers/test_groups.py
docs/search.md | import duckdb | tests/integration/export_readers/test_groups.py
docs/export.md | embedding-atlas | tests/integration/export_readers/test_docs.py
docs/migrating.md | M embed | tests/test_docs.py
docs/install.md | python3.12 -m venv | tests/integration/install/test_wheel.py
docs/models.md | .venv/bin/bert-embed model import hf: | tests/unit/importers/test_hub.py
docs/output.md | -- what | test_every_output_type_is_decoded_as_the_page_says
docs/increments.md | SELECT | test_duckdb_finds_the_newest_of_each_document
docs/bigquery.md | import bert_embed | tests/cli/bigquery/test_load.py
docs/python.md | import bert_embed | test_the_python_of_a_page_gives_these_shapes
docs/python.md | rows = encoder.encode( | tests/unit/models/test_sparse.py
docs/python.md | from bert_embed.integrations.sen | tests/integration/ecosystem/test_integrations.py
docs/python.md | .venv/bin/pip install jupyterlab | opens a browser; make notebooks
docs/python.md | from langchain_core | tests/integration/ecosystem/test_integrations.py
docs/python.md | from sklearn | tests/integration/ecosystem/test_integrations.py
docs/how_it_works.md | $ .venv/bin/python -m examples.sts | the ratings are not ours to share
docs/how_it_works.md | $ .venv/bin/python -m examples.bank | test_the_two_senses_of_bank
docs/input.md | bert-embed | test_the_command_for_cloud_storage
docs/accelerators.md | make images | needs Docker: make test-images
docs/accelerators.md | .venv/bin/pip | needs a GPU or TPU
docs/cloud.md | * | needs Google; tests/cli/runners/test_dataflow_deploy.py, and files beside it
deploy/README.md | * | a template, its paths are left out
deploy/cron/README.md | * | needs root, Airflow or Google; tests/integration/schedule/test_cron.py
deploy/flink/README.md | * | needs a cluster, make test-flink, or Kubernetes
docs/running.md | input: | tests/cli/test_estimate.py
docs/running.md | 37% | tests/cli/test_shown.py
"""
ELSEWHERE = [row.split(" | ") for row in ELSEWHERE.strip().splitlines()]
# What a command is given in place of a part, where a small input or this machine asks for it.
INSTEAD = {
    "docs/accelerators.md": ("--device gpu --precision bfloat16", "--device cpu"),
    "docs/export.md": ("--dim 128", "--dim 16"),
}

LINES = """{"id": "a", "text": ["the", "", "vault"]}
{"id": "b", "text": ["money", ""]}
"""


class Block(NamedTuple):
    page: str
    language: str
    text: str

    def has(self, page, start):
        if page != self.page or start == "*":
            return page == self.page
        if start.startswith("… "):
            return start[2:] in self.text
        return self.text.startswith(start.replace("\\n", "\n"))

    def is_elsewhere(self):
        return any(self.has(page, start) for page, start, _ in ELSEWHERE)

    def __str__(self):
        return f"{self.page}: {self.text.splitlines()[0][:60]}"


def blocks():
    for pattern in PAGES:
        for path in sorted(ROOT.glob(pattern)):
            page = str(path.relative_to(ROOT))
            for language, text in _BLOCK.findall(path.read_text("utf-8")):
                yield Block(page, language, text)


def block(page, start):
    return next(each for each in blocks() if each.page == page and each.text.startswith(start))


# What the README's questions find, and what is near it.
TOPICS = tuple(f'{{"id": "{topic}/' for topic in ("types", "try", "class", "calls"))

HERE = [each for each in blocks() if not each.is_elsewhere()]


def test_each_reason_has_its_block_and_names_a_test_that_is_there():
    found = list(blocks())
    assert len(found) > 35
    for page, start, reason in ELSEWHERE:
        assert any(each.has(page, start) for each in found), start
        for path in re.findall(r"tests/[\w/]+\.py", reason):
            assert (ROOT / path).is_file(), path
        if reason.startswith("test_"):
            assert f"\ndef {reason}(" in Path(__file__).read_text("utf-8"), reason


@pytest.mark.parametrize("page", sorted({each.page for each in blocks()}))
def test_every_fence_of_a_page_is_closed_and_says_its_language(page):
    text = (ROOT / page).read_text("utf-8")
    fences = re.findall(r"^```.*$", text, re.MULTILINE)
    languages = [each.language for each in blocks() if each.page == page]
    assert len(fences) == 2 * len(languages)
    assert set(languages) <= {"bash", "console", "hcl", "json", "python", "sql", "text", "yaml"}


@pytest.fixture(scope="module")
def model(model_of):
    """A folder with a small model, as a source in `source` and as a bundle in `bundle`."""
    return Path(model_of(write_tiny_huggingface, layers=4).path).parent


@pytest.fixture
def workspace(tmp_path, monkeypatch, model):
    """A folder with all that the commands of the pages name."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("the bank of the river\nmoney\n\n", encoding="utf-8")
    (tmp_path / "texts" / "b.jsonl").write_text(LINES)
    (tmp_path / "books.csv").write_text("isbn,title,description,author,year\n1,the,bank,a,1999\n")
    shutil.copytree(model / "source", tmp_path / "path" / "to" / "model")
    shutil.copytree(model / "bundle", tmp_path / "bundle")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def commands(text):
    """The words of each command of a block; of our own, those behind `bert-embed`."""
    for line in text.replace("\\\n", " ").splitlines():
        assert _OURS.match(line), f"run or list {line}"
        yield shlex.split(_OURS.sub("", line), comments=True)


def run(words):
    """A command in this process, with a small model unless it names one."""
    if words[0] in ("embed", "estimate", "tokenize") and "--model" not in words:
        words = [*words, "--model", "bundle"]
    assert main(words) == 0, shlex.join(words)


def execute(text, namespace):
    exec(compile(text.replace('"minilm"', '"bundle"'), "block", "exec"), namespace)


@pytest.mark.parametrize("page", sorted({each.page for each in HERE}))
def test_the_blocks_of_a_page_run_one_after_the_other(page, workspace):
    namespace = {"__name__": "__main__"}
    old, new = INSTEAD.get(page, ("", ""))
    for each in (each for each in HERE if each.page == page):
        if each.language == "bash":
            for words in commands(each.text.replace(old, new) if old else each.text):
                run(words)
        elif each.language == "python":
            execute(each.text, namespace)
        else:
            assert each.language == "json", f"compare or list {each}"
            json.loads(each.text)


def test_the_command_for_cloud_storage(workspace, gcs):
    bucket = gcs.client.create_bucket("bucket")
    bucket.blob("texts/b.jsonl").upload_from_string((workspace / "texts/b.jsonl").read_text())
    for words in commands(block("docs/input.md", "bert-embed").text):
        run(words)
    assert list(bert_embed.read("gs://bucket/vectors")[0]) == ["a", "b"]


@pytest.mark.parametrize("dtype", OUTPUT_DTYPES)
def test_every_output_type_is_decoded_as_the_page_says(tmp_path, monkeypatch, model, dtype):
    monkeypatch.chdir(tmp_path)
    Path("in.jsonl").write_text(LINES)
    words = ["embed", "--input=in.jsonl", "--output=build/vectors", f"--output_dtype={dtype}"]
    flags = ["--granularity=sentence,word", "--max_seq_length=16", f"--model={model}/bundle"]
    assert main([*words, *flags]) == 0
    check_python(dtype)
    check_duckdb(dtype)


def check_python(dtype):
    namespace = {}
    page = [each for each in blocks() if (each.page, each.language) == ("docs/output.md", "python")]
    texts = [each.text for each in page]
    first = next(n for n, text in enumerate(texts) if "def decode(" in text)
    decode, texts, footer, words = texts[first : first + 4]
    execute(decode + texts, namespace)
    np.testing.assert_array_equal(namespace["vectors"], bert_embed.read("build/vectors")[1])
    execute(footer, namespace)
    assert namespace["settings"]["output_dtype"] == dtype
    execute(words, namespace)
    *_, last = bert_embed.read_words("build/vectors")
    kept = last.vectors[~np.isnan(last.vectors).any(axis=1)]
    assert len(kept) == 1, "the empty word has no vector"
    np.testing.assert_array_equal(namespace["vectors"], kept)


def query(*names):
    """The statement whose comment names these types, and those before it that define macros."""
    statements = block("docs/output.md", "-- what").text.split(";\n")
    macros = [each for each in statements if "CREATE MACRO" in each]
    return macros, next(each for each in statements if all(name in each for name in names))


def check_duckdb(dtype):
    vectors = bert_embed.read("build/vectors")[1]
    database = duckdb.connect()
    macros, settings = query("parquet_kv_metadata")
    assert json.loads(database.execute(settings).fetchone()[0])["output_dtype"] == dtype
    for macro in macros:
        database.execute(macro)
    if dtype == "ubinary":
        found = database.sql(query("WITH query")[1].replace("try/0", "a")).fetchall()
        assert found[0] == ("a", 0)
    elif dtype == "bfloat16":
        found = database.sql(query("SELECT id", "bfloat16(x)")[1]).fetchall()
        np.testing.assert_array_equal(np.array([row[1] for row in found], np.float32), vectors)
    else:
        nearest = query("list_cosine_similarity")[1]
        found = database.execute(nearest, {"q": vectors[1].tolist()}).fetchall()
        assert found[0][0] == "b"
        assert found[0][1] == pytest.approx(1, abs=1e-3)
    if dtype == "int8":
        found = database.sql(query("x * scale")[1]).fetchall()
        np.testing.assert_allclose([row[1] for row in found], vectors, rtol=1e-6)


def test_duckdb_finds_the_newest_of_each_document(tmp_path, tiny_bundle, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    days = ({"a": "the bank", "b": "a river", "c": "money"}, {"a": "the bank", "b": "a vault"})
    for day, texts in enumerate((*days, days[1] | {"d": "the river"})):
        lines = (json.dumps({"id": name, "text": text}) for name, text in texts.items())
        Path("in.jsonl").write_text("\n".join(lines))
        flags = [f"--output=runs/{day}", "--skip_existing=runs", "--max_deleted=100%"]
        run(["embed", "--input=in.jsonl", "--model", str(tiny_bundle), *flags])
    found = duckdb.sql(block("docs/increments.md", "SELECT").text).fetchall()
    ids, vectors = bert_embed.read("runs")
    assert sorted(row[0] for row in found) == sorted(ids) == ["a", "b", "d"]
    stored = {row[0]: row[1] for row in found}
    np.testing.assert_array_equal([stored[name] for name in ids], vectors)


def test_a_vector_of_zeros_is_not_the_nearest(tmp_path, monkeypatch):
    """Its cosine is NaN in DuckDB, which sorts as the greatest number."""
    vectors = np.array([[0, 0], [1, 0], [0.6, 0.8], [-1, 0]], np.float32)
    (tmp_path / "build/vectors/embeddings").mkdir(parents=True)
    embedding = pa.FixedSizeListArray.from_arrays(vectors.ravel(), 2)
    table = pa.table({"id": ["zero", "same", "near", "far"], "embedding": embedding})
    pq.write_table(table, tmp_path / "build/vectors/embeddings/part-0000000-00000.parquet")
    monkeypatch.chdir(tmp_path)
    nearest = query("list_cosine_similarity")[1]
    found = duckdb.execute(nearest, {"q": vectors[1].tolist()}).fetchall()
    assert [row[0] for row in found] == ["same", "near", "zero", "far"]
    scores = cosines(vectors, unit_length(vectors[1]))  # as `search` computes them
    np.testing.assert_allclose([row[1] for row in found], scores[[1, 2, 0, 3]], atol=1e-6)


@pytest.fixture(scope="module")
def printed(tmp_path_factory, minilm):
    """What `make embed` prints for some of its texts, in a folder of its own, and the folder."""
    folder = tmp_path_factory.mktemp("reference")
    source, output = folder / "build/language_reference.jsonl", folder / "build/language_reference"
    source.parent.mkdir()
    program("examples/write_language_reference.py", source)
    lines = source.read_text("utf-8").splitlines(keepends=True)
    some = [line for line in lines if line.startswith(TOPICS) or len(line) > 1500]
    assert len(lines) > 1000 > len(some) > 100
    source.write_text("".join(some), "utf-8")
    words = ["embed", "--input", source, "--output", output]
    return shown([*words, f"--block_bytes={source.stat().st_size // 2 + 1}"]), folder


def shown(words):
    """What one of our commands prints, in this process."""
    with io.StringIO() as text, redirect_stdout(text), redirect_stderr(text):
        assert main([*map(str, words)]) == 0
        return text.getvalue()


def program(path, *words):
    """What a program prints, in this process."""
    with io.StringIO() as text, redirect_stdout(text), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(path), *map(str, words)])
        with suppress(SystemExit):
            runpy.run_path(str(ROOT / path), run_name="__main__")
        return text.getvalue()


def masked(text):
    """The lines of a text but for those of progress; numbers, sizes and the place left out."""
    progress = r"\d{4}-\d\d-\d\d "  # a slow machine's
    lines = [line for line in text.splitlines() if not re.match(progress, line)]
    return [
        re.sub(r"[\d,.]*\d(?: [kM]B)?", "#", re.sub(r"\S+/build/", "…/build/", line))
        for line in lines
    ]


def test_the_readme_shows_what_its_commands_print(printed):
    assert masked(printed[0]) == masked(block("README.md", "1 file, ").text)
    for session in block("README.md", "$ ").text.split("$ ")[1:]:
        command, sample = session.split("\n", 1)
        words = next(commands(command))
        words[1] = str(printed[1] / words[1])
        hits = masked(shown(words))
        assert len(hits) == len(sample.splitlines())
        assert hits[::2] == masked(sample)[::2], "ranks, scores and the topics' names"


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_python_of_a_page_gives_these_shapes(page, printed, monkeypatch):
    monkeypatch.chdir(printed[1])
    namespace, checked = {}, 0
    text = block(page, "import bert_embed").text
    exec(text, namespace)
    for line in text.splitlines():
        expression, _, shape = line.partition("  # float32 ")
        if shape:
            assert list(eval(expression, namespace).shape) == json.loads(shape)
            checked += 1
    assert checked == 3
    assert len(namespace["ids"]) == len(namespace["vectors"]) > 100


def test_the_two_senses_of_bank(minilm):
    text = block("docs/how_it_works.md", "$ .venv/bin/python -m examples.bank").text
    command, *sample = text.split("\n")
    module, *words = shlex.split(command)[3:]
    lines = masked(program(f"{module.replace('.', '/')}.py", *words))
    wanted = [line for line in masked("\n".join(sample)) if line.strip() != "…"]
    assert len(wanted) == 3
    assert set(wanted) <= set(lines)


CHUNKS = replace(kept_windows(), name="chunk")


def documented_columns():
    """The columns of each folder as docs/output.md lists them, those of lists below their list."""
    page = (ROOT / "docs" / "output.md").read_text("utf-8")
    for folder, cell in re.findall(r"^\| `(\w+)/`[^|]* \| (`.*) \|$", page, re.MULTILINE):
        cell = re.sub(r" \([^)]*\)", "", cell)
        yield folder, ["id", *re.findall(r"`(\w+)`", cell)]


def test_the_page_lists_every_column_of_every_folder(tmp_path):
    found = {}
    for number, (block, settings) in enumerate(
        (
            (every_kind(), {}),
            (embedding_block(vectors=numbers(4), windows=kept_windows()), {"long_text": "windows"}),
            (embedding_block(vectors=numbers(4), windows=CHUNKS), {"chunk": "sentence"}),
            (with_heads(scores=None), {}),
        )
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, block, described(block, **settings))
        for path in folder.glob("*/*.parquet"):
            columns = found[path.parent.name] = []
            for field in pq.read_schema(path):
                columns.append(field.name)
                if field.name in ("tokens", "words"):
                    columns += [each.name for each in field.type.value_type]
    assert found == dict(documented_columns())
