"""EmbedDocuments in Beam YAML, which runs in the environment of the notebooks."""

import re
from pathlib import Path

import pytest
from apache_beam.yaml import main

pytestmark = pytest.mark.slow


def test_the_manual_runs_as_it_stands(tiny_bundle, tmp_path, monkeypatch):
    """Outputs have names, and rows fields that the next step uses."""
    monkeypatch.chdir(tmp_path)
    manual = (Path(__file__).resolve().parents[3] / "docs" / "beam.md").read_text("utf-8")
    [block] = re.findall(r"```yaml\n(.*?)```", manual, re.DOTALL)
    Path("texts.txt").write_text("one text\n \n", "utf-8")
    specification = block.replace("minilm", tiny_bundle)
    main.run([f"--yaml_pipeline={specification}", "--runner=FnApiRunner"])
    [vectors], [rejected] = tmp_path.glob("vectors*"), tmp_path.glob("rejected*")
    [vector] = vectors.read_text("utf-8").splitlines()
    assert len(list(map(float, vector.split()))) == 32
    assert rejected.read_text("utf-8").splitlines() == ["empty text"]
