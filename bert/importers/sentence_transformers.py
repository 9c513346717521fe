"""What the files of a sentence-transformers folder say: where the encoder is, how it pools."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bert.vector_spec import VectorSpec

_POOLINGS = {
    "cls": "cls",
    "mean": "mean",
    "max": "max",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weightedmean",
    "lasttoken": "lasttoken",
}
# Until release 5 each pooling had a switch of its own.
_SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True)
class Settings:
    """How a folder wants its texts made into vectors.

    Attributes:
        encoder: Folder of config.json and weights, relative to the source.
        defaults: Pooling and normalisation.
        max_seq_length: Tokens of a row; None where no file says.
        do_lower_case: Whether texts are lowered first; None where no file says.
    """

    encoder: str = ""
    defaults: VectorSpec = field(default_factory=VectorSpec)
    max_seq_length: int | None = None
    do_lower_case: bool | None = None


def read_settings(source: Path) -> Settings:
    """Reads modules.json and what it names; a folder without one gets the plain settings.

    Raises:
        ValueError: A module, a pooling or a prompt that we do not compute.
    """
    if not (source / "modules.json").is_file():
        return Settings()
    _refuse_default_prompt(source)
    encoder, pooling, normalize = "", None, False
    for module in read_json(source / "modules.json"):
        kind = str(module.get("type", "")).rpartition(".")[2]
        if kind == "Transformer":
            encoder = module.get("path", "")
        elif kind == "Pooling" and pooling is None:
            pooling = _pooling(source / module.get("path", "") / "config.json")
        elif kind == "Normalize":
            normalize = True
        else:
            raise ValueError(f"{source / 'modules.json'}: module {kind} is not supported yet")
    own = source / encoder / "sentence_bert_config.json"
    values = read_json(own) if own.is_file() else {}
    return Settings(
        encoder=encoder,
        defaults=VectorSpec(pooling=pooling or "mean", normalize=normalize),
        max_seq_length=values.get("max_seq_length"),
        do_lower_case=values.get("do_lower_case"),
    )


def _pooling(path: Path) -> str:
    values = read_json(path)
    modes = values.get("pooling_mode") or [
        mode for switch, mode in _SWITCHES.items() if values.get(switch)
    ]
    modes = [modes] if isinstance(modes, str) else list(modes) or ["mean"]
    if len(modes) > 1:
        raise ValueError(
            f"{path}: several poolings at once ({', '.join(modes)}) are not supported yet"
        )
    if modes[0] not in _POOLINGS:
        raise ValueError(f"{path}: pooling {modes[0]!r} is not supported yet")
    return _POOLINGS[modes[0]]


def _refuse_default_prompt(source: Path) -> None:
    path = source / "config_sentence_transformers.json"
    name = read_json(path).get("default_prompt_name") if path.is_file() else None
    if name is not None:
        raise ValueError(f"{path}: default_prompt_name {name!r} is not supported yet")


def read_json(path: Path) -> Any:
    """Returns the contents of a JSON file; ValueError names the file that cannot be read."""
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path}: is no JSON: {error}") from error
