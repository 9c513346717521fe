"""The cache of imported models: a source in, the folder of its bundle out, made once."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import bert
from bert.bundle import FORMAT, read_bundle


def cache_folder() -> Path:
    """Returns where imported models are kept."""
    chosen = os.environ.get("BERT_EMBED_CACHE")
    return Path(chosen).absolute() if chosen else Path.home() / ".cache" / "bert-embed"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a lock file: of the processes of a machine one at a time; free when its process ends.

    The file is removed at the end; who waited for that very file takes up the next one.
    """
    while True:
        with open(path, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_at(path, file.fileno()):
                continue
            try:
                yield
            finally:
                path.unlink()
            return


def made_once(kept: Path, is_whole: Callable[[], bool], make: Callable[[], object]) -> None:
    """Makes what is kept, if it is not whole: the first process of a machine, the others wait."""
    if is_whole():
        return
    kept.parent.mkdir(parents=True, exist_ok=True)
    with locked(kept.with_name(f".{kept.name}.lock")):
        if not is_whole():  # else another process was first
            make()


def _is_at(path: Path, descriptor: int) -> bool:
    """Whether an open file is the one that the path names now."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


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
    arguments = [str(source), str(dest)]
    arguments += [f"--{name}={value}" for name, value in facts.items()]
    arguments += ["--allow_untrusted_model"] if allow_untrusted else []
    run_apart("bert.importers", arguments, f"{source}: the import")


def run_apart(module: str, arguments: Sequence[str], what: str) -> None:
    """Runs a module of ours in a process of its own, so that this one never loads TensorFlow.

    Args:
        module: Ends with code 2 and a last line `error: …` where it refuses its arguments.
        arguments: Its command line.
        what: What is done, for the message should it break.

    Raises:
        ValueError: It refused; its own sentence.
        RuntimeError: It broke; with the end of what it said.
    """
    home = str(Path(bert.__file__).absolute().parents[1])
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    # TensorFlow tells every start of itself on stderr: kept, and shown only if the module broke.
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
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
    raise RuntimeError(f"{what} ended with code {done.returncode}:\n{told}")
