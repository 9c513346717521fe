"""Reads and writes bundle.json, the description of a model's folder; names and hashes its files.

Prompts follow one rule in Python, runs, `search` and transforms: a prompt that is named after its
use is used, a default prompt of another name is for calls that name no use. sentence-transformers
does the same.
"""

import hashlib
import json
import os
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np

from bert_embed.base.arguments import one_of, one_text
from bert_embed.base.arrays import SIMILARITIES
from bert_embed.base.errors import InputError, SettingError, naming, raise_passing
from bert_embed.bundle.fingerprints import model_fingerprint
from bert_embed.models.encoder import EncoderConfig, tensor_shapes
from bert_embed.models.families import BY_ARCHITECTURE
from bert_embed.models.heads.head import Head
from bert_embed.models.heads.kinds import heads_from_json, heads_to_json
from bert_embed.models.heads.sparse import SparseHead
from bert_embed.models.modules import OF_TOKENS, Module, module_from_dict, module_shapes
from bert_embed.settings import BY_NAME, VectorSpec
from bert_embed.storage.local import is_file, opened, stat

SAVED_MODEL = "saved_model.pb"
TF1_HUB = "tfhub_module.pb"
ARCHIVES = (".tar.gz", ".tgz")
HUB_HANDLES = ("https://tfhub.dev/", "https://www.kaggle.com/models/")
METADATA = "bundle.json"
SAFETENSORS = "model.safetensors"
MODULES = "modules.json"  # of sentence-transformers
MARKERS = (METADATA, "config.json", MODULES, "bert_config.json", SAVED_MODEL, TF1_HUB)
ADAPTER = "adapter_config.json"  # of peft
VOCABULARY, TOKENIZER_JSON = "vocab.txt", "tokenizer.json"
WEIGHTS = "weights.safetensors"  # all tensors, of which engines' own files are made at the import
TABLES = "tables.safetensors"  # those that the host reads: a small file, fetched with every bundle
PROBE = "probe.npz"


def refuse_adapter(folder: Path) -> None:
    """Raises InputError where peft keeps an adapter, beside its base or without it."""
    if (folder / ADAPTER).is_file():
        raise InputError(
            f"{folder}: {ADAPTER} is that of an adapter, which is not applied to its base model: "
            f"merge them, model = AutoModel.from_pretrained(BASE) of transformers, then "
            f'PeftModel.from_pretrained(model, "{folder}").merge_and_unload() of peft, and put '
            "what its save_pretrained writes in place of the weights and of the adapter",
            "model",
        )


