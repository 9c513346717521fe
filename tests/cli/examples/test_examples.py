"""The examples say what they should: ranks, formats, senses of a word, what a stream brings."""

import gzip
import json
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import bert_embed
from examples import bank_cosines, compare_precisions, sts_benchmark, train_classifier
from examples.bank_cosines import SENTENCE, banks
from examples.sts_benchmark import Pair, read_pairs, spearman
from tests.support.command import PRISM, ROOT, runner_flags, write_json
from tests.support.forks import python

pytestmark = pytest.mark.slow
PAIRS = ROOT / "tests" / "data" / "graded_pairs.tsv"
STATES = ROOT / "tests" / "data" / "minilm_hidden_states"
# "After stealing money from the bank vault, ...": bert-base-uncased's ids, as the tutorial prints.
BANK_IDS = [101, 2044, 11065, 2769, 2013, 1996, 2924, 11632, 1010, 1996, 2924, 27307, 2001, 2464]
BANK_IDS += [5645, 2006, 1996, 5900, 2314, 2924, 1012, 102]


def figure(printed, name):
    return float(re.search(rf"^{name} +(-?[\d.]+)$", printed, re.MULTILINE)[1])


def test_the_model_ranks_graded_pairs_as_they_were_written(minilm, capsys):
    assert sts_benchmark.main([str(PAIRS)]) == 0
    measured = capsys.readouterr().out
    assert "60 pairs" in measured
    assert 70 < figure(measured, "Spearman") < 90
    assert 70 < figure(measured, "Pearson") < 90


def test_spearman_equals_known_values():
    tied = spearman(np.arange(5.0), np.array([5.0, 6, 7, 8, 7]))
    assert tied == pytest.approx(0.8207826816681233, abs=1e-12)
    assert np.isnan(spearman(np.ones(4), np.arange(4.0)))


def test_every_form_gives_the_same_pairs(tmp_path):
    lines = [
        {"sentence1": 'a "b', "sentence2": "c, d", "score": 2.5},
        {"sentence1": "e", "sentence2": "f", "similarity_score": 0, "split": "test"},
    ]
    header = "split\tscore\tsentence1\tsentence2\n"
    for name, text in (
        ("original.csv", 'g\tf\ty\t1\t2.500\ta "b\tc, d\ng\tf\ty\t2\t0\te\tf\tlicence\n'),
        ("header.tsv", f'{header}test\t2.5\ta "b\tc, d\ndev\t1\tx\ty\ntest\t0\te\tf\n'),
        ("plain.csv", '"a ""b","c, d",2.5\ne,f,0\n'),
        ("pairs.jsonl.gz", "\n\n".join(map(json.dumps, lines))),
    ):
        data = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
        assert read_pairs(tmp_path / name) == [Pair('a "b', "c, d", 2.5), Pair("e", "f", 0.0)]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "x,y,1\nx,y,none\n", "line 2: a pair must have"),
        ("a.csv.gz", "not packed", "cannot be read"),
        ("a.csv", "x,y,1\n", "at least 2 pairs"),
    ],
)
def test_a_file_of_something_else_is_refused_with_its_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_pairs(tmp_path / name)


def test_a_wrong_command_line_ends_with_a_sentence(tmp_path, capsys):
    for main, words in (
        (sts_benchmark.main, [f"{tmp_path}/none.csv"]),
        (bank_cosines.main, [f"--model={tmp_path}/none"]),
    ):
        assert main(words) == 2
        assert f"{tmp_path}/none" in capsys.readouterr().err


def test_bank_vectors_are_the_sum_of_the_last_four_layers(minilm):
    """Those of the same sense are nearer; by 1 as the type of all tokens, too."""
    stored = json.loads(STATES.with_suffix(".json").read_text("utf-8"))["examples"]
    (number,) = [one["index"] for one in stored if one["text_a"] == SENTENCE]
    layers = np.load(STATES.with_suffix(".npz"))[f"hidden_states_{number}"]
    wanted = layers[-4:].sum(axis=0)[[6, 10, 19]]
    found = [banks(minilm, token_types) for token_types in (0, 1)]
    np.testing.assert_allclose(found[0].vectors, wanted, atol=4e-4)
    for each in found:
        assert each.input_ids.tolist() == BANK_IDS
        assert each.places == (6, 10, 19)
        assert each.cosine(1, 0) > each.cosine(1, 2) + 0.03


