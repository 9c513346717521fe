"""bert-embed model import, inspect, verify."""

import json
import shutil

import pytest

from bert_embed.bundle.bundle import load_tensors, read_bundle
from tests.support.command import flip
from tests.support.models.heads import write_classifier
from tests.support.models.sentence_transformers import QUERY, write_case
from tests.support.models.tiny import write_tiny_huggingface

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sentence_bundle(model_of):
    return model_of(write_case, "prompts").path


def test_an_import_says_what_it_made(tmp_path, command):
    write_tiny_huggingface(tmp_path / "source")
    said = command("model", "import", tmp_path / "source", tmp_path / "bundle").out
    bundle = read_bundle(tmp_path / "bundle")
    assert said == (
        f"{bundle.path}: 2 layers of 32, gelu, WordPiece, lower case, words of up to 100 "
        f"characters, 211 entries, fingerprint {bundle.fingerprint}\n"
    )


def test_inspect_tells_what_the_model_is(sentence_bundle, command):
    lines = command("model", "inspect", sentence_bundle).out.splitlines()
    rows = {name: value.strip() for name, value in (line.split("  ", 1) for line in lines)}
    bundle = read_bundle(sentence_bundle)
    wanted = {
        "fingerprint": bundle.fingerprint,
        "config.num_hidden_layers": "2",
        "has_pooler": "true",
        "tokenizer.lower_case": "true",
        "max_seq_length": "64",
        "defaults.pooling": "mean,weightedmean,max",
        "defaults.normalize": "true",
        "width": "16",
        "prompts.document": '""',
        "prompts.query": QUERY.strip(),
        "default_prompt": "query",
    }
    assert {name: rows[name] for name in wanted} == wanted
    facts = json.loads(command("model", "inspect", sentence_bundle, "--json").out)
    parameters = sum(array.size for array in load_tensors(bundle).values())
    assert (facts["config"], facts["parameters"]) == (bundle.config.to_dict(), parameters)
    assert facts["defaults"] == bundle.defaults.to_dict()
    assert facts["weight_bytes"] >= 4 * parameters


def test_inspect_names_the_kinds_of_vectors(model_of, command):
    bundle = model_of(write_classifier, "distilbert", 2).path
    assert '["scores"]\n' in command("model", "inspect", bundle).out
    facts = json.loads(command("model", "inspect", bundle, "--json").out)
    assert facts["heads"]["scores"]["labels"] == ["label 0", "label 1"]
    assert facts["default_vectors"] == ["scores"]


def test_inspect_prints_tokens_ids_and_offsets(command, minilm):
    lines = command("model", "inspect", "minilm", "--text", "Café embeddings").out.splitlines()
    assert [line.split() for line in lines] == [
        ["[CLS]", "101"],
        ["cafe", "7668", "0:4"],
        ["em", "7861", "5:7"],
        ["##bed", "8270", "7:10"],
        ["##ding", "4667", "10:14"],
        ["##s", "2015", "14:15"],
        ["[SEP]", "102"],
    ]


def test_verify_prints_its_figures(sentence_bundle, command):
    said = command("model", "verify", sentence_bundle)
    assert said.err == ""
    assert said.out.startswith(
        f"{sentence_bundle}: 5 files unchanged; dense_output, hidden_states, "
        "last_hidden_state, pooler_output of the fixed sentences: largest difference "
    )
    figures = json.loads(command("model", "verify", sentence_bundle, "--json").out)
    assert (figures["damaged"], figures["problem"], figures["same_tokens"]) == ([], "", True)
    assert figures["max_difference"] < 1e-5
    assert figures["least_cosine"] > 0.99999


def test_verify_ends_with_1_where_a_file_differs(tiny_bundle, tmp_path, command):
    copy = shutil.copytree(tiny_bundle, tmp_path / "copy")
    flip(copy / "vocab.txt", 0)
    said = command("model", "verify", copy, code=1)
    assert said.out == ""
    assert said.err.startswith(f"error: {copy}: ")
    assert "vocab.txt is damaged or was changed (sha256 " in said.err
    assert said.err.endswith("; remove the folder and import the model again\n")
    flip(copy / "vocab.txt", 0)
    flip(copy / "weights.safetensors")
    figures = json.loads(command("model", "verify", copy, "--json", code=1).out)
    assert figures["damaged"] == ["weights.safetensors"]
    nothing = figures["outputs"], figures["max_difference"], figures["least_cosine"]
    assert nothing == ([], None, None)  # which was not computed
