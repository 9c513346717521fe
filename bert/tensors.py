"""The tensors of a model, by name and shape: what importers deliver; without TensorFlow."""

import math
from collections.abc import Sequence

from bert.config import BertConfig
from bert.dense import DenseModule


def tensor_shapes(
    config: BertConfig, pooler: bool = True, dense: Sequence[DenseModule] = ()
) -> dict[str, tuple[int, ...]]:
    """Returns the name and shape of every tensor of a BERT encoder and its Dense modules.

    A kernel is `[in, out]`, so that `x @ kernel + bias` is the layer.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings/word": (config.vocab_size, hidden),
        "embeddings/position": (config.max_position_embeddings, hidden),
        "embeddings/type": (config.type_vocab_size, hidden),
    }
    layers = {"pooler": (hidden, hidden)} if pooler else {}
    norms = ["embeddings/norm"]
    for layer in (f"layers/{number}" for number in range(config.num_hidden_layers)):
        for name in ("query", "key", "value", "attention_output"):
            layers[f"{layer}/{name}"] = (hidden, hidden)
        layers[f"{layer}/intermediate"] = (hidden, inner)
        layers[f"{layer}/output"] = (inner, hidden)
        norms += [f"{layer}/attention_norm", f"{layer}/output_norm"]
    for name, shape in layers.items():
        shapes |= {f"{name}/kernel": shape, f"{name}/bias": shape[1:]}
    for name in norms:
        shapes |= {f"{name}/gamma": (hidden,), f"{name}/beta": (hidden,)}
    for number, module in enumerate(dense):
        shapes[f"dense/{number}/kernel"] = (module.in_features, module.out_features)
        if module.bias:
            shapes[f"dense/{number}/bias"] = (module.out_features,)
    return shapes


def parameter_count(
    config: BertConfig, pooler: bool = True, dense: Sequence[DenseModule] = ()
) -> int:
    """Returns how many numbers the tensors hold.

    >>> parameter_count(BertConfig(30522, 768, 12, 12, 3072, 512))
    109482240
    """
    return sum(math.prod(shape) for shape in tensor_shapes(config, pooler, dense).values())
