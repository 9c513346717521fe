"""Bundles: a model folder with weights, vocabulary and bundle.json; read without TensorFlow."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert.config import BertConfig
from bert.dense import DenseModule
from bert.text_spec import TextSpec
from bert.vector_spec import VectorSpec

if TYPE_CHECKING:
    from bert.tokenizer import Tokenizer

FORMAT = 2  # rises when a bundle of today could not be read, or would give other vectors
METADATA = "bundle.json"
VOCABULARY = "vocab.txt"
KINDS = ("bert", "saved_model")
_BY_NAME = "name:"


@dataclass(frozen=True)
class Bundle:
    """What is known of a model folder before its weights are loaded.

    Attributes:
        path: The folder: a SavedModel with `vocab.txt`, `probe.npz` and `bundle.json` beside it.
        fingerprint: Hash of tensors, vocabulary, configuration, tokenizer settings and modules.
        config: Sizes and activation of the encoder.
        lower_case: Whether the tokenizer lowers case and strips accents.
        max_word_chars: A longer word is [UNK].
        max_seq_length: Tokens of a row, special tokens included, unless asked otherwise.
        defaults: How the model's own settings make vectors.
        has_pooler: Whether the weights include the dense layer over [CLS].
        kind: "bert", whose variables are those of our encoder, or "saved_model", a SavedModel of
            TF Hub's interface that is used as it is.
        dense: The model's own layers over pooled vectors, in order.
        prompts: Texts to be put before a text, by name.
        default_prompt: The name of the one that is used unless asked otherwise, "" for none.
        source: Where the weights came from.
        licence: What their card names, "" where it names none.
        files: File names, relative to `path`, to their sha256.
        trusted: Whether its SavedModel may hold any operation; said by who loads it, never read
            from the folder.
    """

    path: str
    fingerprint: str
    config: BertConfig
    lower_case: bool
    max_word_chars: int
    max_seq_length: int
    defaults: VectorSpec = field(default_factory=VectorSpec)
    has_pooler: bool = True
    kind: str = "bert"
    dense: tuple[DenseModule, ...] = ()
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str = ""
    source: str = ""
    licence: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    trusted: bool = field(default=False, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {self.kind!r}")
        if self.default_prompt and self.default_prompt not in self.prompts:
            raise ValueError(
                f"default_prompt must be one of {_names(self.prompts)}, got {self.default_prompt!r}"
            )

    @property
    def tokenizer_fingerprint(self) -> str:
        """Hash of all that decides which ids a text has; models that share it share tokens."""
        decisive = [self.files[VOCABULARY], self.lower_case, self.max_word_chars]
        return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:16]

    def check(self, spec: VectorSpec) -> None:
        """Checks that this model can give the vectors of `spec`; ValueError names the flag."""
        spec.check(self.config)
        if spec.pooling == "pooler" and not self.has_pooler:
            raise ValueError(
                f"--pooling must not be pooler for this model, its weights have none: {self.path}"
            )
        if self.kind == "saved_model" and 0 in spec.layer_numbers(self.config):
            raise ValueError(
                "--layers must not name layer 0 for this model, its SavedModel does not give the "
                f"embeddings: {self.path}"
            )
        if spec.dense:
            self._check_dense(spec)

    def _check_dense(self, spec: VectorSpec) -> None:
        if not self.dense:
            raise ValueError(f"this model has no Dense modules, add --no_dense: {self.path}")
        width, wanted = spec.pooled_width(self.config), self.dense[0].in_features
        if width != wanted:
            raise ValueError(
                f"--pooling {spec.pooling} gives {width} numbers, but the model's Dense module "
                f"takes {wanted}: pool as the model does, or add --no_dense to leave it out"
            )
        if spec.dense != self.dense[-1].out_features:
            raise ValueError(
                f"dense must be 0 or {self.dense[-1].out_features} for this model, got {spec.dense}"
            )

    def prompt_text(self, asked: str | None) -> str:
        """Returns what is put before every text, "" for nothing.

        Args:
            asked: None for the model's own default, `name:` and the name of one of its prompts, or
                the text itself.

        Raises:
            ValueError: The model has no prompt of this name; the flag and its names are told.
        """
        if asked is None:
            return self.prompts[self.default_prompt] if self.default_prompt else ""
        if not asked.startswith(_BY_NAME):
            return asked
        name = asked.removeprefix(_BY_NAME)
        if name not in self.prompts:
            raise ValueError(
                f"--prompt {_BY_NAME}{name} is none of this model's prompts, "
                f"which are: {_names(self.prompts)}"
            )
        return self.prompts[name]

    def check_max_seq_length(self, length: int) -> None:
        """Checks a row length against the model's positions; ValueError names the flag."""
        most = self.config.max_position_embeddings
        if not 3 <= length <= most:
            raise ValueError(
                f"--max_seq_length must be between 3 and {most} for this model, got {length}"
            )

    def fit_texts(self, made: TextSpec, tokenizer: "Tokenizer | None" = None) -> TextSpec:
        """Sees that rows have room for prompt, stride and text; a stride left open is settled.

        Args:
            made: What is asked for.
            tokenizer: The model's, where it is in memory already.

        Raises:
            ValueError: Rows too long for the model, or too short for what shall be in them, or a
                prompt that would run into the texts; the flag is named.
        """
        from bert.windows import default_stride, window_room

        length = made.max_seq_length
        self.check_max_seq_length(length)
        prompt_tokens = 0
        if made.prompt:
            prompt_tokens = (tokenizer or self.load_tokenizer()).prompt_length(made.prompt)
        if prompt_tokens + 3 > length:
            raise ValueError(
                f"--prompt has {prompt_tokens} tokens, which leaves no room for a text in rows of "
                f"--max_seq_length {length}"
            )
        if made.long_text == "window":
            if made.stride is None:
                made = replace(made, stride=default_stride(length, prompt_tokens))
            window_room(length, prompt_tokens, made.stride or 0)
        return made

    def load_tokenizer(self) -> "Tokenizer":
        """Returns the model's tokenizer."""
        from bert.tokenizer import Tokenizer

        vocabulary = os.path.join(self.path, VOCABULARY)
        return Tokenizer(vocabulary, lower_case=self.lower_case, max_word_chars=self.max_word_chars)

    def load_encoder(self) -> Any:
        """Returns the model with its weights: a `bert.model.BertEncoder`, or its like.

        Raises:
            ValueError: The weights are damaged.
        """
        if self.kind == "saved_model":
            from bert.hub_encoder import load_hub_encoder

            return load_hub_encoder(self)
        from bert.model import BertEncoder  # imports TensorFlow: 5 s
        from bert.saved_model import restore

        encoder = BertEncoder(self.config, pooler=self.has_pooler, dense=self.dense)
        restore(encoder, self.path)
        return encoder

    def sizes(self) -> dict[str, int]:
        """Returns the bytes of each file, by name."""
        return {name: Path(self.path, name).stat().st_size for name in self.files}

    def verify_files(self) -> None:
        """Reads every file and compares its sha256; ValueError names the first that differs."""
        for name, wanted in self.files.items():
            found = file_sha256(Path(self.path, name))
            if found != wanted:
                raise ValueError(f"{self.path}: {name} is damaged, its sha256 is {found}")


def _names(names: Mapping[str, str]) -> str:
    return ", ".join(sorted(names)) or "none"


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
            kind=metadata["kind"],
            dense=tuple(DenseModule.from_dict(module) for module in metadata["dense"]),
            prompts=dict(metadata["prompts"]),
            default_prompt=metadata["default_prompt"],
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
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{folder}: {METADATA} is no JSON: {error}") from error
    found = metadata.get("format") if isinstance(metadata, dict) else None
    if found != FORMAT:
        raise ValueError(
            f"{folder}: {METADATA} must have format {FORMAT}, has {found!r}; "
            "import the model again with `model import`"
        )
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
        "kind": bundle.kind,
        "dense": [module.to_dict() for module in bundle.dense],
        "prompts": dict(bundle.prompts),
        "default_prompt": bundle.default_prompt,
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