def test_the_table_of_precisions_shows_what_each_loses(minilm, tmp_path, capsys):
    texts = [text for pair in read_pairs(PAIRS) for text in (pair.first, pair.second)]
    lines = (json.dumps({"title": text}) for text in dict.fromkeys(texts))
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    words = [str(tmp_path / "in.jsonl"), str(tmp_path / "out"), "--text_column=title"]
    assert compare_precisions.main(words) == 0
    titles, *rows = capsys.readouterr().out.splitlines()
    assert titles.endswith("rank correlation")
    names = [row[:7].rstrip() for row in rows]
    assert names == ["float32", "int8", "ubinary", "dim 128"]
    sizes = [int(row[7:].split()[0].replace(",", "")) for row in rows]
    assert sizes[0] > sizes[1] > sizes[2]
    tenth = [float(re.findall(r"\d\.\d{3}", row)[3]) for row in rows[1:3]]
    assert 1 >= tenth[0] > tenth[1] > 0.3
    write_json(tmp_path / "bad", {"title": "a"}, {"title": 7})
    for source in ("none", "bad"):
        assert (
            compare_precisions.main([str(tmp_path / source), str(tmp_path / "new"), words[2]]) == 2
        )


TOPICS = {"money": ["money", "vault"], "water": ["river", "water"]}


def test_a_keras_classifier_learns_topics(tmp_path, tiny_bundle, command, monkeypatch, capsys):
    rng = np.random.default_rng(3)
    records, labels = [], []
    for number in range(400):
        topic = ("money", "water")[number % 2]
        words = [*rng.choice(TOPICS[topic], 6), *rng.choice(["the", "of"], rng.integers(1, 4))]
        records.append({"id": f"t{number}", "text": " ".join(rng.permutation(words))})
        labels.append(f"t{number}\t{topic}")
    (tmp_path / "labels.tsv").write_text("\n".join(labels[:390]))
    source, examples = write_json(tmp_path / "in.jsonl", *records), tmp_path / "examples"
    command("tokenize", input=source, output=examples, model=tiny_bundle)
    command("model", "export", tiny_bundle, tmp_path / "model")
    words = [f"--examples={examples}", f"--labels={tmp_path}/labels.tsv", "--epochs=30"]
    monkeypatch.setattr(sys, "argv", ["train_classifier", *words, f"--model={tmp_path}/model"])
    train_classifier.main()
    said = capsys.readouterr().out
    assert "classes money, water" in said
    assert float(re.search(r"held out ([\d.]+)", said)[1]) > 0.85


SECONDS = 150  # that the stream goes on; a busy machine takes a minute to begin


def put(folder, name, text):
    """Moves a finished file into a folder that is watched."""
    (folder.parent / name).write_text(text, encoding="utf-8")
    (folder.parent / name).rename(folder / name)


def written(folder):
    paths = sorted(folder.glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text("utf-8").splitlines()]


def wait_for(stream, folder, count):
    """What was written once there are so many records, while the stream still goes on."""
    while len(written(folder)) < count:
        assert stream.poll() is None, "the stream ended before its records came"
        time.sleep(0.2)
    return written(folder)


def test_lines_are_embedded_as_their_files_appear(minilm, tmp_path):
    runner_flags("prism")  # else skipped
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    put(source, "a.txt", "one text\n\nanother text\n")
    command = [*python(), "-m", "examples.embed_stream", str(source / "*.txt"), str(out)]
    command += [str(SECONDS), "--prism_location", str(PRISM)]
    with (tmp_path / "log").open("w") as log:
        stream = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
    try:
        first = wait_for(stream, out, 3)
        put(source, "b.txt", "a later text\n")
        records = wait_for(stream, out, 4)
        assert stream.poll() is None
    finally:
        stream.send_signal(signal.SIGINT)  # as Ctrl-C: Prism ends with it
        stream.wait(timeout=60)
    assert sorted(each.get("text", "") for each in first) == ["", "another text", "one text"]
    embedded = {each["text"]: each["embedding"] for each in records if "text" in each}
    rejected = [each for each in records if "text" not in each]
    assert rejected == [{"stage": "input", "reason": "empty text", "record": ""}]
    texts = sorted(embedded)
    assert texts == ["a later text", "another text", "one text"]
    wanted = bert_embed.load("minilm").encode(texts)
    np.testing.assert_allclose([embedded[text] for text in texts], wanted, atol=1e-5)
