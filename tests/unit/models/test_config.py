"""Settings of an encoder and of its vectors: checked, and the same after JSON."""

import json

import numpy as np
import pytest

from bert_embed.models.bert import BertConfig
from bert_embed.models.families import config_from_huggingface
from bert_embed.settings import VectorSpec

HUGGINGFACE = {
    "model_type": "bert",
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 16,
}


def test_a_config_has_the_defaults_of_hugging_face_and_survives_its_dict():
    config = config_from_huggingface(HUGGINGFACE)
    assert (config.hidden_act, config.type_vocab_size) == ("gelu", 2)
    assert config.layer_norm_eps == 1e-12
    config = config_from_huggingface(HUGGINGFACE | {"hidden_act": "gelu_pytorch_tanh"})
    assert config.hidden_act == "gelu_new"
    assert BertConfig.from_dict(config.to_dict()) == config
    with pytest.raises(ValueError, match="missing or unknown: rotary"):
        BertConfig.from_dict(config.to_dict() | {"rotary": 1})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "mpnet, roberta, .*, got 'gpt2': decoders and other models have"),
        ({"model_type": ["bert"]}, r"model_type must be one of bert, .*, got \['bert'\]"),
        ({"position_embedding_type": "relative_key"}, "'absolute', got 'relative_key'"),
        ({"hidden_act": "swish"}, "hidden_act must be one of gelu, .*, got 'swish'"),
        ({"hidden_act": {"a": 1}}, "hidden_act must be one of gelu, .*, got {'a': 1}"),
        ({"hidden_size": 30}, "hidden_size 30 must be a multiple of num_attention_heads, got 4"),
        ({"hidden_size": ...}, r"config\.json: hidden_size missing"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be a positive integer, got 0"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be a positive integer, got True"),
        ({"vocab_size": "100"}, "vocab_size must be a positive integer, got '100'"),
        ({"is_decoder": True}, "is_decoder must be false"),
        *[
            ({"layer_norm_eps": value}, "layer_norm_eps must be between 0 and 1, got")
            for value in ("1e-12", [1], 10**400, float("nan"), 2)
        ],
    ],
)
def test_what_is_no_bert_is_refused(change, message):
    values = HUGGINGFACE | change
    with pytest.raises(ValueError, match=message):
        config_from_huggingface({key: values[key] for key in values if values[key] is not ...})


CONFIG = BertConfig(100, 8, 6, 2, 16, 32)


@pytest.mark.parametrize(
    ("settings", "numbers", "shape"),
    [
        ({}, (6,), (8,)),
        ({"layers": (0,)}, (0,), (8,)),
        ({"layers": np.array(-2)}, (5,), (8,)),
        ({"layers": (2, -2)}, (5,), (8,)),
        ({"layers": (-1, -2), "layer_combine": "sum"}, (6, 5), (8,)),
        ({"layers": (-2, 6), "layer_combine": "concat"}, (5, 6), (16,)),
        ({"layers": (1, 2, 3), "layer_combine": "stack"}, (1, 2, 3), (3, 8)),
        ({"layers": (1, 2), "layer_combine": "stack", "dim": 3}, (1, 2), (2, 3)),
        ({"pooling": "mean_max"}, (6,), (16,)),
        ({"pooling": "mean_max", "layers": (1, 2), "layer_combine": "concat"}, (1, 2), (32,)),
        ({"pooling": "pooler", "layers": (1, 2), "layer_combine": "concat"}, (6,), (8,)),
        ({"dim": 5}, (6,), (5,)),
    ],
)
def test_layers_and_shape(settings, numbers, shape):
    spec = VectorSpec(**settings)
    spec.check(CONFIG)
    assert spec.layer_numbers(CONFIG) == numbers
    assert spec.shape(CONFIG) == shape
    assert spec.width(CONFIG) == (shape[0] * shape[1] if len(shape) == 2 else shape[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": (9,)}, "layers must be between -7 and 6 for this 6-layer model, got 9"),
        ({"layers": ()}, "layers must name at least one layer"),
        ({"layer_combine": "max"}, "layer_combine must be one of last, .*, got 'max'"),
        ({"dim": 0}, "dim must be at least 1, got 0"),
        ({"dim": 9}, "dim must be between 1 and 8 for this model, got 9"),
        ({"dim": 9, "layers": (1, 2), "layer_combine": "stack"}, "dim must be between 1 and 8 for"),
    ],
)
def test_what_a_model_cannot_give_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        VectorSpec(**settings).check(CONFIG)


def test_a_spec_survives_json():
    spec = VectorSpec(layers=[-1, -2], layer_combine="mean", pooling="cls", normalize=True, dim=4)
    assert VectorSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    with pytest.raises(ValueError, match="unknown vector settings: colour"):
        VectorSpec.from_dict({"colour": "red"})
