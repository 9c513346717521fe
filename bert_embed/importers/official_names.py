"""Reads an encoder's sizes and weights from variables with the names of tf-models-official."""

import math
import re
from collections.abc import Mapping

import numpy as np

from bert_embed.config import BertConfig
from bert_embed.graph.weight_names import official_name, tensor_shapes
from bert_embed.importers.weights import check_shapes
from bert_embed.storage.errors import InputError

_LAYER = re.compile(r"transformer/layer_(\d+)/")


def encoder_tensors(
    variables: Mapping[str, np.ndarray],
) -> tuple[BertConfig, dict[str, np.ndarray]]:
    """Returns sizes and weights in the names and shapes of `weight_names.tensor_shapes`.

    The sizes follow from the shapes (attention kernels are `[hidden, heads, head width]`). The
    activation does not, it stays as `BertConfig` has it.

    Args:
        variables: Arrays by the exporter's names, all with the same scope in front or none.

    Raises:
        InputError: A variable of such an encoder is missing, has another shape, or is left over.
    """
    word = official_name("embeddings/word")
    scope = next((name.removesuffix(word) for name in variables if name.endswith(word)), None)
    if scope is None:
        raise InputError(f"it has no variable {word}")
    named = {name.removeprefix(scope): array for name, array in variables.items()}
    config = _config({name: array.shape for name, array in named.items()})
    shapes = tensor_shapes(config, official_name("pooler/kernel") in named)
    sizes = {official_name(name): [math.prod(shape)] for name, shape in shapes.items()}
    check_shapes("its variables", {name: [array.size] for name, array in named.items()}, sizes)
    return config, {
        name: named[official_name(name)].reshape(shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def _config(shapes: Mapping[str, tuple[int, ...]]) -> BertConfig:
    layers = {found[1] for name in shapes if (found := _LAYER.match(name))}
    first = {name: official_name(f"layers/0/{name}/kernel") for name in ("query", "intermediate")}
    try:
        vocab_size, hidden = shapes[official_name("embeddings/word")]
        _, heads, _ = shapes[first["query"]]
        return BertConfig(
            vocab_size=vocab_size,
            hidden_size=hidden,
            num_hidden_layers=len(layers),
            num_attention_heads=heads,
            intermediate_size=shapes[first["intermediate"]][1],
            max_position_embeddings=shapes[official_name("embeddings/position")][0],
            type_vocab_size=shapes[official_name("embeddings/type")][0],
        )
    except KeyError as error:
        raise InputError(f"it has no variable {error.args[0]}") from error
    except (ValueError, IndexError) as error:
        raise InputError(f"its variables have other shapes: {error}") from error
