"""The classifier example learns from the examples that `tokenize` wrote."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from pipeline.cli import main

ROOT = Path(__file__).resolve().parents[1]
TOPICS = {"money": ["money", "vault"], "water": ["river", "water"]}


def test_a_keras_classifier_learns_topics(tmp_path, tiny_bundle):
    rng = np.random.default_rng(3)
    texts, labels = [], []
    for number in range(400):
        topic = ("money", "water")[number % 2]
        words = [*rng.choice(TOPICS[topic], 6), *rng.choice(["the", "of"], rng.integers(1, 4))]
        texts.append(json.dumps({"id": f"t{number}", "text": " ".join(rng.permutation(words))}))
        labels.append(f"t{number}\t{topic}")
    (tmp_path / "in.jsonl").write_text("\n".join(texts))
    (tmp_path / "labels.tsv").write_text("\n".join(labels[:390]))
    examples = tmp_path / "examples"
    words = [f"--input={tmp_path}/in.jsonl", f"--output={examples}", f"--model={tiny_bundle}"]
    assert main(["tokenize", *words, "--compression=gzip"]) == 0
    flags = [f"--examples={examples}", f"--labels={tmp_path}/labels.tsv", "--epochs=30"]
    done = subprocess.run(
        [sys.executable, "-m", "examples.train_classifier", *flags, f"--model={tiny_bundle}"],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "classes money, water" in done.stdout
    assert float(re.search(r"held out ([\d.]+)", done.stdout)[1]) > 0.85
