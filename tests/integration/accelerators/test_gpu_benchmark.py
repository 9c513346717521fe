"""The benchmark for machines with a GPU, with tiny models on this processor."""

import json
import subprocess
import sys

from tests.support.command import ROOT, ran


def test_it_needs_what_it_carries_alone(tmp_path):
    script = [sys.executable, "-m", "benchmarks.gpu"]
    subprocess.run([*script, "--carry", tmp_path / "carried"], cwd=ROOT, check=True)
    size = sum(path.stat().st_size for path in (tmp_path / "carried").iterdir())
    assert size < 64 << 20
    words = ["--quick", "--model", tmp_path / "carried", "--output", tmp_path / "gpu.json"]
    variables = {"JAX_PLATFORMS": "cpu", "BERT_EMBED_CACHE": str(tmp_path / "empty")}
    done = ran([*script, *words], **variables)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert json.loads(done.stdout) == found
    ours = found["sides"]["jax"]
    assert ours["TensorFlow was imported"] is False
    assert {name.partition(",")[0] for name in ours["figures"]} == {
        *("MiniLM", "bert-base", "ModernBERT")
    }
    for figures in ours["figures"].values():
        for name in ("engine", "end to end", "host", "program of 8 rows"):
            assert figures[f"{name}, tokens/s"] > 0
    if found["sides"]["torch"] != {"missing": "torch is not installed here"}:
        assert found["least cosine of MiniLM's vectors"] > 0.9999
