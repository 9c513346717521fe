"""Finds the bundle that a model's name, folder, archive or address stands for."""

import os
from dataclasses import replace
from pathlib import Path

from bert.arguments import path_text
from bert.bundle.apart import import_apart
from bert.bundle.bundle import Bundle, read_bundle
from bert.bundle.cache import cached_import
from bert.bundle.default_model import ensure_minilm
from bert.bundle.files import ARCHIVES, HUB_HANDLES, MARKERS, METADATA
from bert.bundle.gcs_models import fetch, list_model
from storage.errors import SettingError
from storage.gcs import SCHEME


def resolve_model(model: str | os.PathLike[str], allow_untrusted: bool = False) -> Bundle:
    """Returns the bundle of a model; a model in another format is imported first.

    The import runs in a process of its own, so that the caller does not load TensorFlow. The bundle
    is kept in `$BERT_EMBED_CACHE`, else `~/.cache/bert-embed`.

    Args:
        model: "minilm"; a folder with a bundle, a Hugging Face BERT, a google-research one whose
            name says its casing, or a BERT encoder of TF Hub; a `.tar.gz` of one; either of them
            in Cloud Storage (gs://); or a handle of TF Hub (https://tfhub.dev/…).
        allow_untrusted: Whether a SavedModel's graph may hold any operation, also those that read
            and write files.

    Raises:
        InputError: There is no such model, it is damaged or not a BERT, or the default model could
            not be fetched.
        RuntimeError: The import failed.
    """
    return replace(
        read_bundle(_bundle_folder(path_text("model", model), allow_untrusted)),
        trusted=allow_untrusted,
    )


def _bundle_folder(model: str, allow: bool) -> Path:
    if model == "minilm":
        return Path(ensure_minilm())
    if model.startswith(SCHEME):
        return _from_cloud_storage(model, allow)
    if model.startswith(HUB_HANDLES):
        return cached_import(model, lambda dest: import_apart(model, dest, allow_untrusted=allow))
    place = Path(model).absolute()
    if (place / METADATA).is_file():
        return place
    archive = place.is_file() and place.name.endswith(ARCHIVES)
    if not archive:
        _check_folder(place, model)
    return cached_import(
        _listing(place), lambda dest: import_apart(place, dest, allow_untrusted=allow)
    )


def _check_folder(folder: Path, model: str) -> None:
    if not folder.is_dir():
        raise SettingError(
            "model",
            "must be minilm, a bundle, a model's folder or .tar.gz, gs://…, or a handle of "
            f"TF Hub (models of Hugging Face: their downloaded folder), got {model!r}",
        )
    if not any((folder / name).is_file() for name in MARKERS):
        raise SettingError(
            "model",
            f"must hold {METADATA} (a bundle), config.json (a Hugging Face model), "
            "bert_config.json (a google-research checkpoint) or saved_model.pb (an encoder of "
            f"TF Hub), {folder} holds none of them",
        )


def _from_cloud_storage(url: str, allow: bool) -> Path:
    remote = list_model(url)
    if METADATA in remote.files:
        return fetch(remote)
    return cached_import(
        remote.listing,
        lambda dest: import_apart(fetch(remote), dest, allow_untrusted=allow, name=url),
    )


def _listing(place: Path) -> str:
    """Returns names, sizes and times of change, so that a changed model is imported again."""
    lines = [str(place)]
    for file in sorted([place] if place.is_file() else place.rglob("*")):
        if file.is_file():
            stat = file.stat()
            lines.append(f"{file.relative_to(place)} {stat.st_size} {stat.st_mtime_ns}")
    return "\n".join(lines)