def file_sha256(path: str | os.PathLike[str]) -> str:
    """Returns the sha256 of a file as hexadecimal digits."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


FORMAT = 8  # increased when older bundles cannot be read, or would give other vectors
AGAIN = "remove the folder and import the model again"
# Fields that are the same in bundle.json.
_PLAIN = (
    *("fingerprint", "max_seq_length", "has_pooler", "default_prompt", "source"),
    *("similarity", "top_k", "names_pooling"),
)
# Of models without such vectors
_WAYS_OUT = {
    "multi": "; BAAI/bge-m3 and colbert-ir/colbertv2.0 make multi-vectors",
    "sparse": "; sparse ones take the whole head of a masked language model among the weights, and "
    "...ForMaskedLM among the architectures of config.json",
}


@dataclass(frozen=True)
class Bundle:
    """The description of a model, without its weights."""

    # The folder: `weights.safetensors`, the engines' files, `vocab.txt` or `tokenizer.json`,
    # `probe.npz` and `bundle.json`.
    path: str
    fingerprint: str  # hash of tensors, vocabulary, configuration, tokenizer settings and modules
    config: EncoderConfig  # sizes and activation of the encoder
    max_seq_length: int  # most tokens of a row by default, special tokens included
    tokenizer_settings: Mapping[str, Any] = field(default_factory=dict)  # `TextTokenizer.settings`
    defaults: VectorSpec = field(default_factory=VectorSpec)  # the model's own settings for vectors
    names_pooling: bool = True  # whether its files say how tokens become a vector
    has_pooler: bool = True  # whether the weights include the dense layer over [CLS]
    dense: tuple[Module, ...] = ()  # the model's own modules behind the pooling, in order
    token_dense: tuple[Module, ...] = ()  # those before it, over the vectors of tokens
    # What makes other kinds of vectors, by `bert_embed.models.heads.kinds.ROW_KINDS`.
    heads: Mapping[str, Head] = field(default_factory=dict)
    default_vectors: tuple[str, ...] = ("dense",)  # the kinds of vectors that the model is for
    similarity: str = "cosine"  # how its dense vectors are compared, one of `SIMILARITIES`
    top_k: int | None = None  # most weights of a sparse vector; None: all
    prompts: Mapping[str, str] = field(default_factory=dict)  # before a text, by name
    default_prompt: str = ""  # name of the prompt that is used by default, "" for none
    source: str = ""  # where the weights come from
    files: Mapping[str, str] = field(default_factory=dict)  # the sha256 of each, by name
    # Where the workers of a job keep what they compile, "" for nowhere. It is code, so bundle.json
    # cannot say it.
    programs: str = ""

    def __post_init__(self) -> None:
        one_of("similarity", self.similarity, SIMILARITIES)
        if self.default_prompt and self.default_prompt not in self.prompts:
            raise InputError(
                f"default_prompt must be one of {_names(self.prompts)}, got {self.default_prompt!r}"
            )

    @property
    def tokenizer_file(self) -> str:
        """The name of the file with the tokenizer's vocabulary."""
        return TOKENIZER_JSON if "sha256" in self.tokenizer_settings else VOCABULARY

    @property
    def tokenizer_fingerprint(self) -> str:
        """Hash of all that decides the ids of a text; models with the same hash share tokens."""
        decisive = [self.files[self.tokenizer_file], *self.tokenizer_settings.values()]
        return hashlib.sha256(json.dumps(decisive).encode()).hexdigest()[:16]

    @property
    def per_token(self) -> tuple[str, ...]:
        """What an engine computes of each token, behind the layers: kinds, or the modules."""
        kinds = [kind for kind, head in self.heads.items() if head.per_token]
        return (*kinds, *(["token_modules"] if self.token_dense else []))

    @property
    def unread(self) -> tuple[str, ...]:
        """The names of tensors that no engine reads, but the host."""
        return tuple(name for head in self.heads.values() for name in head.unread)

    @property
    def heads_apart(self) -> tuple[str, ...]:
        """The kinds, not what the model is for, whose graphs multiply by a table of words."""
        return tuple(
            kind
            for kind, head in self.heads.items()
            if isinstance(head, SparseHead) and not head.per_token
            if kind not in self.default_vectors
        )

    def check(self, spec: VectorSpec) -> None:
        """Checks that this model supports the vectors of `spec`; SettingError if not."""
        spec.check(self.config)
        if spec.pooling == "pooler" and not self.has_pooler:
            problem = f"must not be pooler for this model, its weights have none: {self.path}"
            raise SettingError("pooling", problem)
        if spec.token_dense and spec.layer_combine == "concat" and len(spec.layers) > 1:
            raise SettingError(
                "layer_combine",
                f"concat gives {len(spec.layers) * self.config.hidden_size} numbers a token, but "
                f"the model's Dense module takes {self.token_dense[0].in_features}: take sum, "
                "mean, stack or last",
            )
        if not spec.dense:
            return
        if not self.dense:
            raise SettingError(
                "dense", f"must be off, this model has no Dense modules: {self.path}"
            )
        width, expected = spec.pooled_width(self.config), self.dense[0].in_features
        if width != expected:
            raise SettingError(
                "pooling",
                f"{spec.pooling} gives {width} numbers, but the model's Dense module takes "
                f"{expected}: pool as the model does, or turn dense off",
                "dense",
            )
        if spec.dense != (last := self.dense[-1].out_features):
            raise SettingError("dense", f"must be 0 or {last} for this model, got {spec.dense}")

    def check_vectors(self, kinds: Iterable[str], setting: str = "vectors") -> None:
        """Checks that this model makes these kinds of vectors; SettingError if not."""
        for kind in kinds:
            if kind != "dense" and kind not in self.heads:
                made = ", ".join(("dense", *self.heads))
                raise SettingError(
                    setting,
                    f"{kind}: this model makes {made} vectors alone: {self.path}"
                    f"{_WAYS_OUT.get(kind, '')}",
                )

    def prompt_text(self, prompt: str | None) -> str:
        """The text before each text: None for the default, `name:` and a name for a prompt."""
        if prompt is None:
            return self.prompts[self.default_prompt] if self.default_prompt else ""
        if not one_text("prompt", prompt).startswith(BY_NAME):
            return prompt
        name = prompt.removeprefix(BY_NAME)
        if name not in self.prompts:
            raise SettingError(
                "prompt",
                f"{BY_NAME}{name} is none of this model's prompts"
                f"{f': {_names(self.prompts)}' if self.prompts else ', which has none'}",
            )
        return self.prompts[name]

    def fingerprint_of(self, tensors: Mapping[str, np.ndarray], vocabulary: Sequence[str]) -> str:
        """Returns the fingerprint of such a model with these tensors and this vocabulary."""
        said = self.described()
        parts = {name: said[name] for name in ("config", "tokenizer", "dense", "heads")}
        return model_fingerprint(tensors, vocabulary, **parts, token_dense=said["token_dense"])

    def described(self) -> dict[str, Any]:
        """Returns what bundle.json says of the model, its files apart, as JSON-able values."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "config": self.config.to_dict(),
            "tokenizer": dict(self.tokenizer_settings),
            "defaults": self.defaults.to_dict(),
            "dense": [module.to_dict() for module in self.dense],
            "token_dense": [module.to_dict() for module in self.token_dense],
            "heads": heads_to_json(self.heads),
            "default_vectors": list(self.default_vectors),
            "prompts": dict(self.prompts),
        }

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shape of each tensor by name, those of heads included."""
        shapes = tensor_shapes(self.config, self.has_pooler)
        shapes |= module_shapes(self.dense) | module_shapes(self.token_dense, OF_TOKENS)
        for head in self.heads.values():
            shapes |= head.shapes(self.config)
        return shapes

    def sizes(self) -> dict[str, int]:
        """Returns the size of each file in bytes, by name."""
        return {name: stat(os.path.join(self.path, name)).size for name in self.files}

    def verify_files(self, names: Iterable[str] | None = None) -> None:
        """Compares the sha256 of files, of all unless `names` says which."""
        for name in self.files if names is None else names:
            if not is_file(os.path.join(self.path, name)):
                raise InputError(
                    f"{self.path}: {name} is missing; if it was fetched for another precision or "
                    "device, give the model's address again"
                )
            digest = file_sha256(Path(self.path, name))
            if digest != self.files[name]:
                raise InputError(
                    f"{self.path}: {name} is damaged or was changed (sha256 {digest}); {AGAIN}"
                )


