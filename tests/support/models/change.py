"""Changes the files of a model's folder, and imports it or sees it refused."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from bert_embed.base.errors import InputError
from bert_embed.bundle.bundle import Bundle
from bert_embed.importers import import_model


def change(folder: Path, files: Mapping[str, Any]) -> None:
    """Changes files by their names: an object is added to JSON or tensors, another value replaces
    what is there, a function makes new bytes of the old, and None takes a file or a tensor away.
    """
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.unlink()
        elif callable(content):
            path.write_bytes(content(path.read_bytes()))
        elif isinstance(content, bytes | str):
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        elif path.suffix == ".safetensors":
            arrays = load_file(path) | content
            save_file({name: array for name, array in arrays.items() if array is not None}, path)
        elif isinstance(content, dict) and path.exists():
            path.write_text(json.dumps(json.loads(path.read_text()) | content))
        else:
            path.write_text(json.dumps(content))


def imported(folder: Path, name: str = "bundle") -> Bundle:
    """Imports the folder `source` of a folder."""
    return import_model(str(folder / "source"), str(folder / name))


def refused(folder: Path, message: str) -> None:
    """Asserts that the folder `source` of a folder is not imported, with the reason."""
    with pytest.raises(InputError, match=message):
        imported(folder)
    assert not (folder / "bundle").exists()
