"""Reads JSON files of a model's folder; errors name the file."""

import json
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert_embed.storage.errors import InputError


def read_json(path: Path) -> Any:
    """Returns the contents of a JSON file; InputError if it cannot be read."""
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: is not JSON: {error}") from error


def read_object(path: Path) -> Mapping[str, Any]:
    """Returns a JSON file's object; InputError if it holds something else."""
    values = read_json(path)
    if not isinstance(values, dict):
        raise InputError(f"{path}: must hold an object, got a {type(values).__name__}")
    return values


def optional_object(path: Path) -> Mapping[str, Any]:
    """Returns a JSON file's object, an empty one if there is no such file."""
    return read_object(path) if path.is_file() else {}


def object_in(path: Path, values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Returns the object under a name, an empty one if there is none."""
    value = values.get(name)
    if value is not None and not isinstance(value, dict):
        raise InputError(f"{path}: {name} must be an object, got a {type(value).__name__}")
    return value or {}


def inside(folder: Path, name: Any) -> Path:
    """Returns a path below `folder`; InputError if the name leads out of it."""
    path = Path(name) if isinstance(name, str) else Path("/")
    if path.is_absolute() or ".." in path.parts:
        raise InputError(f"{folder}: {name!r} must be a path inside the model's folder")
    return folder / path


def check_vector_names(
    path: Path, values: Mapping[str, Any], allowed: tuple[str, ...] = ("sentence_embedding",)
) -> None:
    """Checks that a module of sentence-transformers takes and returns vectors of these names."""
    for name in ("module_input_name", "module_output_name"):
        if values.get(name) not in (None, *allowed):
            raise InputError(f"{path}: {name} must be {allowed[0]!r}, got {values[name]!r}")


def refuse_unknown(path: Path, values: Mapping[str, Any], supported: frozenset[str]) -> None:
    """InputError names a setting that is not supported, unless it is empty or off."""
    for name, value in values.items():
        if name not in supported and value not in (None, False, {}, [], ""):
            raise unknown_setting(path, name, value)


def unknown_setting(path: Path, name: str, value: Any) -> InputError:
    """The error of a setting that is not supported."""
    return InputError(
        f"{path}: {name} is not supported, got {reprlib.repr(value)}, which is neither "
        "followed nor known to change no vector; remove it if it changes none"
    )
