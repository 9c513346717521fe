"""Encoders beside BERT's own: what transformers computes for them, through every engine."""

import json
from functools import cache, partial

import numpy as np
import pytest

from bert_embed.bundle.bundle import read_bundle
from bert_embed.encoder import Encoder
from bert_embed.importers.huggingface import import_huggingface
from bert_embed.self_test import verify
from bert_embed.specs import VectorSpec
from tests.support.engines import ENGINES
from tests.support.models.architectures import (
    GOLDEN,
    KINDS,
    LONG,
    PAIRS,
    POOLED,
    ROBERTAS,
    TEXTS,
    write_architecture,
)

pytestmark = pytest.mark.slow

ROWS = np.load(GOLDEN)
CLOSE = 1e-4


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The bundle's folder of each kind, imported when it is first asked for."""

    @cache
    def folder(kind):
        place = tmp_path_factory.mktemp(kind)
        write_architecture(place / "source", kind)
        return import_huggingface(str(place / "source"), str(place / "bundle")).path

    return folder


@pytest.fixture(scope="module")
def bundle(folders, kind):
    return read_bundle(folders(kind))


@pytest.fixture(scope="module")
def encoders(bundle):
    engines = {name: partial(Encoder, bundle, load_engine=load) for name, load in ENGINES.items()}
    return cache(lambda name: engines.get(name, partial(Encoder, bundle, device=name))(threads=1))


def states(kind, number):
    return ROWS[f"{kind}/states/{number}"]


def all_layers(encoder, *texts, **settings):
    """The ids of each row and its hidden states, float32 `[tokens, layers, hidden]`."""
    found = encoder.encode_tokens(*texts, layers=[0, 1, 2], layer_combine="stack", **settings)
    entries = {entry: number for number, entry in enumerate(encoder.tokenizer.vocab)}
    return [([entries[token] for token in one.texts], one.vectors) for one in found]


@pytest.mark.numeric
@pytest.mark.parametrize("engine", ENGINES)
def test_tokens_and_all_hidden_states_are_those_of_transformers(encoders, kind, engine):
    first, second = zip(*PAIRS, strict=True)
    texts, pairs = all_layers(encoders(engine), TEXTS), all_layers(encoders(engine), first, second)
    for number, (ids, vectors) in enumerate([*texts, *pairs]):
        assert ids == ROWS[f"{kind}/ids/{number}"].tolist()
        assert np.abs(vectors - states(kind, number)).max() < CLOSE


@pytest.mark.numeric
def test_programs_for_gpus_compute_the_same(encoders, kind):
    # 64 tokens: few shapes, each of which is compiled in a second.
    short = {"max_seq_length": 12, "batch_tokens": 64, "long_text": "truncate"}
    wanted = all_layers(encoders("litert"), TEXTS[:4], **short)
    found = all_layers(encoders("xla_cpu"), TEXTS[:4], **short)
    for (ids, vectors), (wanted_ids, wanted_vectors) in zip(found, wanted, strict=True):
        assert ids == wanted_ids
        assert np.abs(vectors - wanted_vectors).max() < CLOSE


@pytest.mark.numeric
def test_vectors_are_those_of_sentence_transformers(encoders, bundle, kind):
    assert bundle.defaults == VectorSpec(pooling="mean", normalize=True)
    for engine in ENGINES:
        found = encoders(engine).encode(TEXTS)
        assert np.abs(found - ROWS[f"{kind}/vectors"]).max() < CLOSE


@pytest.mark.parametrize("pooling", ["cls", "max", "mean_sqrt_len", "lasttoken"])
def test_layers_are_pooled_as_those_of_bert(encoders, kind, pooling):
    pool = {
        "cls": lambda x: x[0],
        "max": lambda x: x.max(0),
        "mean_sqrt_len": lambda x: x.sum(0) / np.sqrt(len(x)),
        "lasttoken": lambda x: x[-1],
    }[pooling]
    found = encoders("litert").encode(TEXTS, layers=1, pooling=pooling, normalize=False)
    wanted = [pool(states(kind, number)[:, 1]) for number in range(len(TEXTS))]
    assert np.abs(found - wanted).max() < CLOSE


