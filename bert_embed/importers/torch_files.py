"""Reads the tensors of a small file of PyTorch; nothing that a file names is executed."""

import io
import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert_embed.storage.errors import InputError

_MOST_PICKLED = 1 << 16  # bytes that name the tensors of a layer or two
# The types of storages, as little-endian NumPy has them; bfloat16 are the upper halves of float32.
_DTYPES = {
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "DoubleStorage": "<f8",
    "BFloat16Storage": "<u2",
}
_MODULES = ("torch", "torch.storage")


class _Storage(NamedTuple):
    """A type of numbers, and the numbers' bytes."""

    kind: str
    data: bytes


def read_torch(path: Path) -> dict[str, np.ndarray]:
    """Returns the tensors of a state dict, float32, by name; InputError for anything else."""
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {info.filename: info.file_size for info in archive.infolist()}
            packed = [i for i in archive.infolist() if i.compress_type != zipfile.ZIP_STORED]
            (name,) = (name for name in sizes if name.endswith("/data.pkl"))
            folder = name.removesuffix("data.pkl")
            order = f"{folder}byteorder"
            if packed or sizes[name] > _MOST_PICKLED:
                raise ValueError("it is not as torch.save writes a small file")
            if order in sizes and archive.read(order) != b"little":
                raise ValueError("its numbers are not little-endian")
            read = _Tensors(archive.read(name), lambda key: archive.read(f"{folder}data/{key}"))
            tensors = read.load()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except Exception as error:  # whatever a damaged pickle or archive leads to
        raise InputError(
            f"{path}: cannot be read as tensors that torch.save wrote: {error}"
        ) from error
    if not isinstance(tensors, Mapping) or not all(
        isinstance(name, str) and isinstance(array, np.ndarray) for name, array in tensors.items()
    ):
        raise InputError(f"{path}: must hold tensors by their names, and nothing else")
    return dict(tensors)


class _Tensors(pickle.Unpickler):
    """Reads tensors; a pickle that names any other function or class is refused."""

    def __init__(self, data: bytes, read: Callable[[str], bytes]) -> None:
        super().__init__(io.BytesIO(data))
        self._read = read

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuilt
        if module in _MODULES and name in _DTYPES:
            return name
        raise pickle.UnpicklingError(f"{module}.{name} is refused, a file can run code by it")

    def persistent_load(self, pid: Any) -> _Storage:
        what, kind, key, *_ = pid
        if what != "storage" or kind not in _DTYPES or not str(key).isdecimal():
            raise pickle.UnpicklingError("it holds something other than tensors")
        return _Storage(kind, self._read(str(key)))


def _rebuilt(
    storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any
) -> np.ndarray:
    """Returns a tensor, float32, whose numbers lie in order."""
    usual = tuple(math.prod(size[place + 1 :]) for place in range(len(size)))
    if tuple(stride) != usual:
        raise pickle.UnpicklingError("the numbers of a tensor do not lie in order")
    numbers = np.frombuffer(storage.data, _DTYPES[storage.kind])[offset:][: math.prod(size)]
    if storage.kind == "BFloat16Storage":
        numbers = (numbers.astype("<u4") << 16).view("<f4")
    return numbers.astype(np.float32).reshape(size)
