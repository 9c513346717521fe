"""sentence-transformers folders: their vectors are theirs, what is not computed is named."""

import json
from itertools import product

import numpy as np
import pytest

import bert_embed
from bert_embed.bundle.bundle import read_bundle
from bert_embed.encoder import Encoder
from bert_embed.models.modules import DenseModule
from bert_embed.settings import VectorSpec
from tests.support.models.folder import imported, refused
from tests.support.models.sentence_transformers import (
    CASES,
    CHAINS,
    DIMS,
    GOLDEN,
    PAIR_SETTINGS,
    PAIRS,
    QUERY,
    SAVED_DIMS,
    TEXTS,
    dense,
    write_case,
    write_chain,
    write_kinds,
    write_pairs_model,
    write_sentence_transformers,
)
from tests.support.rounding import assert_near

VECTORS = np.load(GOLDEN)
MODEL, TRANSFORMER = "config_sentence_transformers.json", "sentence_bert_config.json"
POOLING, DENSE = "1_Pooling/config.json", "2_Dense/config.json"
WEIGHTS, THREE = "2_Dense/model.safetensors", np.zeros(3, np.float32)
MISH = "torch.nn.modules.activation.Mish"
ONE_ROW = "module_input_name must be 'sentence_embedding'"
ENCODER = {"type": "sentence_transformers.models.Transformer", "path": ""}
OUTSIDE = "must be a path inside the model's folder"


@pytest.mark.parametrize("name", CASES)
def test_the_vectors_are_those_of_sentence_transformers(model_of, name):
    encoder = Encoder(model_of(write_case, name))
    assert_near(encoder.encode(TEXTS), VECTORS[name])
    for prompt in encoder.bundle.prompts:
        assert_near(encoder.encode(TEXTS, prompt=f"name:{prompt}"), VECTORS[f"{name}/{prompt}"])


@pytest.mark.parametrize("name", PAIR_SETTINGS)
def test_pairs_are_cut_and_numbered_as_theirs(model_of, name):
    encoder = Encoder(model_of(write_pairs_model, name))
    found = encoder.encode(*zip(*PAIRS, strict=True), long_text="truncate")
    assert_near(found, VECTORS[name])


def test_the_bundle_tells_modules_and_prompts(tmp_path):
    write_case(tmp_path / "source", "prompts")
    bundle = imported(tmp_path)
    assert bundle.dense == (DenseModule(96, 16, "tanh", True),)
    defaults = {"pooling": "mean,weightedmean,max", "pool_prompt": False, "dense": 16}
    assert bundle.defaults == VectorSpec(normalize=True, **defaults)
    assert (bundle.prompts, bundle.default_prompt) == ({"query": QUERY, "document": ""}, "query")
    assert bundle.prompt_text(None) == bundle.prompt_text("name:query") == QUERY
    assert [bundle.prompt_text(each) for each in ("", "name:document", "so: ")] == ["", "", "so: "]
    with pytest.raises(ValueError, match=r"prompt name:passage is none of .* prompts: document, q"):
        bundle.prompt_text("name:passage")
    # The token before a prompt without tokens does not count, as in sentence-transformers.
    blank = Encoder(imported(tmp_path, "blank", {MODEL: {"prompts": {"query": " "}}}))
    (tokens,) = blank.units(["the bank"])
    for prompt in ({}, {"prompt": "\t"}):
        found = blank.encode("the bank", pooling="mean", dense=0, normalize=False, **prompt)
        assert_near(found, tokens.vectors[1:].mean(0))


def test_a_pooling_that_the_modules_cannot_take_is_refused(tmp_path, tiny_bundle):
    write_sentence_transformers(tmp_path / "source", modules=[dense(32, 8)])
    bundle = imported(tmp_path)
    bundle.check(VectorSpec(pooling="max", dense=8))
    bundle.check(VectorSpec(pooling="mean_max"))
    joined, other = {"pooling": "mean_max", "dense": 8}, read_bundle(tiny_bundle)
    for model, spec, message in (
        (bundle, joined, "pooling mean_max gives 64 numbers, .* turn dense off"),
        (bundle, {"dense": 9}, "dense must be 0 or 8 for this model, got 9"),
        (other, {"dense": 8}, "dense must be off, this model has no Dense modules"),
    ):
        with pytest.raises(ValueError, match=message):
            model.check(VectorSpec(**spec))


