"""Encoders beside BERT's own: what transformers computes for them, through every engine."""

from functools import cache, partial

import numpy as np
import pytest
from safetensors.numpy import load_file

from bert_embed.backends.probe import verify
from bert_embed.encoder import Encoder
from bert_embed.settings import VectorSpec
from bert_embed.text.tokenizer import load_tokenizer
from tests.support.engines import ENGINES
from tests.support.models.architectures import (
    EDGES,
    GOLDEN,
    KINDS,
    LENGTHS,
    PAIRS,
    POOLED,
    ROBERTAS,
    TEXTS,
    kept_tokens,
    with_jina,
    write_architecture,
)
from tests.support.models.folder import imported, refused
from tests.support.models.gated import GATED, NTK
from tests.support.models.jina import CODE, JINA

pytestmark = pytest.mark.slow

LONG_ROWS = (*GATED, *JINA)
EACH_LAYER = ("electra", "mpnet", "modernbert", "new", "jina_qk")  # each kind of layers once
CLOSE = 1e-4
WEIGHTS, SLOW = "model.safetensors", "tokenizer_config.json"
BERT = "sentence_bert_config.json"
# One shape, which XLA compiles in a second.
SHORT = {"max_seq_length": 8, "batch_tokens": 64, "long_text": "truncate"}


@pytest.fixture(scope="module", params=(*KINDS, *JINA))
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def bundle(model_of, kind):
    return model_of(write_architecture, kind)


@pytest.fixture(scope="module")
def encoder_of(model_of):
    """The encoder of a kind by an engine, each once."""

    @cache
    def encoder(kind, engine):
        load = {"load_engine": ENGINES[engine]} if engine in ENGINES else {"engine": "tensorflow"}
        return Encoder(model_of(write_architecture, kind), threads=1, **load)

    return encoder


@pytest.fixture(scope="module")
def encoders(encoder_of, kind):
    return partial(encoder_of, kind)


@cache
def rows():
    return with_jina(np.load(GOLDEN))


def states(kind, number):
    return rows()[f"{kind}/states/{number}"]


def assert_close(found, wanted):
    """Hidden states are equal within 1e-4, or 1e-5 of their largest value.

    ModernBERT's, which no norm follows, reach 40, where float32 rounds by 4e-6 at each step; those
    of the others stay below 10.
    """
    assert np.abs(found - wanted).max() < max(CLOSE, CLOSE / 10 * np.abs(wanted).max())


def all_layers(encoder, texts, texts_b=None, **settings):
    """The ids of each row and its hidden states, float32 `[tokens, layers, hidden]`."""
    layers = list(range(encoder.bundle.config.num_hidden_layers + 1))
    settings |= {"layers": layers, "layer_combine": "stack"}
    found = encoder.units(texts, texts_b=texts_b, **settings)
    entries = {entry: number for number, entry in enumerate(encoder.tokenizer.vocab)}
    return [([entries[token] for token in one.texts], one.vectors) for one in found]


@pytest.mark.numeric
@pytest.mark.parametrize("engine", ENGINES)
def test_tokens_states_and_vectors_are_those_of_the_libraries(encoders, kind, engine):
    """All hidden states are those of transformers, vectors those of sentence-transformers."""
    encoder, (first, second) = encoders(engine), zip(*PAIRS, strict=True)
    texts, pairs = all_layers(encoder, TEXTS), all_layers(encoder, first, second)
    for number, (ids, vectors) in enumerate([*texts, *pairs]):
        assert ids == rows()[f"{kind}/ids/{number}"].tolist()
        assert_close(vectors, states(kind, number))
    assert np.abs(encoder.encode(TEXTS) - rows()[f"{kind}/vectors"]).max() < CLOSE


@pytest.mark.numeric
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("number", range(len(EDGES)), ids=map(str, LENGTHS))
@pytest.mark.parametrize("gated", LONG_ROWS)
def test_long_rows_are_those_of_transformers(encoder_of, gated, engine, number):
    ((ids, vectors),) = all_layers(encoder_of(gated, engine), [EDGES[number]])
    row = len(TEXTS) + len(PAIRS) + number
    assert ids == rows()[f"{gated}/ids/{row}"].tolist()
    assert len(ids) == LENGTHS[number]
    assert_close(vectors[kept_tokens(len(ids))], states(gated, row))


@pytest.mark.parametrize("gated", LONG_ROWS)
def test_a_text_has_the_same_bits_in_any_batch(encoder_of, gated):
    encoder = encoder_of(gated, "litert")
    texts = [*TEXTS, *EDGES, *TEXTS, "the river of the bank", EDGES[0]]
    together = encoder.encode(texts)
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_array_equal(encoder.encode([text])[0], vector)


