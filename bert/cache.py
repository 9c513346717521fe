"""The cache of imported models: a source in, the folder of its bundle out, made once."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import bert
from bert.bundle import FORMAT, read_bundle


def cache_folder() -> Path:
    """Returns where imported models are kept."""
    chosen = os.environ.get("BERT_EMBED_CACHE")
    return Path(chosen).absolute() if chosen else Path.home() / ".cache" / "bert-embed"


def cached_import(source: str, make: Callable[[Path], None]) -> Path:
    """Returns the folder of the bundle made from `source`, made now if it is not there.

    Args:
        source: What the bundle is made from; another text is another bundle.
        make: Writes the bundle into the folder it is given, as a whole; two processes may do so
            at once.

    Raises:
        ValueError: The cache cannot be written.
    """
    key = hashlib.sha256(f"{FORMAT} {source}".encode()).hexdigest()[:32]
    dest = cache_folder() / key
    try:
        if dest.exists() and not _readable(dest):
            _remove(dest)
        if not dest.exists():
            dest.parent.mkdir(parents=True, exist_ok=True)
            make(dest)
    except OSError as error:
        raise ValueError(
            f"{dest.parent}: imported models cannot be kept there ({error.strerror}), "
            "set BERT_EMBED_CACHE to a folder that can be written"
        ) from error
    return dest


def _readable(bundle: Path) -> bool:
    try:
        read_bundle(bundle)
    except ValueError:
        return False
    return True


def _remove(folder: Path) -> None:
    # Renamed first: nobody may meet it, or write into it, while it is half gone.
    grave = tempfile.mkdtemp(prefix=".damaged.", dir=folder.parent)
    try:
        os.rename(folder, grave)
    except FileNotFoundError:  # another process was first
        pass
    finally:
        shutil.rmtree(grave, ignore_errors=True)


def import_apart(
    source: str | Path, dest: Path, allow_untrusted: bool = False, **facts: str
) -> None:
    """Runs the importers in a process of its own.

    Args:
        source: The model's folder or archive, or a handle of TF Hub.
        dest: The bundle's folder.
        allow_untrusted: Whether a SavedModel's graph may hold any operation.
        **facts: `name` and `licence`, for the bundle's metadata.

    Raises:
        ValueError: The importer refused the model; its own sentence.
        RuntimeError: It broke; with the end of what it said.
    """
    command = [sys.executable, "-m", "bert.importers", str(source), str(dest)]
    command += [f"--{name}={value}" for name, value in facts.items()]
    command += ["--allow_untrusted_model"] if allow_untrusted else []
    home = str(Path(bert.__file__).absolute().parents[1])
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    # TensorFlow tells every start of itself on stderr: kept, and shown only if the import broke.
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return
    lines = done.stderr.strip().splitlines()
    refusal = next((line for line in reversed(lines) if line.startswith("error: ")), None)
    if done.returncode == 2 and refusal:
        raise ValueError(refusal.removeprefix("error: "))
    told = "\n".join(lines[-20:])
    raise RuntimeError(f"{source}: the import ended with code {done.returncode}:\n{told}")