@pytest.mark.slow
def test_another_module_is_another_model(tmp_path):
    write_sentence_transformers(tmp_path / "source", modules=[dense(32, 8)])
    changes = (
        {},
        {DENSE: {"activation_function": "torch.nn.modules.activation.ReLU"}},
        {WEIGHTS: {"linear.bias": np.ones(8, np.float32)}},
        {DENSE: {"bias": False}, WEIGHTS: {"linear.bias": None}},
    )
    bundles = [imported(tmp_path, str(n), files) for n, files in enumerate(changes)]
    assert len({bundle.fingerprint for bundle in bundles}) == 4


@pytest.mark.slow
def test_what_is_of_the_run_alone_leaves_the_model_the_same(tmp_path, tiny_bundle):
    write_sentence_transformers(tmp_path / "source", prompts={"query": "a"})
    assert imported(tmp_path, "plain").fingerprint == read_bundle(tiny_bundle).fingerprint
    write_kinds(tmp_path / "source", ["Transformer", "Pooling", "Dropout", "Normalize"])
    model = {"prompts": {"query": "b"}, "requirements": {"transformers": ">=5.15"}}
    bundle = imported(tmp_path, files={MODEL: model, POOLING: {"pooling_mode": "cls"}})
    assert bundle.defaults == VectorSpec(pooling="cls", normalize=True)
    assert bundle.fingerprint == read_bundle(tiny_bundle).fingerprint


@pytest.mark.parametrize(
    ("similarity", "plain"),
    [
        ("dot", lambda one, other: one @ other),
        ("euclidean", lambda one, other: -np.linalg.norm(one - other)),
        ("manhattan", lambda one, other: -np.abs(one - other).sum()),
        (None, lambda one, other: one @ other / np.linalg.norm(one) / np.linalg.norm(other)),
    ],
)
def test_vectors_are_compared_as_the_model_does(tmp_path, similarity, plain):
    write_sentence_transformers(tmp_path / "source")
    bundle = imported(tmp_path, files={MODEL: {"similarity_fn_name": similarity}})
    assert read_bundle(bundle.path).similarity == (similarity or "cosine")
    encoder = Encoder(bundle)
    wide = encoder.encode(TEXTS).astype(float)
    found, pairs = encoder.similarity(wide, wide), encoder.similarity_pairwise(wide, wide[::-1])
    wanted = [[plain(one, other) for other in wide] for one in wide]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(pairs, np.diag(np.fliplr(wanted)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("saved", SAVED_DIMS)
@pytest.mark.parametrize("name", CHAINS)
def test_modules_and_dims_and_normalize_in_every_order(model_of, name, saved):
    """What is left out is the model's; what a call asks for counts before what was loaded."""
    bundle = model_of(write_chain, name, saved)
    plain, is_unit = name.removesuffix("_unit"), name.endswith("_unit")
    unit = {"normalize": True}
    loaded = [{}, {"dim": 5}, unit, {"normalize": False}, {"dim": 5} | unit]
    for at_load, dim, normalize in product(loaded, DIMS, (None, True, False)):
        at_call = {"dim": dim, "normalize": normalize}
        asked = at_load | {key: value for key, value in at_call.items() if value is not None}
        chain, scaled = name, asked.get("normalize")
        if scaled is None:  # theirs are shorter if a call cuts what was scaled
            scaled = is_unit and "dim" in asked
        elif not scaled:
            chain = plain
        wanted = VECTORS[f"{chain}/{saved}/{asked.get('dim')}/{bool(scaled)}"]
        encoder = bert_embed.load(bundle.path, threads=1, **at_load)
        found = encoder.encode(list(TEXTS[:2]), **at_call)
        assert_near(found, wanted)
        if asked.get("normalize"):
            assert_near(np.linalg.norm(found, axis=1), np.ones(2))
    assert encoder.units(["a"])[0].vectors.shape == (3, 5)


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        ("Transformer Pooling WeightedLayerPooling", "module WeightedLayerPooling after"),
        ("Transformer LSTM Pooling", "module LSTM is not supported, only StaticEmbedding, Transf"),
        ("StaticEmbedding Pooling", "module Pooling after StaticEmbedding is not supported"),
        ("sentence_transformers.base.modules.router.Router", "module Router is not supported"),
        ("Transformer Pooling Normalize Dense", "module Dense after Normalize is not"),
        ("Pooling", "module Pooling after nothing is not supported"),
        ("", "names no Transformer module"),
        ("Transformer mine.Pooling", r"module mine\.Pooling is refused, .* model's own code"),
    ],
)
def test_a_module_that_is_not_computed_is_refused_by_name(tmp_path, kinds, message):
    write_sentence_transformers(tmp_path / "source")
    write_kinds(tmp_path / "source", kinds.split())
    refused(tmp_path, rf"modules\.json: {message}")


