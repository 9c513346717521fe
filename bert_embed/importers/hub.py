"""Fetches models from the Hugging Face hub."""

from pathlib import Path

from bert_embed.bundle.hub_cache import (
    HUB_SCHEME,
    HubName,
    Snapshot,
    cached_snapshot,
    hub_cache,
    hub_name,
)
from bert_embed.importers.sources import reason
from bert_embed.storage.errors import InputError, required

_FILES = ("*.json", "*.safetensors", "*.txt", "README.md")
_OTHER_ENGINES = ("onnx/*", "openvino/*")


def hub_snapshot(source: str) -> Snapshot | None:
    """Returns the files of a model of the hub; None if the source is no name of one."""
    if source.startswith(HUB_SCHEME):
        return _fetched(source)
    return None if Path(source).exists() else cached_snapshot(source)


def _fetched(source: str) -> Snapshot:
    name = required(hub_name(source), "name of a model")
    from huggingface_hub import snapshot_download  # 0.3 s, for this alone

    try:
        folder = Path(
            snapshot_download(
                name.repo,
                revision=name.revision,
                cache_dir=hub_cache(),
                allow_patterns=list(_FILES),
                ignore_patterns=list(_OTHER_ENGINES),
            )
        )
    except (OSError, ValueError) as error:
        why = reason(error).rstrip(".")
        raise InputError(
            f"{source}: could not be fetched ({why}); check name, revision and connection, and "
            "HF_TOKEN where the model is not public"
        ) from error
    if not any(folder.rglob("*.safetensors")):
        raise InputError(
            f"{source}: has no safetensors at this revision, and other weights are refused "
            "(pickled weights can run code when read); name a revision that has them, or convert "
            "the model with save_pretrained of transformers"
        )
    return Snapshot(folder, HubName(name.repo, folder.name).address)
