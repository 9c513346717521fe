"""safetensors: the files that hold a folder's weights, and what is in them as float32."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open

from bert.importers.json_files import inside, read_object

_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_OTHERS = ("tf_model.h5", "flax_model.msgpack", "model.ckpt.index", "model.onnx")
_DTYPES = ("F32", "F16", "BF16", "F64")


def weight_files(folder: Path, way_out: str) -> list[Path]:
    """Returns the safetensors files of a folder: one, or those that the index names.

    Args:
        folder: A model's, or a module's.
        way_out: What makes safetensors of other weights, for the message.

    Raises:
        ValueError: None, or only weights of another kind; the file is named.
    """
    if (folder / _WEIGHTS).is_file():
        return [folder / _WEIGHTS]
    if (folder / _INDEX).is_file():
        places = read_object(folder / _INDEX).get("weight_map")
        if not isinstance(places, dict) or not places:
            raise ValueError(f"{folder / _INDEX}: weight_map must name the weights' files")
        return [inside(folder, name) for name in sorted(map(str, set(places.values())))]
    for name in (*_PICKLED, *_OTHERS):
        if (folder / name).is_file():
            pickled = name in _PICKLED
            why = "pickled weights can run code when read" if pickled else "not readable here"
            raise ValueError(
                f"{folder}: {_WEIGHTS} is missing and {name} is refused ({why}), convert it with "
                f"{way_out}"
            )
    raise ValueError(f"{folder}: {_WEIGHTS} is missing")


def read_safetensors(
    path: Path, wanted: Callable[[str], bool] = lambda key: True
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields key and array, as float32, of each tensor whose key is `wanted`.

    Raises:
        ValueError: The file cannot be read, or a tensor holds no floating numbers.
    """
    try:
        with safe_open(path, framework="np") as file:
            for key in filter(wanted, file.keys()):
                kind = file.get_slice(key).get_dtype()
                if kind not in _DTYPES:
                    raise ValueError(
                        f"{path}: tensor {key} must be one of {', '.join(_DTYPES)}, is {kind}"
                    )
                yield key, np.asarray(file.get_tensor(key), np.float32)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path}: cannot be read as safetensors, perhaps cut: {error}") from error
