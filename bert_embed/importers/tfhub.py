"""Imports a BERT encoder of TF Hub or tf-models, a TensorFlow 2 SavedModel, into a bundle."""

import math
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bert_embed.architectures.bert import BertConfig
from bert_embed.architectures.bert_names import official_name
from bert_embed.architectures.encoder import tensor_shapes
from bert_embed.bundle.bundle import Bundle
from bert_embed.importers.saved_models import SavedModel, find_vocabulary, read_saved_model
from bert_embed.importers.tokenizer_files import no_casing, read_vocabulary
from bert_embed.importers.weights import check_shapes
from bert_embed.importers.writer import write_bundle
from bert_embed.storage.errors import InputError
from bert_embed.tokenization.tokenizer import Tokenizer

_MAX_WORD_CHARS = 200  # of the FullTokenizer that these encoders were trained with
# What a graph computes with each activation and with no other; its pooler has a Tanh, too.
_ACTIVATIONS = {
    "gelu": {"Erf", "Erfc"},
    "gelu_new": {"Pow"},
    "relu": {"Relu"},
}
_LAYER = re.compile(r"transformer/layer_(\d+)/")
_MOST_NAMED = 3


def import_tfhub(
    source: str,
    dest: str,
    *,
    lower_case: bool | None = None,
    name: str | None = None,
    licence: str | None = None,
) -> Bundle:
    """Imports a SavedModel by its variables' tf-models-official names; its graph does not run."""
    root = Path(source).absolute()
    saved = read_saved_model(root)
    try:
        config, tensors = encoder_tensors(saved)
    except InputError as error:
        raise InputError(
            f"{root}: is not a BERT encoder of TF Hub or tf-models ({error}); it holds "
            f"{_contents(saved)}"
        ) from error
    uncased = saved.lower_case if lower_case is None else lower_case
    vocabulary = read_vocabulary(find_vocabulary(saved), config, "the SavedModel")
    if uncased is None:
        raise no_casing(f"{root}:")
    bundle = Bundle(
        path=str(Path(dest).absolute()),
        fingerprint="",
        config=config,
        max_seq_length=config.max_position_embeddings,
        has_pooler="pooler/kernel" in tensors,
        source=name or str(root),
        licence=licence or "",
    )
    return write_bundle(bundle, tensors, Tokenizer(vocabulary, uncased, _MAX_WORD_CHARS))


def _contents(saved: SavedModel) -> str:
    names = sorted(saved.variables)
    listed = ", ".join(names[:_MOST_NAMED]) or "none"
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return f"the variables {listed}{more}, and returns {', '.join(sorted(saved.outputs)) or 'one'}"


def encoder_tensors(saved: SavedModel) -> tuple[BertConfig, dict[str, np.ndarray]]:
    """Returns sizes, from the shapes, and weights, in the names and shapes of `tensor_shapes`.

    The activation is from the graph's operations; attention kernels are `[hidden, heads, head
    width]`.
    """
    if "sequence_output" not in saved.outputs:
        raise InputError("it returns no sequence_output")
    word = official_name("embeddings/word")
    scopes = [name.removesuffix(word) for name in saved.variables if name.endswith(word)]
    if not scopes:
        raise InputError(f"it has no variable {word}")
    variables = {name.removeprefix(scopes[0]): array for name, array in saved.variables.items()}
    shapes = {name: array.shape for name, array in variables.items()}
    config = _config(shapes, _activation(saved))
    wanted = tensor_shapes(config, official_name("pooler/kernel") in variables)
    sizes = {official_name(name): [math.prod(shape)] for name, shape in wanted.items()}
    check_shapes("its variables", {name: [math.prod(shapes[name])] for name in shapes}, sizes)
    return config, {
        name: variables[official_name(name)].reshape(shape).astype(np.float32)
        for name, shape in wanted.items()
    }


def _activation(saved: SavedModel) -> str:
    used = [name for name, operations in _ACTIVATIONS.items() if operations & saved.operations]
    if len(used) != 1:
        raise InputError(
            f"its graph computes {' and '.join(used) or 'none'} of gelu, gelu_new and relu"
        )
    return used[0]


def _config(shapes: Mapping[str, tuple[int, ...]], activation: str) -> BertConfig:
    layers = {match[1] for name in shapes if (match := _LAYER.match(name))}
    query, inner = (official_name(f"layers/0/{name}/kernel") for name in ("query", "intermediate"))
    try:
        vocab_size, hidden = shapes[official_name("embeddings/word")]
        _, heads, _ = shapes[query]
        return BertConfig(
            vocab_size=vocab_size,
            hidden_size=hidden,
            num_hidden_layers=len(layers),
            num_attention_heads=heads,
            intermediate_size=shapes[inner][1],
            max_position_embeddings=shapes[official_name("embeddings/position")][0],
            hidden_act=activation,
            type_vocab_size=shapes[official_name("embeddings/type")][0],
        )
    except KeyError as error:
        raise InputError(f"it has no variable {error.args[0]}") from error
    except (ValueError, IndexError) as error:
        raise InputError(f"its variables have other shapes: {error}") from error
