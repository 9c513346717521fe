"""Bundles of the tests' own models, imported once a machine: an import starts TensorFlow."""

import hashlib
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]
_KEPT = _ROOT / "build" / "test-bundles"


def import_once(source: Path, dest: Path) -> str:
    """Puts the bundle of a Hugging Face folder into `dest`, and returns it.

    It is a copy of what an earlier session imported, where the folder's files, our code below the
    importers and the packages that convert models are the same.
    """
    kept = _KEPT / _key(source)
    if not kept.is_dir():
        from bert_embed.importers.huggingface import import_huggingface

        _KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_KEPT) as folder:
            made = import_huggingface(str(source), f"{folder}/bundle").path
            try:
                os.rename(made, kept)
            except OSError:  # another process was faster; both made the same
                if not kept.is_dir():
                    raise
    return str(shutil.copytree(kept, dest))


def _key(source: Path) -> str:
    digest = hashlib.sha256()
    packages = [f"{name} {version(name)}" for name in ("ai-edge-litert", "numpy", "tensorflow")]
    digest.update(" ".join([platform.machine(), platform.python_version(), *packages]).encode())
    for path in _files(source):
        digest.update(f"\n{path.name} {path.stat().st_size}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:32]


def _files(source: Path) -> Iterator[Path]:
    yield from sorted((_ROOT / "bert_embed").rglob("*.py"))
    yield from sorted(path for path in source.rglob("*") if path.is_file())
