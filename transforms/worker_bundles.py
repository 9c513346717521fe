"""Bundles on workers: a folder or an address in, a folder of this machine out, fetched once."""

import logging
import os
import shutil
import tempfile
from pathlib import Path

from bert.bundle import METADATA, Bundle, read_bundle
from bert.cache import cache_folder, made_once
from transforms.files import copy_file, is_remote, join, list_files, read_bytes
from transforms.parallel import in_parallel

_LOG = logging.getLogger(__name__)
_ATTEMPTS = 2
_COPIES = 4  # at once: each is held in memory as a whole


def publish_bundle(bundle: Bundle, temp_location: str) -> str:
    """Copies a bundle to `<temp_location>/bundles/<fingerprint>`, once, for workers to fetch.

    `bundle.json` comes last: where it lies, the copy is complete. One that is there already, of
    whatever run, is taken as it is.

    Returns:
        The copy's address.
    """
    folder = join(temp_location, f"bundles/{bundle.fingerprint}")
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

    From an address it is fetched into `$BERT_EMBED_CACHE`, else `~/.cache/bert-embed`: by the
    first process of a machine, for which the others wait. Each file's sha256 is compared; what
    arrived damaged is fetched once more.

    Args:
        place: Folder of the bundle, or where `publish_bundle` put it.
        fingerprint: The model's when the job started; "" takes any that lies in a folder.

    Raises:
        ValueError: It is not there, is damaged, or is another model.
    """
    if is_remote(place) and not fingerprint:
        raise ValueError(f"{place}: a bundle that workers fetch needs its fingerprint")
    folder = str(_fetched(place, fingerprint)) if is_remote(place) else place
    if not os.path.isdir(folder):
        raise ValueError(
            f"{folder}: the model is not on this machine; give --temp_location a folder in Cloud "
            "Storage, from which workers fetch it"
        )
    bundle = read_bundle(folder)
    if fingerprint and bundle.fingerprint != fingerprint:
        raise ValueError(
            f"{place} holds another model than when the job started: fingerprint "
            f"{bundle.fingerprint}, expected {fingerprint}"
        )
    return bundle


def _fetched(url: str, fingerprint: str) -> Path:
    kept = cache_folder() / "bundles" / fingerprint
    try:
        made_once(kept, lambda: _is_whole(kept, fingerprint), lambda: _fetch(url, kept))
    except PermissionError as error:
        raise ValueError(
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
    """Fetches a bundle and sees that every file is what it was, before anybody may use it."""
    for attempt in range(1, _ATTEMPTS + 1):
        with tempfile.TemporaryDirectory(prefix=".fetch.", dir=kept.parent) as temporary:
            whole = Path(temporary, kept.name)
            _download(url, whole)
            try:
                read_bundle(whole).verify_files()
            except ValueError as error:
                if attempt == _ATTEMPTS:
                    raise ValueError(f"{url}: the model arrives damaged: {error}") from error
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
        raise ValueError(f"{url}: the model's copy for workers is gone, start the job again")
    for name in found:
        if {"", ".", ".."} & set(name.split("/")):
            raise ValueError(f"{url}: the object {name!r} has a name that no file can have")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy_file(join(url, name), str(folder / name))
