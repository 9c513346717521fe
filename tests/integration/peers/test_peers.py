"""Rows of docs/migrating.md about fastembed and PyLate, run on both sides (make test-ecosystem)."""

import json

import numpy as np
import pytest
import torch
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from pylate.models import ColBERT
from transformers import AutoModel, AutoTokenizer

import bert_embed
from tests.support.models.multi_vectors import TEXTS, write_multi_vectors
from tests.support.models.sentence_transformers import write_sentence_transformers

QUERIES = ["the bank", "money"]


@pytest.mark.parametrize("case", ["pylate", "pylate_bert"])
def test_pylate_takes_texts_for_queries_unless_told(tmp_path, case):
    write_multi_vectors(tmp_path / "model", case)
    modules = tmp_path / "model" / "modules.json"  # PyLate 1.6 wants sentence-transformers 5.3
    of_six = "sentence_transformers.base.modules.transformer.Transformer"
    modules.write_text(
        modules.read_text().replace(of_six, "sentence_transformers.models.Transformer")
    )
    theirs = ColBERT(str(tmp_path / "model"), device="cpu")
    ours = bert_embed.load(tmp_path / "model")
    for wanted, found in (
        (theirs.encode(list(TEXTS), is_query=False), ours.encode(TEXTS, kind="multi")),
        (theirs.encode(QUERIES), ours.encode_query(QUERIES, kind="multi")),
    ):
        assert len(wanted) == len(found)
        for one, other in zip(wanted, found, strict=True):
            np.testing.assert_allclose(other, one, atol=1e-5)


class States(torch.nn.Module):
    """A model with three inputs by place and one output, as ONNX has it."""

    def __init__(self, folder):
        super().__init__()
        self.model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()

    def forward(self, ids, mask, segments):
        found = self.model(input_ids=ids, attention_mask=mask, token_type_ids=segments)
        return found.last_hidden_state


def as_onnx(folder):
    """Puts the model of a folder beside itself as fastembed wants it."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.save_pretrained(folder)
    names = ["input_ids", "attention_mask", "token_type_ids"]
    inputs = tokenizer(["the bank of the river"], return_tensors="pt")
    (folder / "onnx").mkdir()
    torch.onnx.export(
        States(folder),
        tuple(inputs[name] for name in names),
        folder / "onnx" / "model.onnx",
        input_names=names,
        output_names=["out"],
        dynamic_axes={name: {0: "batch", 1: "tokens"} for name in names},
        dynamo=False,
    )


def test_fastembed_adds_no_prompt_and_cuts_at_the_least_length(tmp_path):
    folder = tmp_path / "model"
    write_sentence_transformers(folder, prompts={"query": "find: "})
    ours = bert_embed.load(folder)
    as_onnx(folder)
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_length": 12}))
    source = ModelSource(hf="tests/tiny")
    TextEmbedding.add_custom_model("tests/tiny", PoolingType.MEAN, False, source, dim=32)
    theirs = TextEmbedding("tests/tiny", specific_model_path=str(folder))
    texts = ["money", "the bank of the river " * 9]
    wanted = ours.encode(texts, prompt="", max_seq_length=12)
    np.testing.assert_allclose(list(theirs.embed(texts)), wanted, atol=1e-5)
    np.testing.assert_allclose(list(theirs.query_embed(texts)), wanted, atol=1e-5)
    assert np.abs(ours.encode_query(texts, max_seq_length=12) - wanted).max() > 0.01
    assert np.abs(ours.encode(texts, prompt="")[1] - wanted[1]).max() > 0.01
