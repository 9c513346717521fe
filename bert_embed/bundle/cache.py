"""Keeps models that were imported, or fetched, in a folder of the user's, each made once.

Copies them to where workers can load them, too, and fetches them there.
"""

import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bert_embed.base.errors import (
    FULL_DISK,
    InputError,
    SettingError,
    StorageError,
    is_passing,
    shown_bytes,
)
from bert_embed.base.threads import in_parallel
from bert_embed.bundle.bundle import (
    ARCHIVES,
    FORMAT,
    MARKERS,
    METADATA,
    SAFETENSORS,
    Bundle,
    is_weights,
    read_bundle,
    whole_bundle,
)
from bert_embed.storage.files import (
    copy_file,
    is_remote,
    join,
    list_files,
    make_folder,
    open_listed,
)
from bert_embed.storage.gcs import SCHEME, listed, store_errors
from bert_embed.storage.local import (
    FileInfo,
    checksum,
    is_folder,
    place_folder,
    split_address,
)

_LOG = logging.getLogger(__name__)
_IMPORTERS = 6  # increased when the same files are imported to a bundle with other ids or vectors
_COPIED_BYTES = 8 << 20  # at a time


def cache_folder() -> Path:
    """Returns the folder of imported models; InputError if this user has none."""
    if chosen := os.environ.get("BERT_EMBED_CACHE"):
        return Path(os.path.expanduser(chosen)).absolute()
    try:
        return Path.home() / ".cache" / "bert-embed"
    except RuntimeError as error:
        raise InputError(
            "this user has no home folder to keep models in: set BERT_EMBED_CACHE to a folder"
        ) from error


def made_once(path: Path, is_whole: Callable[[], bool], make: Callable[[], object]) -> None:
    """Calls `make` if `path` is not whole, in the first process of a machine; the others wait."""
    if is_whole():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # It is not removed: another process may wait for it.
    with open(path.with_name(f".{path.name}.lock"), "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not is_whole():  # otherwise another process made it
            make()


def cached_import(
    source: str, make: Callable[[Path], None], content: Callable[[], str] | None = None
) -> Bundle:
    """The bundle of `source`, written whole by `make`, perhaps by two processes.

    `source` says which files there are and when they changed. What they hold is hashed by `content`
    where it is not known yet, so that files that were only touched or fetched anew share a bundle.
    A file in the folder of the bundle remembers `source`.
    """
    cache, known = cache_folder(), f".{_key(source)}"
    with kept_in(cache):
        remembered = next(cache.glob(f"*/{known}"), None)
        key = _key(content()) if content is not None and remembered is None else known[1:]
        dest = cache / key if remembered is None else remembered.parent
        bundle = whole_bundle(dest)
        if bundle is None:
            cache.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".import.", dir=cache) as temporary:
                made = Path(temporary, dest.name)
                make(made)
                try:
                    place_folder(str(made), str(dest))
                except FileExistsError:  # another process made it meanwhile, or it is damaged
                    if whole_bundle(dest) is None:
                        place_folder(str(made), str(dest), replaces=True)
                bundle = read_bundle(dest)
        with suppress(OSError):  # of a cache that is shared read-only
            (dest / known).touch()
        return bundle


def _key(source: str) -> str:
    named = f"{FORMAT}.{_IMPORTERS} {source}".encode(errors="surrogateescape")  # any name of a file
    return hashlib.sha256(named).hexdigest()[:32]


@contextmanager
def kept_in(folder: Path) -> Iterator[None]:
    """Raises InputError where this machine cannot keep a model in a folder of the cache.

    StorageError: it can perhaps do so later.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:  # of a store
            raise
        if is_passing(error) and error.errno not in FULL_DISK:
            raise StorageError(
                f"{error.filename or folder}: {error.strerror}; no model was changed, the same "
                "command may succeed later"
            ) from error
        raise InputError(
            f"{folder}: models cannot be kept there ({error.strerror or error}), set "
            "BERT_EMBED_CACHE to a folder that can be written and has enough space"
        ) from error


# The same weights for other programs, which are not copied where there are safetensors.
_OTHER_WEIGHTS = (".bin", ".h5", ".msgpack", ".ot", ".onnx", ".tflite")


@dataclass(frozen=True)
class RemoteModel:
    """A model's files in Cloud Storage, by path below `url`; or its archive alone."""

    url: str
    files: Mapping[str, FileInfo]

    def __post_init__(self) -> None:
        for name in self.files:
            _check_name(self.url, name)

    @property
    def listing(self) -> str:
        """Address, names, sizes and generations; it differs where the model differs."""
        lines = [f"{name} {file.size} {file.generation}" for name, file in self.files.items()]
        return "\n".join([self.url, *lines])


