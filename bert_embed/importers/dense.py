"""Reads a Dense module of sentence-transformers."""

import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from bert_embed.config import DenseModule
from bert_embed.importers.json_files import check_vector_names, read_object, refuse_unknown
from bert_embed.importers.weights import check_shapes, read_arrays
from bert_embed.storage.errors import InputError

CONVERT = "SentenceTransformer(folder).save_pretrained(new_folder) of sentence-transformers"
_ACTIVATIONS = {
    "Identity": "identity",
    "Tanh": "tanh",
    "ReLU": "relu",
    "GELU": "gelu",
    "Sigmoid": "sigmoid",
}
_TORCH = re.compile(r"torch\.nn\.(?:\w+\.)*(\w+)$")
_KNOWN = frozenset(
    (
        "in_features",
        "out_features",
        "bias",
        "activation_function",
        "module_input_name",
        "module_output_name",
    )
)


def read_dense(
    folder: Path, takes: tuple[str, ...] = ("sentence_embedding",)
) -> tuple[DenseModule, dict[str, np.ndarray]]:
    """Returns sizes and float32 weights, "kernel" `[in, out]` and perhaps "bias" `[out]`.

    `takes` are the names that what it takes and returns may have.
    """
    module = _read_config(folder / "config.json", takes)
    arrays = read_arrays(folder, CONVERT)
    expected: dict[str, tuple[int, ...]] = {
        "linear.weight": (module.out_features, module.in_features)
    }
    if module.bias:
        expected["linear.bias"] = (module.out_features,)
    shapes = {name: array.shape for name, array in arrays.items()}
    check_shapes(folder, shapes, expected, "a Dense module")
    weights = {"kernel": arrays["linear.weight"].T}
    return module, weights | ({"bias": arrays["linear.bias"]} if module.bias else {})


def check_widths(modules: Iterable[DenseModule], width: int, source: Path) -> int:
    """Checks that modules, in order, take what comes before; returns the width of the last one."""
    for number, module in enumerate(modules):
        if module.in_features != width:
            raise InputError(
                f"{source}: in_features of Dense module {number} must be {width}, the width of its "
                f"input, got {module.in_features}"
            )
        width = module.out_features
    return width


def _read_config(path: Path, takes: tuple[str, ...]) -> DenseModule:
    values = read_object(path)
    refuse_unknown(path, values, _KNOWN)
    check_vector_names(path, values, takes)
    name = values.get("activation_function", "torch.nn.Tanh")
    match = _TORCH.match(name) if isinstance(name, str) else None
    if name is not None and (match is None or match[1] not in _ACTIVATIONS):
        raise InputError(
            f"{path}: activation_function must be torch.nn's {', '.join(_ACTIVATIONS)}, "
            f"got {name!r}"
        )
    try:
        return DenseModule(
            in_features=values.get("in_features", 0),
            out_features=values.get("out_features", 0),
            activation=_ACTIVATIONS[match[1]] if match else "identity",
            bias=values.get("bias", True),
        )
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
