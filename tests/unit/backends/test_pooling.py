from functools import cache, partial

import numpy as np
import pytest

from bert_embed.backends.runner import RowSpec
from bert_embed.bundle.bundle import read_bundle
from bert_embed.model import Embedder
from bert_embed.settings import POOLINGS, VectorSpec
from bert_embed.text.documents import TokenRows
from tests.support.engines import ENGINES, load_tensorflow
from tests.support.models.folder import tensors_of
from tests.support.models.plain_bert import PlainBert, gelu
from tests.support.rounding import TINY, assert_near, relative_error

pytestmark = pytest.mark.numeric

CLS, SEP = 2, 3
# A pair, a single text, one token, and nothing but special tokens.
ROWS = [[CLS, 40, 41, SEP, 50, SEP], [CLS, 60, 61, 62, SEP], [CLS, 70, SEP], [CLS, SEP]]
TYPES = [[0, 0, 0, 0, 1, 1], [0] * 5, [0] * 3, [0] * 2]


@pytest.fixture(scope="module", params=ENGINES)
def embedder(tiny_bundle, request):
    """A function that gives the embedder of a spec, each once."""
    load = ENGINES[request.param]
    return cache(partial(Embedder, read_bundle(tiny_bundle), load_engine=load))


@pytest.fixture(scope="module")
def plain(tiny_bundle):
    """The hidden states of each row, `[3, tokens, hidden]`, and its pooled [CLS], in NumPy."""
    bert = PlainBert(tensors_of(read_bundle(tiny_bundle)), 4, gelu)
    rows = zip(map(np.array, ROWS), map(np.array, TYPES), strict=True)
    states = [np.stack(bert.hidden_states(*row)) for row in rows]
    return states, [bert.pooled(one[-1]) for one in states]


def embed(embedder, spec, rows=(0, 1, 2, 3)):
    """The rows in one call: in TensorFlow one padded batch."""
    lengths = [len(ROWS[row]) for row in rows]
    ids, types = (
        np.concatenate([values[row] for row in rows]).astype(np.int32) for values in (ROWS, TYPES)
    )
    token_rows = TokenRows(ids, np.cumsum([0, *lengths]), types)
    done = embedder(spec).runner.run(token_rows, RowSpec(spec))
    if embedder.__wrapped__.keywords["load_engine"] is load_tensorflow:
        assert (done.batches, done.padded_tokens) == (1, 16 * 8)
    return done.vectors


def pooled(tokens, ids, pooling, special):
    """One row's vector from its tokens `[tokens, width]`, step by step."""
    inner = [at for at, one in enumerate(ids) if one not in (CLS, SEP)]
    counted = list(range(len(ids))) if special or not inner else inner
    some, weights = tokens[counted], np.array(counted)[:, None] + 1.0
    return {
        "mean": some.mean(0),
        "max": some.max(0),
        "mean_max": np.concatenate([some.mean(0), some.max(0)]),
        "cls": tokens[0],
        "sep": tokens[-1],
        "lasttoken": some[-1],
        "mean_sqrt_len": some.sum(0) / np.sqrt(len(some)),
        "weightedmean": (some * weights).sum(0) / weights.sum(),
    }[pooling]


@pytest.mark.parametrize("special", [True, False], ids=["special", "text_only"])
@pytest.mark.parametrize("pooling", [one for one in POOLINGS if one != "pooler"])
def test_each_pooling_equals_numpy(embedder, plain, pooling, special):
    found = embed(embedder, VectorSpec(pooling=pooling, pool_special_tokens=special))
    pairs = zip(plain[0], ROWS, strict=True)
    wanted = [pooled(states[-1], ids, pooling, special) for states, ids in pairs]
    assert_near(found, wanted)


def test_the_pooler_reads_the_last_layer_whatever_is_asked(embedder, plain):
    for layers in ((-1,), (0, 1)):
        spec = VectorSpec(layers=layers, layer_combine="concat", pooling="pooler")
        assert_near(embed(embedder, spec), plain[1])


@pytest.mark.slow
@pytest.mark.parametrize("layers", [(0,), (-2,), (0, 2), (2, 0, 1)])
@pytest.mark.parametrize("combine", ["last", "sum", "mean", "concat", "stack"])
def test_each_combination_of_layers_equals_numpy(embedder, plain, layers, combine):
    pooling = "mean_max"
    found = embed(embedder, VectorSpec(layers=layers, layer_combine=combine, pooling=pooling))
    for vector, states, ids in zip(found, plain[0], ROWS, strict=True):
        chosen = [states[layer] for layer in layers]
        combined = {
            "last": states[max(layer % 3 for layer in layers)],
            "sum": sum(chosen),
            "mean": sum(chosen) / len(chosen),
            "concat": np.concatenate(chosen, axis=-1),
        }
        some = chosen if combine == "stack" else [combined[combine]]
        wanted = np.concatenate([pooled(one, ids, pooling, True) for one in some])
        assert_near(vector, wanted)


def test_dim_cuts_before_vectors_are_scaled(embedder, plain):
    found = embed(embedder, VectorSpec(dim=5, normalize=True))
    wanted = np.stack([states[-1].mean(0)[:5] for states in plain[0]])
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    assert_near(found, wanted)


def test_each_layer_of_a_stack_is_cut_and_scaled_for_itself(embedder, plain):
    spec = VectorSpec(layers=(0, 2), layer_combine="stack", dim=5, normalize=True)
    found = embed(embedder, spec).reshape(len(ROWS), *spec.shape(TINY))
    np.testing.assert_allclose(np.linalg.norm(found, axis=2), 1, atol=relative_error())
    wanted = plain[0][0][2].mean(0)[:5]
    assert_near(found[0, 1], wanted / np.linalg.norm(wanted))
