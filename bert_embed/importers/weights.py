"""Reads tensors from safetensors and PyTorch files and JSON of a model; writes a bundle."""

import io
import json
import math
import os
import pickle
import pkgutil
import re
import reprlib
import shutil
import tempfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from safetensors import SafetensorError, safe_open

from bert_embed.backends.choose import TABLE, is_installed
from bert_embed.backends.probe import probe_outputs
from bert_embed.base.errors import InputError, is_passing, refusal
from bert_embed.bundle.bundle import (
    PROBE,
    Bundle,
    file_sha256,
    read_bundle,
    whole_bundle,
    write_metadata,
    write_tensors,
)
from bert_embed.models.encoder import EncoderConfig
from bert_embed.storage.local import place_folder, refuse_pointer
from bert_embed.text.documents import TextTokenizer


def _refuse_pointer(path: Path) -> None:
    with open(path, "rb") as file:
        refuse_pointer(f"{path}:", file.read(64))


def read_json(path: Path) -> Any:
    """Returns the contents of a JSON file; InputError if it cannot be read."""
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise refusal(error, f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        _refuse_pointer(path)
        raise InputError(f"{path}: is not JSON: {error}") from error


_TORCH = re.compile(r"torch\.nn\.(?:\w+\.)*(\w+)(\(\))?$")


class FileSettings(dict[str, Any]):
    """An object of a model's JSON file, or of none; errors of what is wrong in it name the file."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.path = path

    def error(self, problem: str) -> InputError:
        """The error of what is wrong."""
        return InputError(f"{self.path}: {problem}")

    def object(self, name: str) -> "FileSettings":
        """Returns the object under a name, an empty one if there is none."""
        value = self.get(name)
        if value is not None and not isinstance(value, dict):
            raise self.error(f"{name} must be an object, got a {type(value).__name__}")
        return FileSettings(self.path, value or {})

    def number(self, name: str, least: int = 1) -> int | None:
        """Returns the whole number under a name, None if there is none."""
        number = self.get(name)
        if number is not None and (type(number) is not int or number < least):
            what = f"whole number of at least {least}" if least > 1 else "positive integer"
            raise self.error(f"{name} must be a {what}, got {number!r}")
        return number

    def text(self, name: str) -> str | None:
        """Returns the text under a name, None if there is none."""
        text = self.get(name)
        if text is not None and not isinstance(text, str):
            raise self.error(f"{name} must be a text, got {text!r}")
        return text

    def torch_activation(self, setting: str, name: Any, known: Mapping[str, str]) -> str:
        """Returns our name of a class of torch.nn; InputError names the known ones."""
        match = _TORCH.match(name) if isinstance(name, str) else None
        if match is None or match[1] not in known:
            raise self.error(f"{setting} must be torch.nn's {', '.join(known)}, got {name!r}")
        return known[match[1]]

    def check_vector_names(self, allowed: tuple[str, ...] = ("sentence_embedding",)) -> None:
        """Checks that a module of sentence-transformers takes and returns such vectors."""
        for name in ("module_input_name", "module_output_name"):
            if self.get(name) not in (None, *allowed):
                raise self.error(f"{name} must be {allowed[0]!r}, got {self[name]!r}")

    def refuse_unknown(self, supported: Container[str]) -> None:
        """InputError names a setting that is not supported, unless it is empty or off."""
        for name, value in self.items():
            parts = value.values() if isinstance(value, dict) else (value,)
            if name not in supported and any(one not in (None, False, {}, [], "") for one in parts):
                raise self.unknown(name, value)

    def unknown(self, name: str, value: Any) -> InputError:
        """The error of a setting that is not supported."""
        return self.error(
            f"{name} is not supported, got {reprlib.repr(value)}, which is neither "
            "followed nor known to change no vector; remove it if it changes none"
        )


def read_object(path: Path) -> FileSettings:
    """Returns a JSON file's object; InputError if it holds something else."""
    values = read_json(path)
    if not isinstance(values, dict):
        raise InputError(f"{path}: must hold an object, got a {type(values).__name__}")
    return FileSettings(path, values)


def optional_object(path: Path) -> FileSettings:
    """Returns a JSON file's object, an empty one if there is no such file."""
    return read_object(path) if path.is_file() else FileSettings(path, {})


def architectures(values: Mapping[str, Any]) -> list[str]:
    """Returns the names of classes in config.json."""
    names = values.get("architectures")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def inside(folder: Path, name: Any) -> Path:
    """Returns a path below `folder`; InputError if the name leads out, or no file can have it."""
    is_name = isinstance(name, str) and "\0" not in name
    path = Path(name) if is_name and name.encode(errors="replace").decode() == name else Path("/")
    if path.is_absolute() or ".." in path.parts:
        raise InputError(f"{folder}: {name!r} must be a path inside the model's folder")
    return folder / path


_MOST_PICKLED = 1 << 16  # bytes that name the tensors of a layer or two
# The types of storages, as little-endian NumPy has them; bfloat16 are the upper halves of float32.
_DTYPES_OF_TORCH = {
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "DoubleStorage": "<f8",
    "BFloat16Storage": "<u2",
}
_Storage = tuple[str, bytes]  # a type of numbers, and the numbers' bytes


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
            data = io.BytesIO(archive.read(name))
            tensors = _Tensors(data, lambda key: archive.read(f"{folder}data/{key}")).load()
    except OSError as error:
        raise refusal(error, f"{path}: cannot be read: {error.strerror}") from error
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

    def __init__(self, data: io.BytesIO, read: Callable[[str], bytes]) -> None:
        super().__init__(data)
        self._read = read

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _rebuilt
        if module in ("torch", "torch.storage") and name in _DTYPES_OF_TORCH:
            return name
        raise pickle.UnpicklingError(f"{module}.{name} is refused, a file can run code by it")

    def persistent_load(self, pid: Any) -> _Storage:
        what, kind, key, *_ = pid
        if what != "storage" or kind not in _DTYPES_OF_TORCH or not str(key).isdecimal():
            raise pickle.UnpicklingError("it holds something other than tensors")
        return kind, self._read(str(key))


def _rebuilt(
    storage: _Storage, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any
) -> np.ndarray:
    if tuple(stride) != tuple(math.prod(size[place + 1 :]) for place in range(len(size))):
        raise pickle.UnpicklingError("the numbers of a tensor do not lie in order")
    kind, data = storage
    numbers = np.frombuffer(data, _DTYPES_OF_TORCH[kind])[offset:][: math.prod(size)]
    if kind == "BFloat16Storage":
        numbers = (numbers.astype("<u4") << 16).view("<f4")
    return numbers.astype(np.float32).reshape(size)


_WEIGHTS = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_PICKLED = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_OTHERS = ("tf_model.h5", "flax_model.msgpack", "model.ckpt.index", "model.onnx")
# safetensors gives bfloat16 under its name alone, which NumPy knows by ml_dtypes.
_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": ml_dtypes.bfloat16, "F64": "<f8"}
INTEGERS = ("I8", "I32", "I64")  # types that read_arrays takes on request alone


def weight_files(folder: Path) -> list[Path]:
    """Returns the safetensors files, one or the index's."""
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
                f"{folder}: {_WEIGHTS} is missing and {name} is refused ({why}), convert it in a "
                "copy of the model's folder: load that with the class that has all of its weights, "
                "heads included, and call save_pretrained(folder)"
            )
    raise InputError(f"{folder}: {_WEIGHTS} is missing")


