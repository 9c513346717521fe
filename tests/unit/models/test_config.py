"""Settings of an encoder: checked, and the same after JSON."""

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
