import pytest

from bert_embed.models.bert import BertConfig
from bert_embed.models.families import config_from_huggingface

HUGGINGFACE = {
    "model_type": "bert",
    "vocab_size": 100,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 16,
}


def test_what_huggingface_leaves_out_has_its_defaults():
    config = config_from_huggingface(HUGGINGFACE)
    assert (config.hidden_act, config.type_vocab_size) == ("gelu", 2)
    assert config.layer_norm_eps == 1e-12


def test_a_config_survives_its_dict():
    config = config_from_huggingface(HUGGINGFACE | {"hidden_act": "gelu_pytorch_tanh"})
    assert config.hidden_act == "gelu_new"
    assert BertConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "albert"}, "got 'albert': .* layers that share weights"),
        ({"model_type": "deberta-v2"}, "got 'deberta-v2': .* disentangled attention"),
        ({"model_type": "gpt2"}, "got 'gpt2': its models have a decoder"),
        ({"model_type": "fnet"}, "mpnet, roberta, .*, got 'fnet': other models have other layers"),
        ({"model_type": ["bert"]}, r"model_type must be one of bert, .*, got \['bert'\]"),
        ({"position_embedding_type": "relative_key"}, "'absolute', got 'relative_key'"),
        ({"hidden_act": "swish"}, "hidden_act must be one of gelu, .*, got 'swish'"),
        ({"hidden_size": 30}, "hidden_size 30 must be a multiple of num_attention_heads, got 4"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be a positive integer, got 0"),
        ({"vocab_size": "100"}, "vocab_size must be a positive integer, got '100'"),
        ({"is_decoder": True}, "is_decoder must be false"),
        ({"hidden_act": {"a": 1}}, "hidden_act must be one of gelu, .*, got {'a': 1}"),
        ({"hidden_act": ["gelu"]}, r"hidden_act must be one of gelu, .*, got \['gelu'\]"),
        ({"hidden_act": None}, "hidden_act must be one of gelu, .*, got None"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be a positive integer, got True"),
        ({"layer_norm_eps": "1e-12"}, "layer_norm_eps must be between 0 and 1, got '1e-12'"),
        ({"layer_norm_eps": [1]}, "layer_norm_eps must be between 0 and 1"),
        ({"layer_norm_eps": 10**400}, "layer_norm_eps must be between 0 and 1"),
        ({"layer_norm_eps": float("nan")}, "layer_norm_eps must be between 0 and 1, got nan"),
        ({"layer_norm_eps": 2}, "layer_norm_eps must be between 0 and 1"),
    ],
)
def test_what_is_no_bert_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        config_from_huggingface(HUGGINGFACE | change)


def test_a_missing_size_is_named():
    values = {name: value for name, value in HUGGINGFACE.items() if name != "hidden_size"}
    with pytest.raises(ValueError, match=r"config\.json: hidden_size missing"):
        config_from_huggingface(values)


def test_a_dict_with_another_field_is_refused():
    values = config_from_huggingface(HUGGINGFACE).to_dict()
    with pytest.raises(ValueError, match="missing or unknown: rotary"):
        BertConfig.from_dict(values | {"rotary": 1})


def test_a_configuration_that_is_no_object_is_refused():
    with pytest.raises(ValueError, match=r"config\.json: must hold an object, got a list"):
        config_from_huggingface([])
