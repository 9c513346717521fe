"""Copies the model to where workers can load it, and loads it there."""

import logging
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from bert_embed.base.errors import InputError
from bert_embed.base.threads import in_parallel
from bert_embed.bundle.bundle import (
    FORMAT,
    METADATA,
    Bundle,
    is_weights,
    read_bundle,
    whole_bundle,
)
from bert_embed.bundle.cache import cache_folder, kept_in, made_once
from bert_embed.storage.files import copy_file, is_remote, join, list_files, make_folder
from bert_embed.storage.local import is_folder, place_folder
from bert_embed.transforms.steps import activity

_LOG = logging.getLogger(__name__)
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
        deque(in_parallel(lambda name: _copy(bundle, name, folder), names, _COPIES), maxlen=0)
        _copy(bundle, METADATA, folder)
    return folder


def _copy(bundle: Bundle, name: str, folder: str) -> None:
    target = join(folder, name)
    make_folder(os.path.dirname(target))
    copy_file(os.path.join(bundle.path, name), target)


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

    with kept_in(folder), activity("fetching the model"):
        made_once(folder, is_whole, lambda: _fetch(url, folder, weights))
    return folder


def _fetch(url: str, folder: Path, weights: Sequence[str] | None) -> None:
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
        if {"", ".", ".."} & set(name.split("/")):
            raise InputError(f"{url}: the object {name!r} has a name that no file can have")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        copy_file(join(url, name), str(folder / name))
