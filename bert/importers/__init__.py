"""Importers: a model in, a bundle out; what its folder holds tells which importer."""

from pathlib import Path
from typing import Any

from bert.bundle import METADATA, Bundle
from bert.model_files import SAVED_MODEL, TF1_HUB


def import_model(
    source: str,
    dest: str,
    *,
    checkpoint: str | None = None,
    lower_case: bool | None = None,
    activation: str | None = None,
    allow_untrusted: bool = False,
    name: str | None = None,
    licence: str | None = None,
) -> Bundle:
    """Imports a google-research checkpoint, a Hugging Face folder or a TF Hub encoder.

    Args:
        source: The folder, a `.tar.gz` of it, either in Cloud Storage (gs://), or a hub's handle.
        dest: The bundle's folder, which must not exist or be empty.
        checkpoint: Which checkpoint of a google-research folder; None takes the latest.
        lower_case: Whether a google-research model or a SavedModel is uncased; None judges by the
            folder's name, or by what the SavedModel says.
        activation: `gelu` (erf), `gelu_new` (tanh) or `relu` instead of what a google-research
            configuration means.
        allow_untrusted: Whether a SavedModel's graph may hold any operation.
        name: What the bundle says of its source; `source` if not given.
        licence: What it says of the licence.

    Raises:
        ValueError: No model of these kinds, one that cannot be computed, or a setting that is for
            the other kind.
    """
    from bert.importers.sources import local_folder

    settings = {"checkpoint": checkpoint, "lower_case": lower_case, "activation": activation}
    with local_folder(source) as folder:
        facts = {"name": name or _told(source), "licence": licence}
        return _import_folder(folder, source, dest, settings, facts, allow_untrusted)


def _import_folder(
    folder: Path,
    source: str,
    dest: str,
    settings: dict[str, Any],
    facts: dict[str, Any],
    trusted: bool,
) -> Bundle:
    from bert.importers import google, huggingface, tfhub

    if (folder / METADATA).is_file():
        raise ValueError(f"{source}: is a bundle already, name it as --model or copy its folder")
    safetensors = any(folder.glob("model.safetensors*"))
    if (folder / google.CONFIG).is_file() and not (safetensors and not settings["checkpoint"]):
        return google.import_google(str(folder), dest, **settings, **facts)
    allowed: tuple[str, ...] = ()
    kind = f"google-research checkpoints, but {source} holds no {google.CONFIG}"
    hub = any((folder / name).is_file() for name in (SAVED_MODEL, TF1_HUB)) and not safetensors
    if hub:
        allowed = ("lower_case",)
        kind = f"google-research checkpoints, but {source} is a SavedModel"
    given = [each for each, value in settings.items() if value is not None and each not in allowed]
    if given:
        raise ValueError(f"--{given[0]} is for {kind}")
    if hub:
        casing = settings["lower_case"]
        return tfhub.import_tfhub(str(folder), dest, lower_case=casing, trusted=trusted, **facts)
    return huggingface.import_huggingface(str(folder), dest, **facts)


def _told(source: str) -> str:
    """The source as a bundle tells it: whole addresses, absolute paths."""
    return source if "://" in source else str(Path(source).absolute())
