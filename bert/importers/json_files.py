"""The JSON files of a model folder, read with the file's name in every error."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_json(path: Path) -> Any:
    """Returns the contents of a JSON file; ValueError names the file that cannot be read."""
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is no JSON: {error}") from error


def read_object(path: Path) -> Mapping[str, Any]:
    """Returns a JSON file's object; ValueError if it holds something else."""
    values = read_json(path)
    if not isinstance(values, dict):
        raise ValueError(f"{path}: must hold an object, got a {type(values).__name__}")
    return values


def optional_object(path: Path) -> Mapping[str, Any]:
    """Returns a JSON file's object, an empty one if there is no such file."""
    return read_object(path) if path.is_file() else {}


def inside(folder: Path, name: Any) -> Path:
    """Returns a path below `folder`; ValueError for one that a file names outside of it."""
    path = Path(name) if isinstance(name, str) else Path("/")
    if path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{folder}: {name!r} must be a path inside the model's folder")
    return folder / path


def refuse_unknown(path: Path, values: Mapping[str, Any], known: frozenset[str]) -> None:
    """Refuses settings that we would not follow; those that say nothing are let pass.

    Raises:
        ValueError: Naming the file and the setting.
    """
    for name, value in values.items():
        if name not in known and value not in (None, False, {}, [], ""):
            raise ValueError(
                f"{path}: {name} is not supported, vectors would differ; remove it if it is known "
                "to change nothing"
            )
