"""The classifier example learns from the examples that `tokenize` wrote."""

import json
import re
import sys

import numpy as np
import pytest

from bert_embed.pipeline.cli import main
from examples import train_classifier

pytestmark = pytest.mark.slow

TOPICS = {"money": ["money", "vault"], "water": ["river", "water"]}


def test_a_keras_classifier_learns_topics(tmp_path, tiny_bundle, monkeypatch, capsys):
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
    assert main(["tokenize", *words]) == 0
    saved_model = str(tmp_path / "saved_model")
    assert main(["model", "export", tiny_bundle, saved_model]) == 0
    monkeypatch.setattr(sys, "argv", ["train_classifier", *flags(tmp_path, saved_model)])
    train_classifier.main()
    said = capsys.readouterr().out
    assert "classes money, water" in said
    assert float(re.search(r"held out ([\d.]+)", said)[1]) > 0.85


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("a\tx\nb\ty\nc\tx\n", "3 rows of --examples have a label, too few"),
        ("a\tx\nb\tx\n", "names 1 classes, a classifier needs at least 2"),
        ("a\tx\nb y\n", "labels.tsv, line 2 has no tab between id and label"),
    ],
    ids=["three rows", "one class", "no tab"],
)
def test_what_cannot_be_learnt_from_ends_in_one_sentence(
    tmp_path, tiny_bundle, monkeypatch, labels, message
):
    lines = [{"id": name, "text": "money"} for name in ("a", "b", "c")]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "labels.tsv").write_text(labels)
    words = [f"--input={tmp_path}/in.jsonl", f"--output={tmp_path}/examples"]
    assert main(["tokenize", *words, f"--model={tiny_bundle}"]) == 0
    monkeypatch.setattr(sys, "argv", ["train_classifier", *flags(tmp_path, tiny_bundle)])
    with pytest.raises(SystemExit, match=message):
        train_classifier.main()


def flags(folder, model):
    made = [f"--examples={folder}/examples", f"--labels={folder}/labels.tsv", "--epochs=30"]
    return [*made, f"--model={model}"]
