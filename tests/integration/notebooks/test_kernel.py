"""Pipelines in a notebook's own kernel, with a pandas of which Beam's DataFrames know nothing.

`make notebooks` runs this file: its environment has a kernel.
"""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]


def outputs_of(folder, *cells):
    """What a saved notebook has below its last cell, after all ran in one kernel."""
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))
    NotebookClient(notebook, resources={"metadata": {"path": str(folder)}}).execute()
    return notebook.cells[-1].outputs


def printed(folder, *cells):
    """What the last cell of a notebook prints, and nothing else may be shown but progress."""
    outputs = outputs_of(folder, *cells)
    outputs = [output for output in outputs if output.output_type != "display_data"]
    assert {output.output_type for output in outputs} == {"stream"}, outputs
    return "".join(output.text for output in outputs if output.name == "stdout")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder of a notebook, with a text; the kernel imports this repository."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT)]))
    (tmp_path / "in.txt").write_text("one text\ntwo\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "flags",
    [[], ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]],
    ids=["threads", "processes"],
)
def test_a_corpus_is_embedded(folder, tiny_bundle, flags):
    cell = (
        "import bert_embed\nfrom apache_beam import pipeline\n"
        "kept = pipeline.alter_label_if_ipython\n"
        f"run = bert_embed.embed('in.txt', 'out', model={tiny_bundle!r}, beam_args={flags})\n"
        "print(run['status'], pipeline.alter_label_if_ipython is kept)"
    )
    assert printed(folder, cell).endswith("\ndone True\n")


def test_the_progress_is_one_line_of_the_notebook(folder, tiny_bundle):
    """Shown by a thread beside the cell's own, and none of it is on stderr."""
    cell = (
        "import bert_embed, time\n"
        "from bert_embed.backends import runner\n"
        "pad = runner.pad_rows\n"
        "runner.pad_rows = lambda *rows: (time.sleep(0.2), pad(*rows))[1]\n"
        "open('many.txt', 'w').write('\\n'.join(f'the bank {n}' for n in range(64)))\n"
        f"run = bert_embed.embed('many.txt', 'out', model={tiny_bundle!r}, batch_tokens=64)\n"
        f"encoder = bert_embed.load({tiny_bundle!r})\n"
        "_ = encoder.encode(['the bank'] * 50, batch_tokens=64, show_progress_bar=True)"
    )
    outputs = outputs_of(folder, cell)
    shown = [output.data["text/plain"] for output in outputs if "data" in output]
    assert len(shown) <= 3, shown  # the run, its report if that takes a while, the call
    assert any("%" in line for line in shown), shown
    assert "50 of 50 texts" in shown[-1]
    written = "".join(output.text for output in outputs if output.get("name") == "stderr")
    assert "%" not in written
    assert "texts/s" not in written


@pytest.mark.parametrize(
    "transform",
    [
        "bert_embed.EmbedDocuments({!r}, as_numpy=True)",
        "MLTransform(write_artifact_location='artifacts').with_transform("
        "bert_embed.BertEmbeddings({!r}, ['text']))",
    ],
    ids=["EmbedDocuments", "BertEmbeddings"],
)
def test_a_pipeline_of_ones_own_runs(folder, tiny_bundle, transform):
    """Its first step comes before our transform is created."""
    imports = (
        "import apache_beam as beam, bert_embed\n"
        "from apache_beam.ml.transforms.base import MLTransform\n"
        "bert_embed.EmbedDocuments"
    )
    cell = (
        "with beam.Pipeline(runner='FnApiRunner') as pipeline:\n"
        "    texts = pipeline | beam.Create([{'text': 'one'}], reshuffle=False)\n"
        f"    out = texts | {transform.format(tiny_bundle)}\n"
        "    out = out[0] if isinstance(out, dict) else out\n"
        "    _ = out | 'Show' >> beam.Map(lambda row: print(*row))"
    )
    assert printed(folder, imports, cell).split() in (["text", "embedding"], ["text"])