def _names(names: Mapping[str, str]) -> str:
    return ", ".join(sorted(names)) or "none"


def is_weights(name: str) -> bool:
    """Whether a bundle's file holds weights, which the engine that reads them checks."""
    return name not in (METADATA, TABLES, VOCABULARY, TOKENIZER_JSON, PROBE)


def write_tensors(bundle: Bundle, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes `WEIGHTS`, and `TABLES` where the host reads some, into the bundle's folder."""
    _write_tensors(Path(bundle.path, WEIGHTS), tensors)
    if bundle.unread:
        _write_tensors(Path(bundle.path, TABLES), {name: tensors[name] for name in bundle.unread})


def _write_tensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    # Not by the library, which holds all of them once more, and keeps the file to its user.
    header, start = {}, 0
    for name, array in tensors.items():
        stop = start + 4 * array.size
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [start, stop]}
        start = stop
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array, "<f4").data)


def load_tensors(bundle: Bundle) -> dict[str, np.ndarray]:
    """Returns the float32 weights in the names and shapes of `Bundle.tensor_shapes`."""
    bundle.verify_files([WEIGHTS])
    tensors = _read_tensors(bundle, WEIGHTS)
    if {name: array.shape for name, array in tensors.items()} != bundle.tensor_shapes():
        raise InputError(f"{bundle.path}: {WEIGHTS} holds another encoder; {AGAIN}")
    return tensors