@pytest.mark.parametrize(
    ("file", "changes", "message"),
    [
        (DENSE, {"out_features": 0}, "out_features must be a positive integer"),
        (DENSE, {"activation_function": MISH}, f"must be torch.nn's .*SiLU, got '{MISH}'"),
        (DENSE, {"activation_function": "mine.Tanh"}, r"got 'mine\.Tanh'"),
        (DENSE, {"use_residual": True}, "tensor residual.weight is missing"),
        (DENSE, {"module_input_name": "token_embeddings"}, f"{ONE_ROW}, got 'token_embeddings'"),
        (DENSE, {"module_output_name": "other"}, "_output_name must be 'sentence_embedding', got"),
        ("3_Normalize/config.json", {"module_input_name": "token_embeddings"}, ONE_ROW),
        ("3_Normalize/config.json", {"p": 1}, "p is not supported, got 1"),
        (POOLING, {"include_prompt": False, "pooling_mode": "cls"}, "cls pooling"),
        (POOLING, {"colour": "red"}, "colour is not supported"),
        (POOLING, {"pooling_mode": ["mean", "median"]}, "pooling 'median' is not"),
        (TRANSFORMER, {"transformer_task": "fill-mask"}, "transformer_task must"),
        (TRANSFORMER, {"model_args": {"rotary_scaling_factor": 2}}, "factor of model_args is no"),
        (TRANSFORMER, {"query_length": 32}, "query_length is not supported"),
        (TRANSFORMER, {"tokenizer_args": {"do_lower_case": False}}, "of tokenizer_args is not su"),
        (MODEL, {"prompts": {"query": "[CLS] a: "}}, r"query holds the special token \[CLS\], wh"),
        (MODEL, {"model_type": None}, "must be Sentence.*, got None"),
        (MODEL, {"similarity_fn_name": "mine"}, "must be cosine or dot or "),
        (MODEL, {"colour": "red"}, "colour is not supported"),
        (MODEL, {"default_prompt_name": "query"}, "_prompt_name must be one of none, got 'query'"),
        (MODEL, {"prompts": {"a": 1}}, "prompt a must be a text"),
        ("tokenizer_config.json", {"model_input_names": ["input_ids"]}, "list input_ids and atte"),
        ("tokenizer_config.json", {"chat_template": "{{ messages }}"}, "chat_template of .* puts"),
        ("chat_template.jinja", "{{ messages }}", "chat_template.jinja, is not supported: .* puts"),
        (WEIGHTS, {"linear.weight": None}, r"2_Dense: tensor linear\.weight is missing"),
        (WEIGHTS, {"residual.weight": THREE}, r"residual\.weight is not part of a Dense"),
        *[
            ("modules.json", [ENCODER | {"path": path}], OUTSIDE)
            for path in ("../b", "/etc", 3, "a\0", "\ud800")
        ],
        ("modules.json", [ENCODER | {"scale": 2}], r"modules\.json: scale is not supported"),
    ],
)
def test_a_setting_that_is_not_followed_is_refused_by_name(tmp_path, file, changes, message):
    write_sentence_transformers(tmp_path / "source", modules=[dense(32, 8)], normalize=True)
    refused(tmp_path, message, {file: changes})


@pytest.mark.parametrize("place", ["", "2_Dense"])
def test_pickled_weights_are_refused_with_the_way_out(tmp_path, place):
    write_sentence_transformers(tmp_path / "source", modules=[dense(32, 8)])
    weights = tmp_path / "source" / place / "model.safetensors"
    weights.rename(weights.with_name("pytorch_model.bin"))
    refused(tmp_path, "can run code.*save_pretrained")


