"""Writes tensors as torch.save does, without PyTorch."""

import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

KINDS = {"<f4": "FloatStorage", "<f2": "HalfStorage", "<f8": "DoubleStorage"}
REBUILD = "torch._utils _rebuild_tensor_v2"


def write_torch(
    path: Path, arrays: Mapping[str, np.ndarray], pickled: bytes | None = None, packing: int = 0
) -> None:
    """Writes a state dict; `pickled` takes the place of what names the tensors."""
    with zipfile.ZipFile(path, "w", packing) as archive:
        archive.writestr(f"{path.stem}/data.pkl", pickled or state_dict(arrays))
        archive.writestr(f"{path.stem}/byteorder", "little")
        for number, array in enumerate(arrays.values()):
            archive.writestr(f"{path.stem}/data/{number}", array.tobytes())


def state_dict(arrays: Mapping[str, np.ndarray], rebuild: str = REBUILD) -> bytes:
    """Returns the pickle of a state dict, whose numbers are in storages apart."""
    items = b"".join(
        _text(name) + _tensor(number, array, rebuild)
        for number, (name, array) in enumerate(arrays.items())
    )
    return b"\x80\x02}(" + items + b"u."


def _tensor(number: int, array: np.ndarray, rebuild: str) -> bytes:
    kind = _class(f"torch {KINDS[array.dtype.str]}")
    storage = _tuple([_text("storage"), kind, _text(str(number)), _text("cpu"), _int(array.size)])
    strides = [_int(stride // array.itemsize) for stride in array.strides]
    hooks = _class("collections OrderedDict") + b")R"
    parts = [storage + b"Q", _int(0), _tuple([*map(_int, array.shape)]), _tuple(strides)]
    return _class(rebuild) + _tuple([*parts, b"\x89", hooks]) + b"R"


def _class(name: str) -> bytes:
    return b"c" + "\n".join(name.split()).encode() + b"\n"


def _tuple(items: Sequence[bytes]) -> bytes:
    return b"(" + b"".join(items) + b"t"


def _int(number: int) -> bytes:
    return b"J" + struct.pack("<i", number)


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data