def load_table(bundle: Bundle, name: str) -> np.ndarray:
    """Returns one of the tensors that no graph reads."""
    return _read_tensors(bundle, TABLES)[name]


def _read_tensors(bundle: Bundle, file: str) -> dict[str, np.ndarray]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = Path(bundle.path, file)
    try:
        with naming(path):
            return load_file(path)
    except SafetensorError as error:
        raise InputError(f"{bundle.path}: {file} is damaged: {error}; {AGAIN}") from error


def read_bundle(path: str | os.PathLike[str], weights: Container[str] | None = None) -> Bundle:
    """Reads a bundle's description; checks `weights` (None: all) by size, other files by sha256."""
    folder = os.path.abspath(path)
    said = _read_metadata(folder)
    try:
        plain = {name: said[name] for name in _PLAIN}
        config = dict(said["config"])
        if (family := BY_ARCHITECTURE.get(name := config.pop("architecture", ""))) is None:
            raise InputError(f"config: architecture {name!r} is not known to this version")
        bundle = Bundle(
            path=folder,
            **plain,
            config=family.from_dict(config),
            tokenizer_settings=dict(said["tokenizer"]),
            defaults=VectorSpec.from_dict(said["defaults"]),
            dense=tuple(map(module_from_dict, said["dense"])),
            token_dense=tuple(map(module_from_dict, said["token_dense"])),
            heads=heads_from_json(said["heads"], METADATA),
            default_vectors=tuple(said["default_vectors"]),
            prompts=dict(said["prompts"]),
            files={name: entry["sha256"] for name, entry in said["files"].items()},
        )
        sizes = {name: entry["size"] for name, entry in said["files"].items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder}: {METADATA} is damaged: {error!r}") from error
    for name, size in sizes.items():
        if weights is not None and is_weights(name) and name not in weights:
            continue
        file = os.path.join(folder, name)
        if not is_file(file):
            raise InputError(f"{folder}: the bundle's file {name} is missing")
        if (there := stat(file).size) != size:
            raise InputError(f"{folder}: {name} must have {size} bytes, has {there}")
    if said.get("digest") != _digest(said):
        raise InputError(f"{folder}: {METADATA} was changed after it was written; {AGAIN}")
    bundle.verify_files([name for name in bundle.files if not is_weights(name)])
    return bundle


def whole_bundle(
    path: str | os.PathLike[str], weights: Container[str] | None = None
) -> Bundle | None:
    """Returns the bundle in a folder, None where there is none, or not all of one.

    Only what was read, or is not there, says so; else InputError or StorageError.
    """
    try:
        return read_bundle(path, weights)
    except ValueError as error:
        absent = FileNotFoundError, NotADirectoryError
        if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, absent):
            raise
        return None


def _read_metadata(folder: str) -> dict[str, Any]:
    try:
        with opened(Path(folder, METADATA)) as file:
            metadata = json.loads(file.read().decode())
    except OSError as error:
        raise_passing(error, Path(folder, METADATA))
        raise InputError(f"{folder}: not a model bundle, {METADATA} cannot be read") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{folder}: {METADATA} is not JSON: {error}; {AGAIN}") from error
    number = metadata.get("format") if isinstance(metadata, dict) else None
    if number != FORMAT:
        raise InputError(
            f"{folder}: {METADATA} must have format {FORMAT}, has {number!r}; "
            "import the model again with `model import`"
        )
    return metadata


