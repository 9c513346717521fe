"""A Dense module's folder of sentence-transformers in, its shape and weights out."""

import re
from pathlib import Path

import numpy as np

from bert.dense import DenseModule
from bert.importers.json_files import read_object, refuse_unknown
from bert.importers.weights import read_safetensors, weight_files

CONVERT = "SentenceTransformer(folder).save_pretrained(new_folder) of sentence-transformers"
_VECTOR = "sentence_embedding"
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


def read_dense(folder: Path) -> tuple[DenseModule, dict[str, np.ndarray]]:
    """Reads a Dense module.

    Returns:
        Its shape; and its weights, float32: "kernel" `[in, out]` and, with a bias, "bias" `[out]`.

    Raises:
        ValueError: A setting that is not computed here, or a weight missing, misshapen or left
            over; the file is named.
    """
    module = _read_config(folder / "config.json")
    arrays: dict[str, np.ndarray] = {}
    for path in weight_files(folder, CONVERT):
        arrays.update(read_safetensors(path))
    wanted: dict[str, tuple[int, ...]] = {
        "linear.weight": (module.out_features, module.in_features)
    }
    if module.bias:
        wanted["linear.bias"] = (module.out_features,)
    for name, shape in wanted.items():
        if name not in arrays:
            raise ValueError(f"{folder}: tensor {name} is missing")
        if arrays[name].shape != shape:
            raise ValueError(
                f"{folder}: tensor {name} must be {list(shape)}, is {list(arrays[name].shape)}"
            )
    if left := set(arrays) - set(wanted):
        raise ValueError(f"{folder}: tensor {min(left)} is not part of a Dense module")
    weights = {"kernel": arrays["linear.weight"].T}
    return module, weights | ({"bias": arrays["linear.bias"]} if module.bias else {})


def _read_config(path: Path) -> DenseModule:
    values = read_object(path)
    refuse_unknown(path, values, _KNOWN)
    for name in ("module_input_name", "module_output_name"):
        if values.get(name) not in (None, _VECTOR):
            raise ValueError(f"{path}: {name} must be {_VECTOR!r}, got {values[name]!r}")
    said = values.get("activation_function", "torch.nn.Tanh")
    found = _TORCH.match(said) if isinstance(said, str) else None
    if said is not None and (found is None or found[1] not in _ACTIVATIONS):
        raise ValueError(
            f"{path}: activation_function must be torch.nn's {', '.join(_ACTIVATIONS)}, "
            f"got {said!r}"
        )
    try:
        return DenseModule(
            in_features=values.get("in_features", 0),
            out_features=values.get("out_features", 0),
            activation=_ACTIVATIONS[found[1]] if found else "identity",
            bias=values.get("bias", True),
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