@pytest.mark.parametrize("gated", ["nomic_bert", "new"])
def test_the_names_of_the_hub_are_those_of_transformers(tmp_path, gated):
    bundles = []
    for hub in (True, False):
        place = tmp_path / str(hub)
        # In place of rope_parameters, so with their theta
        rope = {"rope_scaling": NTK | {"rope_theta": 20000.0}}
        changes = {} if hub or gated != "new" else rope
        write_architecture(place / "source", gated, hub=hub, **changes)
        bundles.append(imported(place))
    assert bundles[0].config == bundles[1].config
    assert bundles[0].fingerprint == bundles[1].fingerprint


@pytest.mark.parametrize(
    ("gated", "changes", "message"),
    [
        ("nomic_bert", {"prenorm": True}, "prenorm must be False, got True"),
        ("nomic_bert", {"rope_parameters": {"rope_type": "yarn"}}, "type 'yarn' is not supported"),
        ("nomic_bert", {"hidden_act": "tanh"}, "hidden_act must be one of silu, .*, got 'tanh'"),
        ("nomic_bert", {"rotary_emb_base": 50.0}, "rotary_emb_base must be 1000.0, got 50.0"),
        ("new", {"position_embedding_type": "absolute"}, "must be 'rope' or None, got 'absolute'"),
        ("new", {"rope_scaling": {"type": "ntk", "factor": 2, "mixed_b": 0.6}}, "with mixed_b"),
        ("modernbert", {"layer_types": ["full_attention"]}, "for each of 4 layers"),
        ("modernbert", {"global_attn_every_n_layers": 0}, "must be a positive integer, got 0"),
        ("modernbert", {"attention_bias": True}, r"attn\.Wq\.bias is missing"),
        ("jina", {"feed_forward_type": "original"}, "must be 'geglu', got 'original'"),
        ("jina", {"auto_map": CODE["jina_qk"]}, r"layer_norm_q\.weight is missing"),
        ("jina_qk", {"auto_map": CODE["jina"]}, r"\.layer_norm_.* is not part of a Jina encoder"),
        ("distilbert", {"num_attention_heads": 2}, "must be 4, as n_heads, got 2"),
        ("gte", {"use_alibi": True}, "use_alibi is not supported, got True"),
        ("jina", {"emb_pooler": "cls"}, "emb_pooler must be 'mean' or None, got 'cls'"),
        ("modernbert", {"is_decoder": True}, "is_decoder is not supported, got True"),
        ("modernbert", {"position_embedding_type": "relative_key"}, "got 'relative_key'"),
        ("modernbert", {"rope_parameters": {"rope_theta": 7.0}}, "got rope_theta, too"),
        ("nomic_bert", {"qkv_proj_bias": True}, "qkv_proj_bias is not supported, got True"),
        ("nomic_bert", {"rope_scaling": {"factor": 2.0}}, "rope_scaling is not supported"),
        ("nomic_bert", {"rope_parameters": {"beta_fast": 32}}, "with beta_fast, got 32, is not"),
        ("modernbert", {"num_attention_heads": 32}, "an even width, for rotary positions"),
        ("electra", {"embedding_size": 8}, r"must be \[211, 8\], is \[211, 16\]"),
        ("mpnet", {"relative_attention_num_buckets": 16}, "must be one of 0, 32, got 16"),
    ],
)
def test_settings_that_would_change_vectors_are_refused(tmp_path, gated, changes, message):
    write_architecture(tmp_path / "source", gated, **changes)
    refused(tmp_path, message)


@pytest.mark.parametrize(
    ("name", "rope", "theta"),
    [
        ("rope_parameters", {"rope_theta": 500.0}, 500.0),
        ("rope_scaling", {"rope_theta": 500.0}, 500.0),
        ("rope_scaling", {"rope_type": "default"}, 160_000.0),  # in place of rope_parameters
    ],
)
def test_the_theta_of_either_setting_is_followed(tmp_path, name, rope, theta):
    write_architecture(tmp_path / "source", "gte", **{name: rope})
    assert imported(tmp_path).config.rope_theta == theta


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, 1024),
        ({"modules.json": None}, 2048),
        ({"modules.json": None, SLOW: {"model_max_length": 4096}}, 2048),
        ({BERT: "{}", SLOW: {"model_max_length": 4096}}, 4096),  # as release 6 writes it
        ({BERT: "{}", SLOW: {"model_max_length": 10**30}}, 2048),
    ],
)
def test_a_long_model_takes_2048_tokens_unless_its_files_say_more(tmp_path, files, wanted):
    write_architecture(tmp_path / "source", "modernbert", max_position_embeddings=8192)
    bundle = imported(tmp_path, files=files)
    assert (bundle.max_seq_length, bundle.config.max_position_embeddings) == (wanted, 8192)