def check_layer_count(path: Path, config: EncoderConfig, prefix: str, names: Iterable[str]) -> None:
    """Checks the number of layers in `path`, before the names of all tensors are built."""
    layer = re.compile(re.escape(prefix) + r"(\d{1,6})\D")
    layers = {int(match[1]) for name in names if (match := layer.match(name))}
    if not layers:
        raise InputError(
            f"{path.parent}: the weights hold no tensor whose name begins with {prefix}, but "
            f"{min(names, default='none')}; rename them as transformers' save_pretrained does"
        )
    if config.num_hidden_layers > len(layers):
        raise InputError(
            f"{path}: num_hidden_layers must be {len(layers)}, as the weights have, got "
            f"{config.num_hidden_layers}"
        )


def check_shapes(
    place: object,
    tensors: Mapping[str, np.ndarray | Sequence[int]],
    expected: Mapping[str, Sequence[int]],
    whole: str = "a BERT encoder",
) -> None:
    """InputError if a tensor, or the shape of one, is missing, left over or another."""
    for name, shape in expected.items():
        if name not in tensors:
            raise InputError(f"{place}: tensor {name} is missing")
        actual = list(getattr(tensors[name], "shape", tensors[name]))
        if actual != list(shape):
            raise InputError(f"{place}: tensor {name} must be {list(shape)}, is {actual}")
    if left := set(tensors) - set(expected):
        raise InputError(f"{place}: tensor {min(left)} is not part of {whole}")