def test_the_pooler_is_that_of_the_weights(encoders, bundle, kind):
    assert bundle.has_pooler == (kind in POOLED)
    if kind in POOLED:
        wanted = [ROWS[f"{kind}/pooler/{number}"] for number in range(len(TEXTS))]
        found = encoders("litert").encode(TEXTS, pooling="pooler", normalize=False)
        assert np.abs(found - wanted).max() < CLOSE
    else:
        with pytest.raises(ValueError, match="pooling must not be pooler for this model"):
            encoders("litert").encode(TEXTS, pooling="pooler")


def test_int8_and_bfloat16_point_where_float32_does(bundle, kind):
    short = {"max_seq_length": 12, "batch_tokens": 64, "long_text": "truncate"}
    wanted = Encoder(bundle, threads=1).encode(TEXTS[:4], **short)
    for precision, device in (("int8", "cpu"), ("bfloat16", "xla_cpu")):
        encoder = Encoder(bundle, precision=precision, device=device, threads=1)
        found = encoder.encode(TEXTS[:4], **short)
        cosines = (found * wanted).sum(axis=1)
        assert 0.98 < cosines.min() < cosines.max() < 1, precision


def test_a_bundle_gives_what_it_gave_at_its_import(bundle):
    found = verify(bundle)
    assert found.problem == ""
    assert {"hidden_states", "last_hidden_state"} <= set(found.outputs)


def test_windows_and_words_of_a_long_text_cover_it(encoders):
    text = LONG
    found = encoders("litert").encode([text], max_seq_length=40, long_text="window", stride=8)
    assert np.linalg.norm(found[0]) == pytest.approx(1, abs=1e-5)
    (words,) = encoders("litert").encode_words([text])
    assert words.texts == text.split()
    assert np.isfinite(words.vectors).all()


def test_the_prefix_and_the_heads_of_training_change_nothing(tmp_path, bundle, kind):
    from safetensors.numpy import load_file, save_file

    prefix = "roberta" if kind in ROBERTAS else "bert" if kind == "multilingual" else kind
    write_architecture(tmp_path / "source", kind, prefix=f"{prefix}.")
    heads = {
        "distilbert": ["vocab_transform.weight", "vocab_projector.bias", "pre_classifier.bias"],
        "electra": ["discriminator_predictions.dense.bias", "classifier.out_proj.weight"],
        "mpnet": ["lm_head.dense.weight", "mpnet.embeddings.position_ids", "classifier.dense.bias"],
        "multilingual": ["cls.predictions.bias", "classifier.weight"],
    }.get(kind, ["lm_head.bias", "roberta.embeddings.position_ids", "classifier.out_proj.weight"])
    weights = tmp_path / "source" / "model.safetensors"
    save_file(load_file(weights) | dict.fromkeys(heads, np.zeros(3, np.float32)), weights)
    found = import_huggingface(str(tmp_path / "source"), str(tmp_path / "bundle"))
    assert found.fingerprint == bundle.fingerprint


@pytest.mark.parametrize(
    ("kind", "file", "changes", "message"),
    [
        ("distilbert", "config.json", {"n_heads": 5}, "hidden_size 32 must be a multiple"),
        ("electra", "config.json", {"embedding_size": 8}, r"must be \[211, 8\], is \[211, 16\]"),
        ("mpnet", "config.json", {"relative_attention_num_buckets": 16}, "must be 32, got 16"),
        ("mpnet", "tokenizer_config.json", {"sep_token": "[SEP]"}, r"sep_token is '\[SEP"),
        ("electra", "tokenizer_config.json", {"sep_token": "</s>"}, "sep_token is '</s>'"),
        (
            *("mpnet", "tokenizer.json", {"post_processor": {"type": "BertProcessing"}}),
            r"tokenizer\.json: cannot be read",
        ),
    ],
)
def test_what_would_give_other_vectors_is_refused(tmp_path, kind, file, changes, message):
    write_architecture(tmp_path / "source", kind)
    path = tmp_path / "source" / file
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(ValueError, match=message):
        import_huggingface(str(tmp_path / "source"), str(tmp_path / "bundle"))


def test_a_tensor_of_another_kind_is_named(tmp_path):
    from safetensors.numpy import load_file, save_file

    write_architecture(tmp_path / "source", "distilbert")
    weights = tmp_path / "source" / "model.safetensors"
    save_file(load_file(weights) | {"pooler.dense.weight": np.zeros((32, 32))}, weights)
    with pytest.raises(ValueError, match=r"tensor pooler\.dense\.bias is missing"):
        import_huggingface(str(tmp_path / "source"), str(tmp_path / "bundle"))
