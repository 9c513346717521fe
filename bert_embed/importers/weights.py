"""Reads weights from safetensors files, and checks names and shapes for all importers."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from bert_embed.architectures.encoder import EncoderConfig
from bert_embed.importers.json_files import inside, read_object
from bert_embed.storage.errors import InputError

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_OTHERS = ("tf_model.h5", "flax_model.msgpack", "model.ckpt.index", "model.onnx")
# safetensors gives bfloat16 under its name alone, which NumPy knows by ml_dtypes.
_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16, "F64": "<f8"}


def weight_files(folder: Path, convert: str) -> list[Path]:
    """Returns the safetensors files, one or the index's; `convert` turns others into them."""
    if (folder / _WEIGHTS).is_file():
        return [folder / _WEIGHTS]
    if (folder / _INDEX).is_file():
        places = read_object(folder / _INDEX).get("weight_map")
        if not isinstance(places, dict) or not places:
            raise InputError(f"{folder / _INDEX}: weight_map must name the weights' files")
        return [inside(folder, name) for name in sorted(map(str, set(places.values())))]
    for name in (*_PICKLED, *_OTHERS):
        if (folder / name).is_file():
            pickled = name in _PICKLED
            why = "pickled weights can run code when read" if pickled else "not readable here"
            raise InputError(
                f"{folder}: {_WEIGHTS} is missing and {name} is refused ({why}), convert it with "
                f"{convert}"
            )
    raise InputError(f"{folder}: {_WEIGHTS} is missing")


def check_layer_count(path: Path, config: EncoderConfig, prefix: str, names: Iterable[str]) -> None:
    """Checks the number of layers in `path`, before the names of all tensors are built."""
    layer = re.compile(re.escape(prefix) + r"(\d{1,6})\D")
    layers = {int(match[1]) for name in names if (match := layer.match(name))}
    if config.num_hidden_layers > len(layers):
        raise InputError(
            f"{path}: num_hidden_layers must be {len(layers)}, as the weights have, got "
            f"{config.num_hidden_layers}"
        )


def check_shapes(
    place: object,
    shapes: Mapping[str, Sequence[int]],
    expected: Mapping[str, Sequence[int]],
    whole: str = "a BERT encoder",
) -> None:
    """InputError if a tensor is missing, left over or of another shape; names are the format's."""
    for name, shape in expected.items():
        if name not in shapes:
            raise InputError(f"{place}: tensor {name} is missing")
        if list(shapes[name]) != list(shape):
            raise InputError(
                f"{place}: tensor {name} must be {list(shape)}, is {list(shapes[name])}"
            )
    if left := set(shapes) - set(expected):
        raise InputError(f"{place}: tensor {min(left)} is not part of {whole}")


def read_arrays(
    folder: Path,
    convert: str,
    is_used: Callable[[str], bool] = lambda key: True,
    plain_name: Callable[[str], str] = str,
) -> dict[str, np.ndarray]:
    """Returns the float32 tensors of all weight files with a key that `is_used`, by plain names.

    `convert` is as of `weight_files`.
    """
    arrays: dict[str, np.ndarray] = {}
    keys: dict[str, str] = {}
    for path in weight_files(folder, convert):
        for key, array in read_safetensors(path, is_used):
            name = plain_name(key)
            if not np.array_equal(arrays.setdefault(name, array), array, equal_nan=True):
                raise InputError(
                    f"{path}: tensors {keys[name]} and {key} are both {name} of the model, with "
                    "other numbers; remove the one that is not the model's"
                )
            keys.setdefault(name, key)
    return arrays


def read_safetensors(
    path: Path, is_used: Callable[[str], bool] = lambda key: True
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields key and array, as float32, of each tensor with a key that `is_used`."""
    try:
        with safe_open(path, framework="np") as file:
            for key in filter(is_used, file.keys()):
                kind = file.get_slice(key).get_dtype()
                if kind not in _DTYPES:
                    raise InputError(
                        f"{path}: tensor {key} must be one of {', '.join(_DTYPES)}, is {kind}"
                    )
                yield key, np.asarray(file.get_tensor(key), np.float32)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: cannot be read as safetensors, perhaps cut: {error}") from error
