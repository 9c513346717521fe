"""Copies the model to where workers can load it, and loads it there."""

import logging
import os
import shutil
import tempfile
from pathlib import Path

from bert.bundle.bundle import FORMAT, Bundle, read_bundle
from bert.bundle.cache import cache_folder, made_once
from bert.bundle.files import METADATA
from storage.errors import InputError
from storage.files import copy_file, is_remote, join, list_files, read_bytes
from storage.parallel import in_parallel
from transforms.activity import activity

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 2
_COPIES = 4  # at once: each is held in memory


def publish_bundle(bundle: Bundle, temp_location: str) -> str:
    """Copies a bundle to `<temp_location>/bundles/<fingerprint>-<format>`, once, for workers.

    `bundle.json` is copied last and shows that the copy is complete. A complete copy of any run is
    used as it is.

    Returns:
        The copy's address.
    """
    folder = join(temp_location, f"bundles/{bundle.fingerprint}-{FORMAT}")
    if read_bytes(join(folder, METADATA)) is None:
        names = sorted(bundle.files)
        for _ in in_parallel(lambda name: _copy(bundle, name, folder), names, _COPIES):
            pass
        _copy(bundle, METADATA, folder)
    return folder


def _copy(bundle: Bundle, name: str, folder: str) -> None:
    copy_file(os.path.join(bundle.path, name), join(folder, name))


def worker_bundle(place: str, fingerprint: str) -> Bundle:
    """Opens the bundle that a job runs with.

    A bundle in a store is fetched into `$BERT_EMBED_CACHE`, else `~/.cache/bert-embed`: by the
    first process of a machine, while the others wait. The sha256 of each file is compared; a
    damaged bundle is fetched once more.

    Args:
        place: Folder of the bundle, or the address where `publish_bundle` copied it.
        fingerprint: The model's when the job started; "" accepts any model in a folder.

    Raises:
        ValueError: It does not exist, is damaged, or is another model.
    """
    if is_remote(place) and not fingerprint:
        raise InputError(f"{place}: a bundle that workers fetch needs its fingerprint")
    folder = str(_fetched(place, fingerprint)) if is_remote(place) else place
    if not os.path.isdir(folder):
        raise InputError(
            f"{folder}: the model is not on this machine; give temp_location a folder in Cloud "
            "Storage, from which workers fetch it",
            "temp_location",
        )
    bundle = read_bundle(folder)
    if fingerprint and bundle.fingerprint != fingerprint:
        raise InputError(
            f"{place} holds another model than when the job started: fingerprint "
            f"{bundle.fingerprint}, expected {fingerprint}"
        )
    return bundle


def _fetched(url: str, fingerprint: str) -> Path:
    kept = cache_folder() / "bundles" / fingerprint
    try:
        with activity("fetching the model"):
            made_once(kept, lambda: _is_whole(kept, fingerprint), lambda: _fetch(url, kept))
    except PermissionError as error:
        raise InputError(
            f"{kept}: models cannot be kept there ({error.strerror or error}), set "
            "BERT_EMBED_CACHE to a folder that can be written"
        ) from error
    return kept


def _is_whole(folder: Path, fingerprint: str) -> bool:
    try:
        return read_bundle(folder).fingerprint == fingerprint
    except ValueError:
        return False


def _fetch(url: str, kept: Path) -> None:
    """Fetches a bundle and checks every file before any process can use it."""
    for attempt in range(1, _ATTEMPTS + 1):
        with tempfile.TemporaryDirectory(prefix=".fetch.", dir=kept.parent) as temporary:
            whole = Path(temporary, kept.name)
            _download(url, whole)
            try:
                read_bundle(whole).verify_files()
            except ValueError as error:
                if attempt == _ATTEMPTS:
                    raise InputError(f"{url}: the model arrived damaged: {error}") from error
                _LOG.warning("%s arrived damaged, it is fetched again", url)
                continue
            if kept.exists():  # a damaged one
                shutil.rmtree(kept)
            os.rename(whole, kept)
            return


def _download(url: str, folder: Path) -> None:
    root = join(url, "")
    found = [each.path.removeprefix(root) for each in list_files(root)]
    if METADATA not in found:
        raise InputError(f"{url}: the model's copy for workers was removed, start the job again")
    for name in found:
        if {"", ".", ".."} & set(name.split("/")):
            raise InputError(f"{url}: the object {name!r} has a name that no file can have")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy_file(join(url, name), str(folder / name))
