"""Bounds of rounding, which tests of numbers go by."""

import ml_dtypes
import numpy as np
import pytest

from bert_embed.backends.tensorflow.model import load_encoder
from bert_embed.bundle.bundle import read_bundle
from bert_embed.models.bert import BertConfig
from tests.support.models import plain_bert
from tests.support.models.tiny import write_tiny_huggingface
from tests.support.rounding import (
    MINILM,
    TINY,
    UNIT_ROUNDOFF,
    distance,
    least_cosine,
    relative_error,
)


def test_bounds_are_for_the_models_of_the_tests(tiny_bundle, minilm):
    assert (read_bundle(tiny_bundle).config, minilm.config) == (TINY, MINILM)
    for precision, roundoff in UNIT_ROUNDOFF.items():  # half the gap above one
        assert roundoff == float(ml_dtypes.finfo(precision).eps) / 2


@pytest.mark.numeric
def test_this_machine_stays_within_the_bound_and_a_fault_does_not(tiny_bundle, tmp_path):
    encoder = load_encoder(read_bundle(tiny_bundle))
    tensors = write_tiny_huggingface(tmp_path / "same")
    right, wrong = (
        plain_bert.PlainBert(tensors, 4, one) for one in (plain_bert.gelu, plain_bert.gelu_new)
    )
    ids = np.random.default_rng(7).integers(5, 100, (1, 40)).astype(np.int32)
    found = encoder.hidden_states(ids, ids * 0 + 1, ids * 0)[-1][0]
    assert distance(found, right.hidden_states(ids[0], ids[0] * 0)[-1]) < relative_error()
    assert distance(found, wrong.hidden_states(ids[0], ids[0] * 0)[-1]) > 10 * relative_error()


def test_bounds_follow_depth_and_format():
    deeper = BertConfig(30522, 384, 24, 12, 1536, 512)
    assert relative_error(deeper) == pytest.approx(2 * relative_error(MINILM))
    # What docs/speed.md says of MiniLM; two machines have an error each.
    assert 2 * relative_error(MINILM) < 2e-5
    assert least_cosine(MINILM, "bfloat16") > 0.999
    assert least_cosine(MINILM, "float16") > 0.9999