def _check_name(url: str, name: str) -> None:
    if {"", ".", ".."} & set(name.split("/")) or {"\\", "\0"} & set(name):
        raise InputError(f"{url}: the object {name!r} has a name that no file can have")


def list_model(url: str) -> RemoteModel:
    """Lists a model's folder, or archive, in Cloud Storage; InputError if no model is there."""
    if not url.removeprefix(SCHEME).partition("/")[0]:
        raise SettingError("model", f"must be gs://BUCKET/FOLDER for Cloud Storage, got {url!r}")
    url = url.rstrip("/")
    if url.endswith(ARCHIVES):
        files = {PurePosixPath(url).name: file for file in _below(url) if file.path == url}
    else:
        direct = {PurePosixPath(file.path).name for file in _below(f"{url}/", direct=True)}
        if direct and direct.isdisjoint(MARKERS):
            raise InputError(f"{url}: must hold one of {', '.join(MARKERS)}, holds none of them")
        below = _below(f"{url}/") if direct else []
        files = {file.path[len(url) + 1 :]: file for file in below}
    if not files:
        raise InputError(f"{url}: no files are there, check the bucket's and the folder's name")
    safe = any(PurePosixPath(name).name.startswith(SAFETENSORS) for name in files)
    needed = [name for name in sorted(files) if not (safe and name.endswith(_OTHER_WEIGHTS))]
    return RemoteModel(url, {name: files[name] for name in needed})


def _below(url: str, direct: bool = False) -> list[FileInfo]:
    """The objects whose addresses begin so, without a console's placeholders for folders."""
    with store_errors():
        return listed(url, split_address(url)[1], lambda name: not name.endswith("/"), direct)


def fetch(model: RemoteModel) -> Path:
    """The local copy of a model, in a folder named by its listing's hash, made by one process."""
    key = hashlib.sha256(model.listing.encode()).hexdigest()[:32]
    dest = cache_folder() / "gs" / key / (PurePosixPath(model.url).name or "model")
    root = dest.parent if model.url.endswith(ARCHIVES) else dest

    def is_complete() -> bool:
        with suppress(FileNotFoundError, NotADirectoryError):
            sizes = {name: file.size for name, file in model.files.items()}
            return all(os.stat(root / name).st_size == size for name, size in sizes.items())
        return False

    def fetch_whole() -> None:
        folder = dest.parent  # which appears at the end
        size = shown_bytes(sum(file.size for file in model.files.values()))
        _LOG.warning("fetching %s (%s), only this once", model.url, size)
        with tempfile.TemporaryDirectory(prefix=".fetch.", dir=folder.parent) as temporary:
            whole = Path(temporary, folder.name)
            for name, file in model.files.items():
                target = whole / root.relative_to(folder) / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with store_errors(), open_listed(file) as stored, target.open("wb") as copy:
                    shutil.copyfileobj(stored, copy, _COPIED_BYTES)
                if file.etag and checksum(target) != file.etag:
                    raise InputError(
                        f"{file.path} must have crc32c {file.etag}, but arrived damaged; try again"
                    )
            place_folder(str(whole), str(folder), replaces=True)

    with kept_in(dest):
        made_once(dest.parent, is_complete, fetch_whole)
    return dest


_ATTEMPTS = 2
_NEW = 7 * 24 * 3600  # seconds: half of the days that our Terraform keeps temporary files
_COPIES = 4  # at once: each is held in memory
PROGRAMS = "programs"  # folder in that of a published bundle, with what its workers compiled


