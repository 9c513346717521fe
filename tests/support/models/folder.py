"""A model's folder: its files are written and changed, it is imported, or seen to be refused."""

import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from bert_embed.base.errors import InputError
from bert_embed.bundle.bundle import Bundle
from bert_embed.importers import import_model


def write(folder: Path, files: Mapping[str, Any]) -> None:
    """Writes files by their names: bytes, texts, or values as JSON."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, bytes | str) else json.dumps(content)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


def change(folder: Path, files: Mapping[str, Any]) -> None:
    """Changes files by their names: an object is added to JSON or tensors, another value replaces
    what is there, a function makes new bytes of the old, and None takes a file or a tensor away.
    """
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.unlink()
        elif path.suffix == ".safetensors" and isinstance(content, dict):
            arrays = load_file(path) | content
            save_file({name: array for name, array in arrays.items() if array is not None}, path)
        elif callable(content):
            path.write_bytes(content(path.read_bytes()))
        elif isinstance(content, dict) and path.exists():
            path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | content))
        else:
            write(folder, {name: content})


def write_modules(folder: Path, types: Mapping[str, str]) -> None:
    """Writes modules.json: the type of each module by the folder that it is in."""
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": kind}
        for number, (path, kind) in enumerate(types.items())
    ]
    write(folder, {"modules.json": modules})


def write_kinds(folder: Path, kinds: Sequence[str]) -> None:
    """Writes modules.json for modules of these kinds, each in the folder of its number."""
    places = [f"{number}_{kind}" for number, kind in enumerate(kinds)]
    if kinds[:1] == ["Transformer"]:
        places[0] = ""
    types = [kind if "." in kind else f"sentence_transformers.models.{kind}" for kind in kinds]
    write_modules(folder, dict(zip(places, types, strict=True)))


Shapes = dict[str, tuple[int, ...]]


def drawn(shapes: Shapes, seed: int) -> dict[str, np.ndarray]:
    """Returns random float32 tensors of these shapes, weights of norms around 1."""
    random = np.random.default_rng(seed)
    return {
        name: (
            random.normal(size=shape) * 0.3 + (name.endswith("weight") and len(shape) == 1)
        ).astype(np.float32)
        for name, shape in shapes.items()
    }


def layers_of(layers: Shapes, unbiased: Callable[[str], bool] = lambda name: False) -> Shapes:
    """Returns the shapes of weights and biases of dense layers and norms, by those of weights."""
    shapes: Shapes = {}
    for name, shape in layers.items():
        shapes[f"{name}.weight"] = shape
        if not unbiased(name):
            shapes[f"{name}.bias"] = shape[:1]
    return shapes


def imported(folder: Path, name: str = "bundle", files: Mapping[str, Any] | None = None) -> Bundle:
    """Imports the folder `source` of a folder, some files of which are changed before."""
    change(folder / "source", files or {})
    return import_model(str(folder / "source"), str(folder / name))


def tensors_of(bundle: Bundle) -> dict[str, np.ndarray]:
    """Returns the tensors of the folder that a bundle was imported from, by their names there."""
    return load_file(Path(bundle.source, "model.safetensors"))


def refused(folder: Path, message: str, files: Mapping[str, Any] | None = None) -> None:
    """Asserts that the folder `source` of a folder is not imported, with the reason."""
    said = ""
    try:
        imported(folder, files=files)
    except InputError as error:
        said = str(error)
    assert re.search(message, said), said or "it was imported"
    assert not (folder / "bundle").exists()


def read_by(
    library: Callable[..., Any], write: Callable[..., Any], *model: Any, **more: Any
) -> Any:
    """Returns what another library makes of the folder that `write` writes."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "model", *model)
        return library(str(Path(folder) / "model"), **more)


def snapshot_folder(
    hub: Path, name: str, commit: str, references: Sequence[str] = ("main",)
) -> Path:
    """Makes the folder of a model's commit, with its branches, in a cache as `hf download` does."""
    home = hub / f"models--{name.replace('/', '--')}"
    folder = home / "snapshots" / commit
    folder.mkdir(parents=True)
    (folder / ".gitattributes").touch()  # of every repository
    write(home / "refs", dict.fromkeys(references, commit))
    return folder