def read_arrays(
    folder: Path,
    is_used: Callable[[str], bool] = lambda key: True,
    plain_name: Callable[[str], str] = str,
    also: Container[str] = (),
) -> dict[str, np.ndarray]:
    """Returns the float32 tensors of all weight files with a key that `is_used`, by plain names.

    `also` are types beside floats that they may have.
    """
    arrays: dict[str, np.ndarray] = {}
    keys: dict[str, str] = {}
    for path in weight_files(folder):
        for key, array in read_safetensors(path, is_used, also):
            name = plain_name(key)
            if not np.array_equal(arrays.setdefault(name, array), array, equal_nan=True):
                raise InputError(
                    f"{path}: tensors {keys[name]} and {key} are both {name} of the model, with "
                    "other numbers; remove the one that is not the model's"
                )
            keys.setdefault(name, key)
    return arrays


def read_safetensors(
    path: Path, is_used: Callable[[str], bool] = lambda key: True, also: Container[str] = ()
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields key and array, as float32, of each tensor with a key that `is_used`."""
    try:
        with safe_open(path, framework="np") as file:
            for key in filter(is_used, file.keys()):
                kind = file.get_slice(key).get_dtype()
                if kind not in _DTYPES and kind not in also:
                    raise InputError(
                        f"{path}: tensor {key} must be one of {', '.join(_DTYPES)}, is {kind}"
                    )
                yield key, np.asarray(file.get_tensor(key), np.float32)
    except (OSError, SafetensorError) as error:
        message = f"{path}: cannot be read as safetensors, perhaps cut: {error}"
        if path.is_file() and not is_passing(error):
            _refuse_pointer(path)
        raise refusal(error, message) from error


def new_bundle(dest: str, config: EncoderConfig, **facts: Any) -> Bundle:
    """Returns the bundle of a model, which `write_bundle` completes."""
    path, length = str(Path(dest).absolute()), config.max_position_embeddings
    return Bundle(path=path, fingerprint="", config=config, **{"max_seq_length": length, **facts})


def write_bundle(
    bundle: Bundle, tensors: Mapping[str, np.ndarray], tokenizer: TextTokenizer
) -> Bundle:
    """Writes the bundle to `bundle.path` and returns it, with all that follows from the others.

    The folder is written under another name and renamed at the end. If another process wrote the
    same bundle meanwhile, that one stays; InputError if `bundle.path` holds something else.
    `tensors` are float32, in the names and shapes of `tensor_shapes`.
    """
    dest = Path(bundle.path)
    bundle = replace(
        bundle, has_pooler="pooler/kernel" in tensors, tokenizer_settings=tokenizer.settings
    )
    bundle = replace(bundle, fingerprint=bundle.fingerprint_of(tensors, tokenizer.vocab))
    dest.parent.mkdir(parents=True, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=f".{dest.name}.", dir=dest.parent)
    try:
        here = replace(bundle, path=temporary)
        write_tensors(here, tensors)
        for backend in TABLE:
            if backend.write and is_installed(backend) and not bundle.config.engine:
                pkgutil.resolve_name(backend.write)(temporary, bundle, tensors)
        vocabulary = Path(temporary, bundle.tokenizer_file)
        vocabulary.write_text(tokenizer.file_text, encoding="utf-8", newline="\n")
        files = {file.name: file_sha256(file) for file in Path(temporary).iterdir()}
        outputs = probe_outputs(replace(here, files=files), tokenizer)
        if not np.isfinite(outputs["hidden_states"][-1]).all(axis=-1).any():
            raise InputError(
                f"{bundle.source}: its weights give no text a vector of finite numbers, as after a "
                "training that failed or in 16 bits that were too few; take other weights"
            )
        kept: dict[str, Any] = dict(outputs)
        np.savez(Path(temporary, PROBE), **kept)
        write_metadata(temporary, bundle)
        os.chmod(temporary, 0o755)  # mkdtemp gives access to its user only
        try:
            place_folder(temporary, bundle.path)
        except FileExistsError as error:
            there = whole_bundle(bundle.path)
            if there is None or replace(there, files={}) != replace(bundle, files={}):
                raise InputError(
                    f"{bundle.path}: exists and is not empty, name a new folder or remove it"
                ) from error
        return read_bundle(bundle.path)
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, bundle.path) from error  # of a full disk
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
