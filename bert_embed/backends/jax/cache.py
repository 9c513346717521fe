"""Keeps compiled programs: on this machine, and where the workers of a job find the model."""

import hashlib
import json
import logging
import os
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import jax

from bert_embed.base.errors import InputError
from bert_embed.base.threads import in_parallel
from bert_embed.bundle.bundle import Bundle
from bert_embed.bundle.cache import cache_folder
from bert_embed.storage.files import join, make_folder, names_in, read_bytes, write_unsynced

_LOG = logging.getLogger(__name__)
_SUFFIX = "-cache"  # of a program, as JAX names its files
_ZSTD = b"\x28\xb5\x2f\xfd"  # how a file begins that JAX compressed with it, where it is installed
_AT_ONCE = 4  # files: each is held in memory


class ProgramCache:
    """Where JAX finds the programs of a model, by all that decides them, versions and chips too.

    It keeps them in a folder of this machine. `Bundle.programs`, if there is one, gives those that
    other workers compiled, and gets those that this one did; files appear there as a whole.

    Attributes:
        name: Of the function to compile. JAX's names of files begin with it: by it those of models
            of other sizes are left alone.
    """

    def __init__(self, bundle: Bundle) -> None:
        sizes = json.dumps(bundle.config.to_dict(), sort_keys=True)
        self.name = f"program_{hashlib.sha256(sizes.encode()).hexdigest()[:12]}"
        self._shared, self._lock = bundle.programs, threading.Lock()
        self._known: set[str] = set()  # names of whole files in the shared folder
        self._folder = _folder()
        if self._folder is not None:
            self._drop_halves(self._folder)
            self._fetch(self._folder)

    def share(self) -> None:
        """Copies programs that were compiled on this machine to where other workers find them."""
        if self._folder is None or not self._shared:
            return
        with self._lock, self._tolerating():
            for name in self._names(os.listdir(self._folder)):
                data = b"" if name in self._known else read_bytes(join(str(self._folder), name))
                if data and _is_whole(data):  # else another process still writes it
                    make_folder(self._shared)
                    write_unsynced(join(self._shared, name), data)
                    self._known.add(name)

    def _fetch(self, folder: Path) -> None:
        if not self._shared:
            return
        here = set(os.listdir(folder))

        def fetch(name: str) -> None:
            data = None if name in here else read_bytes(join(self._shared, name))
            if name in here or (data and _is_whole(data)):
                self._known.add(name)  # others are written anew
            if name in self._known and data:
                write_unsynced(str(folder / name), data)

        with self._tolerating():
            for _ in in_parallel(fetch, self._names(names_in(self._shared)), _AT_ONCE):
                pass

    def _drop_halves(self, folder: Path) -> None:
        """Removes what a process wrote that was killed: JAX would neither read nor replace it."""
        for name in self._names(os.listdir(folder)):
            data = read_bytes(str(folder / name))
            if data is not None and not _is_whole(data):
                (folder / name).unlink(missing_ok=True)

    def _names(self, names: list[str]) -> list[str]:
        start = f"jit_{self.name}-"
        return sorted(name for name in names if name.startswith(start) and name.endswith(_SUFFIX))

    @contextmanager
    def _tolerating(self) -> Iterator[None]:
        """Warns once where the shared folder cannot be used; each worker compiles for itself."""
        try:
            yield
        except (OSError, InputError) as error:
            _LOG.warning("compiled programs are not shared with other workers: %s", error)
            self._shared = ""


def _folder() -> Path | None:
    """The folder in which JAX keeps programs for us; None where the user chose another one.

    JAX reads the setting at its first program of the process, and we set it before ours.
    """
    chosen = jax.config.jax_compilation_cache_dir
    try:
        folder = cache_folder() / "jax"
        if chosen is None:
            folder.mkdir(parents=True, exist_ok=True)
    except (OSError, InputError) as error:
        _LOG.warning("compiled programs are not kept on this machine: %s", error)
        return None
    if chosen is None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        # A worker compiles few programs, and each second counts for all that start later.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        # Else this folder's path is part of what a program is named after.
        jax.config.update("jax_persistent_cache_enable_xla_caches", "none")
    return folder if chosen in (None, str(folder)) else None


def _is_whole(data: bytes) -> bool:
    """Whether a file of JAX's cache is complete: JAX writes it in place."""
    try:
        if data.startswith(_ZSTD):
            import pyarrow as pa  # here: most processes find no such file

            pa.CompressedInputStream(pa.BufferReader(data), "zstd").read()
        else:
            zlib.decompress(data)
    except (OSError, zlib.error):
        return False
    return True
