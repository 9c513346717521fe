"""Imports models; the files of a model's folder decide which importer reads it."""

from typing import Any

from bert_embed.base.errors import InputError, SettingError
from bert_embed.bundle.bundle import METADATA, SAVED_MODEL, TF1_HUB, Bundle
from bert_embed.storage.local import absolute


def import_model(
    source: str,
    dest: str,
    *,
    checkpoint: str | None = None,
    lower_case: bool | None = None,
    activation: str | None = None,
    name: str | None = None,
) -> Bundle:
    """Imports a google-research checkpoint, a Hugging Face folder or a TF Hub encoder into `dest`.

    `source` is a folder or a `.tar.gz` of it, local or gs://; a TF Hub handle; `hf://org/name@REV`,
    which is fetched from the Hugging Face hub; or `org/name@REV` in its local cache. Of a
    google-research model `checkpoint` is the latest by default, `lower_case` follows the folder's
    name, and `activation` the configuration. `name` is what the bundle calls the source.
    InputError: no such model, one that cannot be computed, or a setting that does not apply to it.
    """
    from bert_embed.importers.google import CONFIG, import_google, import_tfhub
    from bert_embed.importers.huggingface import import_huggingface
    from bert_embed.importers.sources import hub_snapshot, local_folder

    if snapshot := hub_snapshot(source):
        source, name = str(snapshot.folder), name or snapshot.source
    settings: dict[str, Any] = {"checkpoint": checkpoint, "lower_case": lower_case}
    settings["activation"] = activation
    with local_folder(source) as folder:
        origin = {"source": name or (source if "://" in source else absolute(source))}
        if (folder / METADATA).is_file():
            raise InputError(
                f"{source}: is a bundle already, name it as model or copy its folder", "model"
            )
        safetensors = any(folder.glob("model.safetensors*"))
        # A folder of Hugging Face may keep the file beside its own
        other = safetensors or (
            (folder / "config.json").is_file() and not any(folder.glob("*.index"))
        )
        if (folder / CONFIG).is_file() and (checkpoint or not other):
            return import_google(folder, dest, origin, **settings)
        hub = any((folder / mark).is_file() for mark in (SAVED_MODEL, TF1_HUB)) and not safetensors
        kind = "is a SavedModel" if hub else f"holds no {CONFIG}"
        for setting, value in settings.items():
            if value is not None and not (hub and setting == "lower_case"):
                raise SettingError(
                    setting, f"is for google-research checkpoints, but {source} {kind}"
                )
        if hub:
            return import_tfhub(folder, dest, origin, lower_case)
        return import_huggingface(folder, dest, origin)
