"""Rows of docs/migrating.md, run on both sides."""

import numpy as np
import pandas as pd
import pytest
from model2vec import StaticModel
from sentence_transformers import SentenceTransformer

import bert_embed
from tests.support.models.sentence_transformers import write_sentence_transformers
from tests.support.models.static import TEXTS, write_static

COLUMN = pd.Series(["a bank", "money"])


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("both") / "model"
    write_sentence_transformers(folder, prompts={"query": "find: "})
    return SentenceTransformer(str(folder), device="cpu"), bert_embed.load(folder)


def test_a_column_of_pandas(both):
    theirs, ours = both
    with pytest.raises(ValueError, match="Unsupported input type: Series"):
        theirs.encode(COLUMN)
    wanted = theirs.encode(COLUMN.tolist())
    np.testing.assert_allclose(ours.encode(COLUMN), wanted, atol=1e-5)


def test_no_texts(both):
    theirs, ours = (model.encode([]) for model in both)
    assert (theirs.shape, theirs.dtype) == ((0,), np.float64)
    assert (ours.shape, ours.dtype) == ((0, 32), np.float32)


def test_queries_get_the_prompt_that_encode_omits(both):
    theirs, ours = both
    np.testing.assert_allclose(
        ours.encode_query(["money"]), theirs.encode_query(["money"]), atol=1e-5
    )
    np.testing.assert_allclose(
        ours.encode(["money"], prompt=""), theirs.encode(["money"]), atol=1e-5
    )


@pytest.mark.parametrize("kind", ["potion", "weighted", "shared"])
def test_model2vec(tmp_path, kind):
    write_static(tmp_path / "model", kind)
    theirs = StaticModel.from_pretrained(str(tmp_path / "model"))
    ours = bert_embed.load(tmp_path / "model")
    texts = [text for text in (*TEXTS, "the bank of the river " * 400) if text]
    np.testing.assert_allclose(ours.encode(texts), theirs.encode(texts), atol=1e-6)