def test_settings_of_the_transformer_are_in_the_first_file_that_holds_any(tmp_path):
    write_sentence_transformers(tmp_path / "source")
    files = {TRANSFORMER: "{}", "sentence_roberta_config.json": {"max_seq_length": 9}}
    assert imported(tmp_path, files=files).max_seq_length == 9


def test_an_encoder_in_a_folder_of_its_own_is_found(tmp_path, tiny_bundle):
    source = tmp_path / "source"
    write_sentence_transformers(source, max_seq_length=20)
    names = ("config.json", "model.safetensors", "vocab.txt", "tokenizer_config.json")
    (source / "0_Transformer").mkdir()
    for name in (*names, "sentence_bert_config.json"):
        (source / name).rename(source / "0_Transformer" / name)
    modules = json.loads((source / "modules.json").read_text())
    modules[0] |= {"path": "0_Transformer"}
    bundle = imported(tmp_path, files={"modules.json": modules})
    assert bundle.max_seq_length == 20
    assert bundle.fingerprint == read_bundle(tiny_bundle).fingerprint


@pytest.mark.slow
@pytest.mark.parametrize("name", ["norm", "on_tokens", "weighted"])
def test_modules_are_the_same_on_a_device_that_compiles(model_of, name):
    encoder = Encoder(model_of(write_case, name), engine="tensorflow", device="cpu")
    found = encoder.encode(TEXTS, max_seq_length=16, batch_tokens=64, long_text="truncate")
    assert_near(found, VECTORS[name])


def test_layers_of_the_caller_have_no_weights_and_tokens_are_weighted(model_of):
    bundle = model_of(write_case, "weighted")
    assert read_bundle(bundle.path).defaults == bundle.defaults
    said = json.loads(json.dumps(bundle.defaults.to_dict()))
    assert VectorSpec.from_dict(said) == bundle.defaults
    with pytest.raises(ValueError, match="unknown vector settings: colour"):
        VectorSpec.from_dict(said | {"colour": "red"})
    encoder = Encoder(bundle)
    stacked = encoder.units(TEXTS[0], layers=[1, 2, 3], layer_combine="stack").vectors
    weights = np.array(bundle.defaults.layer_weights)
    mean = (stacked * weights[:, None]).sum(axis=1) / weights.sum()
    np.testing.assert_allclose(encoder.units(TEXTS[0]).vectors, mean, atol=1e-5)
    last = encoder.encode(TEXTS, layers=-1, dense=0)
    assert last.shape == (len(TEXTS), 16)
    with pytest.raises(ValueError, match="concat gives 64 numbers a token"):
        encoder.encode(TEXTS, layers=[1, 2], layer_combine="concat")


NORM, TOKENS = "2_LayerNorm/config.json", "1_Dense/config.json"
WEIGHTED = "1_WeightedLayerPooling/config.json"


@pytest.mark.parametrize(
    ("settings", "file", "changes", "message"),
    [
        ({"modules": [dense(64, 8)]}, MODEL, {}, "Dense module 0 must be 32, .*, got 64"),
        ({"modules": [dense(32, 8), dense(9, 4)]}, MODEL, {}, "module 1 must be 8, .*, got 9"),
        ("norm", NORM, {"dimension": 8}, r"tensor norm\.weight must be \[8\], is \[32\]"),
        ("norm", NORM, {"eps": 0.1}, "eps is not supported"),
        ("on_tokens", TOKENS, {"in_features": 40}, r"linear\.weight must be \[24, 40\]"),
        ("weighted", WEIGHTED, {"layer_start": 4}, "must be whole numbers, the first not larger"),
        ("weighted", WEIGHTED, {"num_hidden_layers": 2}, r"_weights must be \[2\], is \[3\]"),
        ("weighted", "config.json", {"output_hidden_states": False}, "Pooling does nothing in"),
    ],
)
def test_settings_of_modules_are_followed_or_refused(tmp_path, settings, file, changes, message):
    settings = CASES[settings] if isinstance(settings, str) else settings
    write_sentence_transformers(tmp_path / "source", **settings)
    refused(tmp_path, message, {file: changes})