@pytest.mark.parametrize("gated", ["nomic_bert", "jina"])
@pytest.mark.parametrize("file", ["vocab.txt", "tokenizer.json"])
def test_a_padded_word_table_changes_nothing(tmp_path, encoder_of, gated, file):
    source, name = tmp_path / "source", "embeddings.word_embeddings.weight"
    write_architecture(source, gated, vocab_size=256)  # a multiple of 64, for 211 entries
    table = load_file(source / WEIGHTS)[name]
    rows = np.ones((256 - len(table), table.shape[1]), np.float32)
    files = {"vocab.txt": None} if file == "tokenizer.json" else {}
    files |= {WEIGHTS: {name: np.concatenate([table, rows])}}
    encoders = Encoder(imported(tmp_path, files=files), threads=1), encoder_of(gated, "litert")
    np.testing.assert_array_equal(*(encoder.encode(TEXTS) for encoder in encoders))


def test_a_bundle_says_how_it_pools_and_gives_what_it_gave_at_its_import(encoders, bundle, kind):
    assert bundle.defaults == VectorSpec(pooling="mean", normalize=True)
    assert bundle.has_pooler == (kind in POOLED)
    if kind in POOLED:
        wanted = [rows()[f"{kind}/pooler/{number}"] for number in range(len(TEXTS))]
        found = encoders("litert").encode(TEXTS, pooling="pooler", normalize=False)
        assert np.abs(found - wanted).max() < CLOSE
    assert verify(bundle).problem == ""


@pytest.mark.numeric
def test_programs_for_gpus_compute_the_same(encoders, kind):
    wanted = all_layers(encoders("litert"), TEXTS[:4], **SHORT)
    found = all_layers(encoders("compiled"), TEXTS[:4], **SHORT)
    for (ids, vectors), (wanted_ids, wanted_vectors) in zip(found, wanted, strict=True):
        assert ids == wanted_ids
        assert np.abs(vectors - wanted_vectors).max() < CLOSE


def test_int8_and_bfloat16_point_where_float32_does(encoders, bundle, kind):
    wanted = encoders("litert").encode(TEXTS[:4], **SHORT)
    short = [("int8", "litert"), *([("bfloat16", "tensorflow")] if kind in EACH_LAYER else [])]
    for precision, engine in short:
        encoder = Encoder(bundle, precision=precision, engine=engine, threads=1)
        found = encoder.encode(TEXTS[:4], **SHORT)
        cosines = (found * wanted).sum(axis=1)
        assert 0.98 < cosines.min() < cosines.max() < 1, precision


def test_the_prefix_and_the_heads_of_training_change_nothing(tmp_path, bundle, kind):
    prefixes = {"multilingual": "bert.", "new": ""}  # the tensors of "new" have theirs
    prefixes |= dict.fromkeys(ROBERTAS, "roberta.") | dict.fromkeys(JINA, "bert.")
    prefixes |= dict.fromkeys(("modernbert", "modernbert_biased"), "model.")
    write_architecture(tmp_path / "source", kind, prefix=prefixes.get(kind, f"{kind}."))
    heads = {
        "distilbert": ["vocab_transform.weight", "vocab_projector.bias", "pre_classifier.bias"],
        "electra": ["discriminator_predictions.dense.bias", "classifier.out_proj.weight"],
        "mpnet": ["lm_head.dense.weight", "mpnet.embeddings.position_ids", "classifier.dense.bias"],
        "nomic_bert": ["cls.predictions.bias", "layers.0.attn.rotary_emb.inv_freq"],
        "gte": ["lm_head.decoder.bias", "classifier.weight"],
        "new": ["lm_head.decoder.bias", "new.encoder.rotary_emb.inv_freq"],
        "modernbert": ["head.dense.weight", "decoder.bias", "classifier.weight"],
        "modernbert_biased": ["head.norm.bias", "decoder.bias", "classifier.bias"],
        "multilingual": ["cls.predictions.bias", "classifier.weight"],
        "jina_qk": ["cls.predictions.bias", "classifier.weight"],
        "jina": ["cls.predictions.bias", "bert.embeddings.position_ids"],
    }.get(kind, ["lm_head.bias", "roberta.embeddings.position_ids", "classifier.out_proj.weight"])
    heads_files = {WEIGHTS: dict.fromkeys(heads, np.zeros(3, np.float32))}
    assert imported(tmp_path, files=heads_files).fingerprint == bundle.fingerprint


def test_a_special_token_of_the_settings_is_followed(tmp_path):
    write_architecture(tmp_path / "source", "mpnet")
    bundle = imported(tmp_path, files={SLOW: {"sep_token": "[SEP]"}})
    tokenizer = load_tokenizer(bundle)
    ends = tokenizer.vocab[tokenizer.cls_id], tokenizer.vocab[tokenizer.sep_id]
    assert ends == ("<s>", "[SEP]")