def publish_bundle(bundle: Bundle, temp_location: str) -> str:
    """Copies a bundle below `temp_location`, bundle.json last, unless all of it is there and new.

    A rule of the bucket that removes old temporary files would remove it under a running job.
    """
    folder = join(temp_location, f"bundles/{bundle.fingerprint}-{FORMAT}")
    oldest = time.time() - _NEW if is_remote(folder) else 0.0
    copied = {file.path for file in list_files(join(folder, "")) if file.modified > oldest}
    names = sorted(bundle.files)
    if not copied.issuperset(join(folder, name) for name in [*names, METADATA]):

        def copy(name: str) -> None:
            target = join(folder, name)
            make_folder(os.path.dirname(target))
            copy_file(os.path.join(bundle.path, name), target)

        deque(in_parallel(copy, names, _COPIES), maxlen=0)
        copy(METADATA)
    return folder


def worker_bundle(
    place: str, fingerprint: str, needed: Callable[[Bundle], Sequence[str]] | None = None
) -> Bundle:
    """Opens the bundle that a job runs with; InputError if it is damaged or another model.

    One in a store is fetched into the cache folder by the first process of a machine. An empty
    `fingerprint` accepts any; `needed` names the weights, None is all.
    """
    if is_remote(place) and not fingerprint:
        raise InputError(f"{place}: a bundle that workers fetch needs its fingerprint")
    weights, folder = None, place
    if is_remote(place):
        if needed is not None:
            weights = needed(read_bundle(_fetched(place, fingerprint, []), []))
        folder = str(_fetched(place, fingerprint, weights))
    elif not is_folder(folder):
        raise InputError(
            f"{folder}: the model is not on this machine; give temp_location a folder in Cloud "
            "Storage, from which workers fetch it",
            "temp_location",
        )
    bundle = read_bundle(folder, weights)
    if fingerprint and bundle.fingerprint != fingerprint:
        raise InputError(
            f"{place} holds another model than when the job started: fingerprint "
            f"{bundle.fingerprint}, expected {fingerprint}"
        )
    return bundle


def _fetched(url: str, fingerprint: str, weights: Sequence[str] | None) -> Path:
    """Returns the folder of a bundle with these weights, None for all; each has its own."""
    parts = sorted({name.partition("/")[0] for name in weights or ()}) or ["tokenizer"]
    name = fingerprint if weights is None else "-".join([fingerprint, *parts])
    folder = cache_folder() / "bundles" / name

    def is_whole() -> bool:
        bundle = whole_bundle(folder, weights)
        return bundle is not None and bundle.fingerprint == fingerprint

    with kept_in(folder):
        made_once(folder, is_whole, lambda: _fetch_checked(url, folder, weights))
    return folder


def _fetch_checked(url: str, folder: Path, weights: Sequence[str] | None) -> None:
    """Fetches a bundle and checks every file before any process can use it."""
    for attempt in range(1, _ATTEMPTS + 1):
        with tempfile.TemporaryDirectory(prefix=".fetch.", dir=folder.parent) as temporary:
            whole = Path(temporary, folder.name)
            _download(url, whole, weights)
            try:
                read_bundle(whole, weights).verify_files(weights)
            except ValueError as error:
                if attempt == _ATTEMPTS:
                    raise InputError(f"{url}: the model arrived damaged: {error}") from error
                _LOG.warning("%s arrived damaged, it is fetched again", url)
                continue
            place_folder(str(whole), str(folder), replaces=True)
            return


def _download(url: str, folder: Path, weights: Sequence[str] | None) -> None:
    root = join(url, "")
    names = [file.path.removeprefix(root) for file in list_files(root)]
    names = [name for name in names if not name.startswith(f"{PROGRAMS}/")]
    if METADATA not in names:
        raise InputError(f"{url}: the model's copy for workers was removed, start the job again")
    for name in names:
        if weights is not None and is_weights(name) and name not in weights:
            continue
        _check_name(url, name)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy_file(join(url, name), str(folder / name))
