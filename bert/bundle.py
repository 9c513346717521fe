"""Bundles: a model folder with weights, vocabulary and bundle.json; read without TensorFlow."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert.config import BertConfig
from bert.vector_spec import VectorSpec

if TYPE_CHECKING:
    from bert.model import BertEncoder
    from bert.tokenizer import Tokenizer

FORMAT = 1  # rises when a bundle of today could not be read, or would give other vectors
METADATA = "bundle.json"
VOCABULARY = "vocab.txt"


@dataclass(frozen=True)
class Bundle:
    """What is known of a model folder before its weights are loaded.

    Attributes:
        path: The folder: a SavedModel with `vocab.txt` and `bundle.json` beside it.
        fingerprint: Hash of tensors, vocabulary, configuration and tokenizer settings.
        config: Sizes and activation of the encoder.
        lower_case: Whether the tokenizer lowers case and strips accents.
        max_word_chars: A longer word is [UNK].
        max_seq_length: Tokens of a row, special tokens included, unless asked otherwise.
        defaults: How the model's own settings make vectors.
        has_pooler: Whether the weights include the dense layer over [CLS].
        source: Where the weights came from.
        licence: What their card names, "" where it names none.
        files: File names, relative to `path`, to their sha256.
    """

    path: str
    fingerprint: str
    config: BertConfig
    lower_case: bool
    max_word_chars: int
    max_seq_length: int
    defaults: VectorSpec = field(default_factory=VectorSpec)
    has_pooler: bool = True
    source: str = ""
    licence: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    def check(self, spec: VectorSpec) -> None:
        """Checks that this model can give the vectors of `spec`; ValueError names the flag."""
        spec.check(self.config)
        if spec.pooling == "pooler" and not self.has_pooler:
            raise ValueError(
                f"--pooling must not be pooler for this model, its weights have none: {self.path}"
            )

    def check_max_seq_length(self, length: int) -> None:
        """Checks a row length against the model's positions; ValueError names the flag."""
        most = self.config.max_position_embeddings
        if not 3 <= length <= most:
            raise ValueError(
                f"--max_seq_length must be between 3 and {most} for this model, got {length}"
            )

    def load_tokenizer(self) -> "Tokenizer":
        """Returns the model's tokenizer."""
        from bert.tokenizer import Tokenizer

        vocabulary = os.path.join(self.path, VOCABULARY)
        return Tokenizer(vocabulary, lower_case=self.lower_case, max_word_chars=self.max_word_chars)

    def load_encoder(self) -> "BertEncoder":
        """Returns the model with its weights; ValueError if they are damaged."""
        from bert.model import BertEncoder  # imports TensorFlow: 5 s
        from bert.saved_model import restore

        encoder = BertEncoder(self.config, pooler=self.has_pooler)
        restore(encoder, self.path)
        return encoder

    def verify_files(self) -> None:
        """Reads every file and compares its sha256; ValueError names the first that differs."""
        for name, wanted in self.files.items():
            found = file_sha256(Path(self.path, name))
            if found != wanted:
                raise ValueError(f"{self.path}: {name} is damaged, its sha256 is {found}")


def read_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Reads a bundle's metadata, and checks that its files are there in their full size.

    Raises:
        ValueError: Not a bundle, of another format, damaged, or a file is missing or cut.
    """
    folder = os.path.abspath(path)
    metadata = _read_metadata(folder)
    try:
        tokenizer = metadata["tokenizer"]
        bundle = Bundle(
            path=folder,
            fingerprint=metadata["fingerprint"],
            config=BertConfig.from_dict(metadata["config"]),
            lower_case=tokenizer["lower_case"],
            max_word_chars=tokenizer["max_word_chars"],
            max_seq_length=metadata["max_seq_length"],
            defaults=VectorSpec.from_dict(metadata["defaults"]),
            has_pooler=metadata["has_pooler"],
            source=metadata["source"],
            licence=metadata["licence"],
            files={name: entry["sha256"] for name, entry in metadata["files"].items()},
        )
        sizes = {name: entry["size"] for name, entry in metadata["files"].items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder}: {METADATA} is damaged: {error!r}") from error
    for name, size in sizes.items():
        file = Path(folder, name)
        if not file.is_file():
            raise ValueError(f"{folder}: the bundle's file {name} is missing")
        if file.stat().st_size != size:
            raise ValueError(f"{folder}: {name} must have {size} bytes, has {file.stat().st_size}")
    return bundle


def _read_metadata(folder: str) -> dict[str, Any]:
    try:
        metadata = json.loads(Path(folder, METADATA).read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"{folder}: not a model bundle, {METADATA} cannot be read") from error
    except ValueError as error:
        raise ValueError(f"{folder}: {METADATA} is no JSON: {error}") from error
    found = metadata.get("format") if isinstance(metadata, dict) else None
    if found != FORMAT:
        raise ValueError(f"{folder}: {METADATA} must have format {FORMAT}, has {found!r}")
    return metadata


def write_metadata(folder: str | os.PathLike[str], bundle: Bundle) -> None:
    """Writes bundle.json over the files that lie in `folder`; last, it makes it a bundle."""
    root = Path(folder)
    names = sorted(file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file())
    metadata = {
        "format": FORMAT,
        "fingerprint": bundle.fingerprint,
        "config": bundle.config.to_dict(),
        "tokenizer": {"lower_case": bundle.lower_case, "max_word_chars": bundle.max_word_chars},
        "max_seq_length": bundle.max_seq_length,
        "defaults": bundle.defaults.to_dict(),
        "has_pooler": bundle.has_pooler,
        "source": bundle.source,
        "licence": bundle.licence,
        "files": {
            name: {"sha256": file_sha256(root / name), "size": (root / name).stat().st_size}
            for name in names
        },
    }
    text = json.dumps(metadata, indent=2, sort_keys=True) + "\n"
    Path(root, METADATA).write_text(text, encoding="utf-8")


def file_sha256(path: str | os.PathLike[str]) -> str:
    """Returns the sha256 of a file as hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
