"""Finds the bundle that a model's name, folder, archive or address stands for."""

import difflib
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from bert_embed.arguments import path_text
from bert_embed.bundle.apart import import_apart
from bert_embed.bundle.bundle import Bundle, is_weights, read_bundle
from bert_embed.bundle.cache import cached_import
from bert_embed.bundle.default_model import NAMES, ensure_minilm
from bert_embed.bundle.files import (
    ARCHIVES,
    HUB_HANDLES,
    MARKERS,
    METADATA,
    SAFETENSORS,
    file_sha256,
    refuse_adapter,
)
from bert_embed.bundle.gcs_models import fetch, list_model
from bert_embed.bundle.hub_cache import (
    HUB_SCHEME,
    Snapshot,
    cached_snapshot,
    hub_cache,
    hub_name,
)
from bert_embed.storage.errors import InputError, SettingError
from bert_embed.storage.gcs import SCHEME


def resolve_model(
    model: str | os.PathLike[str],
    needed: Callable[[Bundle], Sequence[str]] | None = None,
) -> Bundle:
    """Returns a model's bundle; one in another format is imported first, by another process.

    `model` is what `bert_embed.load` takes; a folder comes before a name. `needed` names the
    weights that are fetched of a bundle in Cloud Storage, once its other files are there; None is
    all. InputError: there is no such model, it is damaged, or cannot be fetched or imported.
    """
    place, weights = path_text("model", model), None
    if place.startswith(SCHEME):
        folder, weights = _from_cloud_storage(place, needed)
    else:
        found = _bundle_folder(place)
        if isinstance(found, Bundle):
            return found
        folder = found
    return read_bundle(folder, weights)


def local_place(model: str) -> Path | None:
    """The folder or file of this machine that a model stands for; None for a name or an address."""
    if model == NAMES[0] or model.startswith((SCHEME, HUB_SCHEME, *HUB_HANDLES)):
        return None
    place = Path(os.path.expanduser(model)).absolute()
    return place if os.path.exists(place) else None  # Path.exists raises for a name too long


def _bundle_folder(model: str) -> Path | Bundle:
    """The folder of a bundle, or one that was read already."""
    if model.startswith(HUB_HANDLES):
        return cached_import(model, lambda dest: import_apart(model, dest))
    place = local_place(model)
    if place is None:
        return _from_name(model)
    if (place / METADATA).is_file():
        return place
    archive = place.is_file() and place.name.endswith(ARCHIVES)
    if not archive:
        _check_folder(place)
    return cached_import(
        _listing(place), lambda dest: import_apart(place, dest), partial(_content, place)
    )


def _from_name(model: str) -> Path | Bundle:
    if model in NAMES:
        return _minilm(model)
    if model.endswith(".ckpt"):
        parent = os.path.dirname(model) or "."
        raise SettingError("model", f"must be the folder of a checkpoint: give {parent}")
    snapshot = cached_snapshot(model)
    if snapshot is None:
        raise _unknown(model)
    return _from_snapshot(snapshot)


def _from_snapshot(snapshot: Snapshot) -> Bundle:
    folder, source = snapshot.folder, snapshot.source
    return cached_import(
        _listing(folder),
        lambda dest: import_apart(folder, dest, name=source),
        partial(_content, folder),
    )


def _minilm(model: str) -> Path | Bundle:
    """The default model: by its names of the hub from the hub's cache, else from its package."""
    snapshot = None
    with suppress(InputError):  # not in the cache
        snapshot = cached_snapshot(NAMES[-1])
    if snapshot is not None and not (snapshot.folder / SAFETENSORS).is_file():
        snapshot = None
    if snapshot is not None and model != NAMES[0]:
        return _from_snapshot(snapshot)
    try:
        return Path(ensure_minilm())
    except InputError:
        if snapshot is None:
            raise
        return _from_snapshot(snapshot)


def _unknown(model: str) -> SettingError:
    if model.startswith((".", "/", "~")):
        return SettingError("model", f"must be there: no file or folder {model}")
    if nearest := difflib.get_close_matches(model, NAMES, n=1, cutoff=0.8):
        return SettingError("model", f"must be there: no {model}; did you mean {nearest[0]}?")
    name = hub_name(model)
    if name is not None:  # cached_snapshot raises for a name with an organization
        return SettingError(
            "model",
            "must be minilm, a folder, or a model in the Hugging Face cache: neither this folder "
            f"nor {hub_cache()} holds {name.repo}; get it with `hf download "
            f"ORGANIZATION/{name.repo}` and give that name, such as google-bert/bert-base-uncased",
        )
    return SettingError(
        "model",
        "must be minilm, a bundle, a model's folder or .tar.gz, gs://…, a handle of TF Hub, or "
        f"ORG/NAME in the Hugging Face cache, where `hf download ORG/NAME` puts it, got {model!r}",
    )


def _check_folder(folder: Path) -> None:
    if not folder.is_dir():
        kinds = " or ".join(ARCHIVES)
        raise SettingError("model", f"must be a folder or a {kinds}, {folder} is another file")
    refuse_adapter(folder)
    if not any((folder / name).is_file() for name in MARKERS):
        raise SettingError(
            "model",
            f"must hold {METADATA} (a bundle), config.json (a Hugging Face model), "
            "bert_config.json (a google-research checkpoint) or saved_model.pb (an encoder of "
            f"TF Hub), {folder} holds none of them",
        )


def _from_cloud_storage(
    url: str, needed: Callable[[Bundle], Sequence[str]] | None
) -> tuple[Path, Sequence[str] | None]:
    """Returns the folder of a bundle, and which weights are in it, None for all."""
    remote = list_model(url)
    if METADATA not in remote.files:
        imported = cached_import(
            remote.listing, lambda dest: import_apart(fetch(remote), dest, name=url)
        )
        return Path(imported.path), None
    if needed is None:
        return fetch(remote), None
    others = {name: file for name, file in remote.files.items() if not is_weights(name)}
    weights = needed(read_bundle(fetch(replace(remote, files=others)), []))
    wanted = {name: file for name, file in remote.files.items() if name in {*others, *weights}}
    return fetch(replace(remote, files=wanted)), weights


def _listing(place: Path) -> str:
    """Returns names, sizes and times of change, which differ where the model may have changed."""
    lines = [str(place)]
    for file in sorted([place] if place.is_file() else place.rglob("*")):
        if file.is_file():
            stat = file.stat()
            lines.append(f"{file.relative_to(place)} {stat.st_size} {stat.st_mtime_ns}")
    return "\n".join(lines)


def _content(place: Path) -> str:
    """Returns names and sha256, which differ where the model has changed."""
    files = [place] if place.is_file() else sorted(place.rglob("*"))
    hashed = [f"{file.relative_to(place)} {file_sha256(file)}" for file in files if file.is_file()]
    return "\n".join([str(place), *hashed])
