"""The names that tf-models-official gives to an encoder's variables, turned into ours."""

import re
from collections.abc import Mapping

import numpy as np

from bert.config import BertConfig
from bert.tensors import tensor_shapes

_WORD = "word_embeddings/embeddings"
_LAYER = re.compile(r"transformer/layer_(\d+)/")
_NAMES = {
    "embeddings/word": _WORD,
    "embeddings/position": "position_embedding/embeddings",
    "embeddings/type": "type_embeddings/embeddings",
    "embeddings/norm": "embeddings/layer_norm",
    "pooler": "pooler_transform",
}
_LAYER_NAMES = {
    "query": "self_attention/query",
    "key": "self_attention/key",
    "value": "self_attention/value",
    "attention_output": "self_attention/attention_output",
    "attention_norm": "self_attention_layer_norm",
    "intermediate": "intermediate",
    "output": "output",
    "output_norm": "output_layer_norm",
}


def encoder_tensors(
    variables: Mapping[str, np.ndarray],
) -> tuple[BertConfig, dict[str, np.ndarray]] | str:
    """Returns sizes and weights in the names and shapes of `bert.tensors.tensor_shapes`.

    The sizes follow from the shapes (attention kernels are `[hidden, heads, head width]`); the
    activation does not, it stays as `BertConfig` has it.

    Args:
        variables: Arrays by the exporter's names, all with the same scope in front or none.

    Returns:
        The two, or why they are not those of such an encoder: a variable that is missing, has
        another shape, or is left over.
    """
    scope = next((name.removesuffix(_WORD) for name in variables if name.endswith(_WORD)), None)
    if scope is None:
        return f"it has no variable {_WORD}"
    named = {name.removeprefix(scope): array for name, array in variables.items()}
    config = _config(named)
    if isinstance(config, str):
        return config
    tensors = {}
    for name, shape in tensor_shapes(config, "pooler_transform/kernel" in named).items():
        theirs = official_name(name)
        array = named.pop(theirs, None)
        if array is None:
            return f"it has no variable {theirs}"
        if array.size != np.prod(shape):
            return f"its variable {theirs} is {list(array.shape)}"
        tensors[name] = array.reshape(shape).astype(np.float32)
    return f"it has a variable {min(named)}" if named else (config, tensors)


def _config(named: Mapping[str, np.ndarray]) -> BertConfig | str:
    layers = {int(found[1]) for name in named if (found := _LAYER.match(name))}
    shapes = {name: array.shape for name, array in named.items()}
    try:
        vocab_size, hidden = shapes[_WORD]
        _, heads, _ = shapes["transformer/layer_0/self_attention/query/kernel"]
        return BertConfig(
            vocab_size=vocab_size,
            hidden_size=hidden,
            num_hidden_layers=len(layers),
            num_attention_heads=heads,
            intermediate_size=shapes["transformer/layer_0/intermediate/kernel"][1],
            max_position_embeddings=shapes[_NAMES["embeddings/position"]][0],
            type_vocab_size=shapes[_NAMES["embeddings/type"]][0],
        )
    except KeyError as error:
        return f"it has no variable {error.args[0]}"
    except (ValueError, IndexError) as error:
        return f"its variables have other shapes: {error}"


def official_name(name: str) -> str:
    """Returns tf-models-official's name of our tensor.

    >>> official_name("layers/3/query/kernel"), official_name("embeddings/word")
    ('transformer/layer_3/self_attention/query/kernel', 'word_embeddings/embeddings')
    """
    if name in _NAMES:
        return _NAMES[name]
    module, _, part = name.rpartition("/")
    if module.startswith("layers/"):
        _, number, kind = module.split("/")
        return f"transformer/layer_{number}/{_LAYER_NAMES[kind]}/{part}"
    return f"{_NAMES[module]}/{part}"
