"""Runs with static models, which have neither layers nor special tokens."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

from bert_embed.encoder import Encoder
from bert_embed.importers.huggingface import import_huggingface
from bert_embed.pipeline.cli import main
from bert_embed.pipeline.errors import ExitCode
from tests.support.models.static import ENTRIES, GOLDEN, LONG, TEXTS, write_static


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    place = tmp_path_factory.mktemp("static")
    write_static(place / "source", "plain")
    return import_huggingface(str(place / "source"), str(place / "bundle"))


@pytest.fixture
def flags(tmp_path, bundle):
    (tmp_path / "in.txt").write_text("\n".join([*TEXTS, LONG]), encoding="utf-8")
    flags = {"input": tmp_path / "in.txt", "output": tmp_path / "out", "model": bundle.path}
    return [f"--{name}={value}" for name, value in flags.items()] + ["--max_rejected=1"]


def test_a_run_gives_the_librarys_vectors_of_texts_of_any_length(tmp_path, flags, capfd):
    assert main(["embed", *flags, "--granularity=sentence,token"]) == ExitCode.DONE
    table = pq.read_table(tmp_path / "out" / "embeddings")
    found = np.array(table["embedding"].to_pylist(), np.float32)
    wanted = np.load(GOLDEN)["plain"][[bool(text) for text in (*TEXTS, LONG)]]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert "texts of any length" in capfd.readouterr().err
    tokens = pq.read_table(tmp_path / "out" / "tokens").to_pylist()[0]
    assert [token["token"] for token in tokens["tokens"]] == ["the", "bank", "of", "the", "river"]
    assert table["num_tokens"][0].as_py() == 5


def test_windows_of_examples_have_the_characters_of_the_texts(tmp_path, flags):
    cut = ["--long_text=window", "--max_seq_length=4", "--overlap=1"]
    assert main(["tokenize", *flags, *cut]) == ExitCode.DONE
    flags[1] = f"--output={tmp_path / 'direct'}"
    assert main(["embed", *flags, *cut, "--long_text=windows"]) == ExitCode.DONE
    flags[:2] = f"--input={tmp_path / 'out'}", f"--output={tmp_path / 'read'}"
    assert main(["embed", *flags, "--long_text=windows"]) == ExitCode.DONE
    found = pq.read_table(tmp_path / "read" / "windows")
    assert found == pq.read_table(tmp_path / "direct" / "windows")
    assert found["stop"].to_pylist()[0] == len("the bank of the")


def test_vectors_of_zeros_are_told_of(tmp_path, flags, capsys):
    """As of a text of words that the table of a static model has no numbers for."""
    write_static(tmp_path / "source", "plain")
    weights = tmp_path / "source" / "0_StaticEmbedding" / "model.safetensors"
    table = load_file(weights)["embedding.weight"].copy()
    table[ENTRIES.index("money")] = 0
    save_file({"embedding.weight": table}, weights)
    (tmp_path / "in.txt").write_text("the bank\nmoney\nmoney money\n", encoding="utf-8")
    assert main(["embed", *flags, f"--model={tmp_path / 'source'}"]) == ExitCode.DONE
    said = "2 vectors are all zeros: their cosine with any other is 0 here"
    assert said in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "run.json").read_text())["zero_vectors"] == 2
    assert "2 of zeros" in (tmp_path / "out" / "report.html").read_text("utf-8")


def test_a_query_without_a_token_is_told_of(tmp_path, flags, capsys):
    assert main(["embed", *flags]) == ExitCode.DONE
    capsys.readouterr()
    assert main(["search", str(tmp_path / "out"), "\u200b"]) == ExitCode.DONE
    assert capsys.readouterr().err.startswith("note: 1 of 1 query without a known token: ")
    assert main(["search", str(tmp_path / "out"), "bank"]) == ExitCode.DONE
    assert capsys.readouterr().err == ""


def test_chunks_are_the_means_of_their_tokens(tmp_path, bundle, flags):
    assert main(["embed", *flags, "--chunk=tokens:3"]) == ExitCode.DONE
    chunks = pq.read_table(tmp_path / "out" / "chunks").to_pylist()[:2]
    assert [chunk["num_tokens"] for chunk in chunks] == [3, 2]
    wanted = Encoder(bundle, threads=1).encode(["the bank of", "the river"])
    np.testing.assert_allclose([chunk["embedding"] for chunk in chunks], wanted, atol=1e-6)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--precision=int8", "--precision int8 does not compute this model, a table"),
        ("--engine=litert", "--engine litert does not compute this model"),
    ],
)
def test_what_is_for_layers_is_refused_before_the_job(tmp_path, flags, capfd, flag, message):
    assert main(["embed", *flags, flag]) == ExitCode.USAGE
    assert message in capfd.readouterr().err
    assert not (tmp_path / "out").exists()
