"""Keeps imported models in a folder of the user's, and makes each file of it once a machine."""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bert_embed.bundle.bundle import FORMAT, read_bundle
from bert_embed.storage.errors import InputError
from bert_embed.storage.local import is_at


def cache_folder() -> Path:
    """Returns the folder of imported models; InputError if this user has none."""
    chosen = os.environ.get("BERT_EMBED_CACHE")
    if chosen:
        return Path(os.path.expanduser(chosen)).absolute()
    try:
        return Path.home() / ".cache" / "bert-embed"
    except RuntimeError as error:
        raise InputError(
            "this user has no home folder to keep models in: set BERT_EMBED_CACHE to a folder"
        ) from error


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a lock file that it removes at the end, one process of a machine at a time."""
    while True:
        with open(path, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not is_at(path, file):
                continue
            try:
                yield
            finally:
                path.unlink()
            return


def made_once(path: Path, is_whole: Callable[[], bool], make: Callable[[], object]) -> None:
    """Calls `make` if `path` is not whole, in the first process of a machine; the others wait."""
    if is_whole():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(f".{path.name}.lock")):
        if not is_whole():  # otherwise another process made it
            make()


def cached_import(source: str, make: Callable[[Path], None]) -> Path:
    """The folder of the bundle of `source`, written whole by `make`, perhaps by two processes."""
    key = hashlib.sha256(f"{FORMAT} {source}".encode()).hexdigest()[:32]
    dest = cache_folder() / key
    with kept_in(dest.parent):
        if dest.exists() and not _readable(dest):
            _remove(dest)
        if not dest.exists():
            dest.parent.mkdir(parents=True, exist_ok=True)
            make(dest)
    return dest


@contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """Raises InputError where this machine cannot keep a model in a folder of the cache."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # of a store
            raise
        raise InputError(
            f"{folder}: models cannot be kept there ({error.strerror or error}), set "
            "BERT_EMBED_CACHE to a folder that can be written and has enough space"
        ) from error


def _readable(bundle: Path) -> bool:
    try:
        read_bundle(bundle)
    except ValueError:
        return False
    return True


def _remove(folder: Path) -> None:
    # Renames it first, so that no process reads or writes it while it is half removed.
    trash = tempfile.mkdtemp(prefix=".damaged.", dir=folder.parent)
    try:
        os.rename(folder, trash)
    except FileNotFoundError:  # another process removed it
        pass
    finally:
        shutil.rmtree(trash, ignore_errors=True)
