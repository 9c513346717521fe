"""Resolve --model: a name, a folder, an archive or an address in, a Bundle out."""

from dataclasses import replace
from pathlib import Path

from bert.bundle import METADATA, Bundle, read_bundle
from bert.cache import cached_import, import_apart
from bert.minilm import ensure_minilm
from bert.model_files import ARCHIVES, HUB_HANDLES, MARKERS
from bert.remote import SCHEME, fetch, list_model


def resolve_model(model: str, allow_untrusted: bool = False) -> Bundle:
    """Returns the bundle that `model` names, importing it first where it is none yet.

    An import runs in a process of its own (the caller never loads TensorFlow) into
    `$BERT_EMBED_CACHE`, else `~/.cache/bert-embed`, and is kept there.

    Args:
        model: "minilm"; a folder with a bundle, a Hugging Face BERT, a google-research one whose
            name tells its casing, or a BERT encoder of TF Hub; a `.tar.gz` of one; either of them
            in Cloud Storage (gs://); or a handle of TF Hub (https://tfhub.dev/…).
        allow_untrusted: Whether a SavedModel's graph may hold any operation, those that read and
            write files too.

    Raises:
        ValueError: No such model, or it is damaged or no BERT.
        RuntimeError: The default model could not be fetched.
    """
    return replace(read_bundle(_bundle_folder(model, allow_untrusted)), trusted=allow_untrusted)


def _bundle_folder(model: str, allow: bool) -> Path:
    if model == "minilm":
        return Path(ensure_minilm())
    if model.startswith(SCHEME):
        return _from_cloud_storage(model, allow)
    if model.startswith(HUB_HANDLES):
        return cached_import(model, lambda dest: import_apart(model, dest, allow))
    place = Path(model).absolute()
    if (place / METADATA).is_file():
        return place
    archive = place.is_file() and place.name.endswith(ARCHIVES)
    if not archive:
        _check_folder(place, model)
    return cached_import(_listing(place), lambda dest: import_apart(place, dest, allow))


def _check_folder(folder: Path, model: str) -> None:
    if not folder.is_dir():
        raise ValueError(
            "--model must be minilm, a bundle, a model's folder or .tar.gz, gs://…, or a handle of "
            f"TF Hub (models of Hugging Face: their downloaded folder), got {model!r}"
        )
    if not any((folder / name).is_file() for name in MARKERS):
        raise ValueError(
            f"--model must hold {METADATA} (a bundle), config.json (a Hugging Face model), "
            "bert_config.json (a google-research checkpoint) or saved_model.pb (an encoder of "
            f"TF Hub), {folder} holds none of them"
        )


def _from_cloud_storage(url: str, allow: bool) -> Path:
    remote = list_model(url)
    if remote.has(METADATA):
        return fetch(remote)
    return cached_import(
        remote.listing, lambda dest: import_apart(fetch(remote), dest, allow, name=url)
    )


def _listing(place: Path) -> str:
    """Names, sizes and times of change: a model that was changed is imported anew."""
    lines = [str(place)]
    for file in sorted([place] if place.is_file() else place.rglob("*")):
        if file.is_file():
            stat = file.stat()
            lines.append(f"{file.relative_to(place)} {stat.st_size} {stat.st_mtime_ns}")
    return "\n".join(lines)
