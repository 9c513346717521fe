"""The classifier example learns from the examples that `tokenize` wrote."""

import re
import sys

import numpy as np
import pytest

from examples import train_classifier
from tests.support.command import write_json

pytestmark = pytest.mark.slow

TOPICS = {"money": ["money", "vault"], "water": ["river", "water"]}


@pytest.fixture
def train(tmp_path, tiny_bundle, command, monkeypatch):
    """Trains on texts by their ids, with the lines of a file of labels."""

    def trained(texts, labels, model=tiny_bundle):
        (tmp_path / "labels.tsv").write_text(labels)
        records = ({"id": name, "text": text} for name, text in texts.items())
        source, examples = write_json(tmp_path / "in.jsonl", *records), tmp_path / "examples"
        command("tokenize", input=source, output=examples, model=tiny_bundle)
        words = [f"--examples={examples}", f"--labels={tmp_path}/labels.tsv", "--epochs=30"]
        monkeypatch.setattr(sys, "argv", ["train_classifier", *words, f"--model={model}"])
        train_classifier.main()

    return trained


def test_a_keras_classifier_learns_topics(tmp_path, tiny_bundle, command, train, capsys):
    rng = np.random.default_rng(3)
    texts, labels = {}, []
    for number in range(400):
        topic = ("money", "water")[number % 2]
        words = [*rng.choice(TOPICS[topic], 6), *rng.choice(["the", "of"], rng.integers(1, 4))]
        texts[f"t{number}"] = " ".join(rng.permutation(words))
        labels.append(f"t{number}\t{topic}")
    command("model", "export", tiny_bundle, tmp_path / "saved_model")
    train(texts, "\n".join(labels[:390]), tmp_path / "saved_model")
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
)
def test_what_cannot_be_learnt_from_ends_in_one_sentence(train, labels, message):
    with pytest.raises(SystemExit, match=message):
        train(dict.fromkeys("abc", "money"), labels)
