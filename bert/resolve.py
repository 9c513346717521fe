"""Resolve --model: "minilm", a bundle's folder or a model's folder in, a Bundle out."""

from pathlib import Path

from bert.bundle import METADATA, Bundle, read_bundle
from bert.cache import cached_import, import_apart
from bert.minilm import ensure_minilm

_MODEL_FILES = ("config.json", "modules.json", "bert_config.json")


def resolve_model(model: str) -> Bundle:
    """Returns the bundle that `model` names, importing it first where it is none yet.

    An import runs in a process of its own (the caller never loads TensorFlow) into
    `$BERT_EMBED_CACHE`, else `~/.cache/bert-embed`, and is kept there.

    Args:
        model: "minilm", a bundle's folder, a Hugging Face BERT folder, or a google-research one
            whose name tells its casing.

    Raises:
        ValueError: No such model, or it is damaged or no BERT.
        RuntimeError: The default model could not be fetched.
    """
    if model == "minilm":
        return read_bundle(ensure_minilm())
    folder = Path(model).absolute()
    if (folder / METADATA).is_file():
        return read_bundle(folder)
    if not folder.is_dir():
        raise ValueError(
            f"--model must be minilm, a bundle's folder or a model's folder, got {model!r}"
        )
    if not any((folder / name).is_file() for name in _MODEL_FILES):
        raise ValueError(
            f"--model must hold {METADATA} (a bundle), config.json (a Hugging Face model) or "
            f"bert_config.json (a google-research checkpoint), {folder} holds none of them"
        )
    return read_bundle(cached_import(_listing(folder), lambda dest: import_apart(folder, dest)))


def _listing(folder: Path) -> str:
    """Names, sizes and times of change: a model that was changed is imported anew."""
    lines = [str(folder)]
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            stat = file.stat()
            lines.append(f"{file.relative_to(folder)} {stat.st_size} {stat.st_mtime_ns}")
    return "\n".join(lines)
