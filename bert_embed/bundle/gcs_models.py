"""Copies models from Cloud Storage into the cache of this machine, each of them once."""

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bert_embed.bundle.cache import cache_folder, kept_in, made_once
from bert_embed.bundle.files import ARCHIVES, MARKERS
from bert_embed.storage import gcs
from bert_embed.storage.errors import InputError, SettingError
from bert_embed.storage.gcs_copies import RemoteFile, download, list_below, list_folder

_LOG = logging.getLogger(__name__)
_SAFETENSORS = "model.safetensors"
# The same weights for other programs, which are not copied where there are safetensors.
_OTHER_WEIGHTS = (".bin", ".h5", ".msgpack", ".ot", ".onnx", ".tflite")


@dataclass(frozen=True)
class RemoteModel:
    """A model's files in Cloud Storage, by path below `url`; or its archive alone."""

    url: str
    files: Mapping[str, RemoteFile]

    def __post_init__(self) -> None:
        for name in self.files:
            if {"", ".", ".."} & set(name.split("/")) or {"\\", "\0"} & set(name):
                raise InputError(
                    f"{self.url}: the object {name!r} has a name that no file can have"
                )

    @property
    def listing(self) -> str:
        """Address, names, sizes and generations; it differs where the model differs."""
        lines = [f"{name} {file.size} {file.generation}" for name, file in self.files.items()]
        return "\n".join([self.url, *lines])


def list_model(url: str) -> RemoteModel:
    """Lists a model's folder, or archive, in Cloud Storage; InputError if no model is there."""
    if not url.removeprefix(gcs.SCHEME).partition("/")[0]:
        raise SettingError("model", f"must be gs://BUCKET/FOLDER for Cloud Storage, got {url!r}")
    url = url.rstrip("/")
    if url.endswith(ARCHIVES):
        files = {PurePosixPath(url).name: file for file in list_below(url) if file.url == url}
    else:
        files = _model_files(url)
    if not files:
        raise InputError(f"{url}: no files are there, check the bucket's and the folder's name")
    safe = any(PurePosixPath(name).name.startswith(_SAFETENSORS) for name in files)
    needed = [name for name in sorted(files) if not (safe and name.endswith(_OTHER_WEIGHTS))]
    return RemoteModel(url, {name: files[name] for name in needed})


def _model_files(url: str) -> dict[str, RemoteFile]:
    """Returns the objects below a folder by relative path, if a model's files are among them."""
    direct = list_folder(url)
    if direct and direct.keys().isdisjoint(MARKERS):
        raise InputError(f"{url}: must hold one of {', '.join(MARKERS)}, holds none of them")
    below = list_below(f"{url}/") if direct else []
    return {file.url[len(url) + 1 :]: file for file in below}


def fetch(model: RemoteModel) -> Path:
    """The local copy of a model, in a folder named by its listing's hash, made by one process."""
    key = hashlib.sha256(model.listing.encode()).hexdigest()[:32]
    dest = cache_folder() / "gs" / key / (PurePosixPath(model.url).name or "model")
    root = dest.parent if model.url.endswith(ARCHIVES) else dest

    def is_complete() -> bool:
        sizes = {root / name: file.size for name, file in model.files.items()}
        return all(path.is_file() and path.stat().st_size == size for path, size in sizes.items())

    with kept_in(dest):
        made_once(dest.parent, is_complete, lambda: _fetch_whole(model, dest.parent, root))
    return dest


def _fetch_whole(model: RemoteModel, folder: Path, root: Path) -> None:
    """Copies the files below `root`, which is `folder` or in it; `folder` appears at the end."""
    megabytes = sum(file.size for file in model.files.values()) / 1e6
    _LOG.warning("fetching %s (%.0f MB), only this once", model.url, megabytes)
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=".fetch.", dir=folder.parent) as temporary:
        whole = Path(temporary, folder.name)
        for name, file in model.files.items():
            download(file, whole / root.relative_to(folder) / name)
        os.rename(whole, folder)