def write_metadata(folder: str | os.PathLike[str], bundle: Bundle) -> None:
    """Writes bundle.json, which lists the files in `folder`; it is the last file of a bundle."""
    root = Path(folder)
    names = sorted(file.relative_to(root).as_posix() for file in root.rglob("*") if file.is_file())
    files = {
        name: {"sha256": file_sha256(root / name), "size": (root / name).stat().st_size}
        for name in names
    }
    metadata: dict[str, Any] = {"format": FORMAT, **bundle.described(), "files": files}
    metadata["digest"] = _digest(metadata)
    text = json.dumps(metadata, indent=2, sort_keys=True) + "\n"
    Path(root, METADATA).write_text(text, encoding="utf-8")


def _digest(metadata: Mapping[str, Any]) -> str:
    hashed = {name: value for name, value in metadata.items() if name != "digest"}
    return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()


QUERY, DOCUMENT = "query", "document"
# sentence-transformers' `encode_document` says that it looks for these, too, but each of its models
# has a prompt named "document", if an empty one, which it finds first (release 6.2).
UNUSED = ("passage", "corpus")


class TrainedPrompts(NamedTuple):
    """What a model was trained with, "" for nothing."""

    query: str
    document: str


_SEARCHING = "Represent this sentence for searching relevant passages: "
# Models whose cards ask for prompts that their files do not name, or did not in every release.
_TRAINED = {
    r"(multilingual-)?e5-(small|base|large)(-v2|-unsupervised)?": ("query: ", "passage: "),
    r"nomic-embed-text-v1(\.5)?|modernbert-embed-(base|large)": (
        "search_query: ",
        "search_document: ",
    ),
    r"bge-(small|base|large)-en(-v1\.5)?": (_SEARCHING, ""),
    r"bge-(small|base|large)-zh(-v1\.5)?": ("为这个句子生成表示以用于检索相关文章\uff1a", ""),
    r"mxbai-embed-large-v1|snowflake-arctic-embed-(xs|s|m|m-long|l|m-v1\.5)": (_SEARCHING, ""),
    r"snowflake-arctic-embed-[ml]-v2\.0": ("query: ", ""),
}
_CACHED = re.compile(r".*/models--(?:[^/]+--)?([^/]+)/snapshots/[^/]+")


def document_prompt(bundle: Bundle, prompt: str | None) -> str:
    """Returns the text before each document: `prompt`, which `Bundle.prompt_text` describes.

    None is the model's prompt for documents, "" where its files name none.
    """
    if prompt is not None:
        return bundle.prompt_text(prompt)
    return bundle.prompts.get(DOCUMENT, "")


def query_prompt(bundle: Bundle, documents: str) -> str:
    """Returns the text before queries to documents with this prompt.

    It is the model's prompt for queries, or what it was trained with beside that of the documents;
    where nothing says, the default prompt if the documents have it, else "".
    """
    if QUERY in bundle.prompts:
        return bundle.prompts[QUERY]
    query, document = trained_prompts(bundle) or ("", None)
    if document == documents:
        return query
    by_default = bundle.default_prompt != DOCUMENT and documents == bundle.prompt_text(None)
    return documents if by_default else ""


def unused_prompt(bundle: Bundle) -> str | None:
    """Returns the name of a prompt that may be for documents, but is not put before them."""
    if DOCUMENT in bundle.prompts:
        return None
    return next((name for name in UNUSED if bundle.prompts.get(name)), None)


def trained_prompts(bundle: Bundle) -> TrainedPrompts | None:
    """Returns the prompts of a known model, by its name, if its files name none."""
    if any(bundle.prompts.values()):
        return None
    cached = _CACHED.fullmatch(bundle.source)
    name = cached[1] if cached else PurePosixPath(bundle.source.partition("@")[0]).name
    known = (texts for pattern, texts in _TRAINED.items() if re.fullmatch(pattern, name, re.I))
    texts = next(known, None)
    return texts and TrainedPrompts(*texts)
