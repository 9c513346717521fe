"""MaxSim beside its definition, in float64."""

import numpy as np
import pytest

from bert_embed.heads import maxsim as module
from bert_embed.heads.maxsim import maxsim
from bert_embed.heads.vectors import MultiVectors
from bert_embed.ragged import splits_of


@pytest.mark.parametrize("block", [1, 7, 1 << 16])
def test_score_is_the_sum_of_the_largest_products(block, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", block)
    random = np.random.default_rng(0)
    lengths = np.array([3, 0, 1, 12, 5, 0])
    vectors = random.normal(size=(lengths.sum(), 8)).astype(np.float32)
    query = random.normal(size=(4, 8)).astype(np.float32)
    documents = MultiVectors(splits_of(lengths), vectors)
    parts = np.split(vectors.astype(np.float64), documents.splits[1:-1])
    expected = [(part @ query.T).max(axis=0).sum() if len(part) else -np.inf for part in parts]
    scores = maxsim(query, documents)
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, rtol=1e-5)


def test_no_documents_have_no_scores():
    nothing = MultiVectors(np.zeros(1, np.int64), np.empty((0, 8), np.float32))
    assert maxsim(np.ones((2, 8), np.float32), nothing).tolist() == []
