"""Imports a google-research BERT checkpoint (TensorFlow 1) into a bundle."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from bert_embed.architectures.bert import BertConfig
from bert_embed.architectures.bert_names import google_name
from bert_embed.architectures.encoder import tensor_shapes
from bert_embed.architectures.families import config_from_huggingface
from bert_embed.bundle.bundle import Bundle
from bert_embed.bundle.files import VOCABULARY
from bert_embed.importers.json_files import read_object, refuse_unknown
from bert_embed.importers.tokenizer_files import no_casing, read_vocabulary
from bert_embed.importers.weights import check_layer_count, check_shapes
from bert_embed.importers.writer import write_bundle
from bert_embed.storage.errors import InputError, SettingError
from bert_embed.storage.packages import requires
from bert_embed.tokenization.tokenizer import Tokenizer

CONFIG = "bert_config.json"
_MAX_WORD_CHARS = 200  # of google-research's WordpieceTokenizer
_USUAL = "bert_model.ckpt"
# Variables of optimisers and heads, by the names that google-research gives them.
_IGNORED = re.compile(
    r".*/(adam_m|adam_v|lamb_m|lamb_v|Adam|Adam_1|AdamWeightDecayOptimizer(_1)?)$"
    r"|global_step$|good_steps$|loss_scale$|beta[12]_power$"
    r"|cls/|output_weights$|output_bias$|loss/"
)
# modeling.py computes "gelu" with tanh, unlike other programs.
_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu"}
_LOWER = re.compile(r"(^|_)(uncased|multilingual|chinese)_L-")
_CASED = re.compile(r"(^|_)cased_L-")


def import_google(
    source: str,
    dest: str,
    *,
    checkpoint: str | None = None,
    lower_case: bool | None = None,
    activation: str | None = None,
    name: str | None = None,
    licence: str | None = None,
) -> Bundle:
    """Imports `bert_config.json`, `vocab.txt` and a checkpoint into a bundle at `dest`."""
    root = Path(source).absolute()
    config = read_config(root / CONFIG, activation)
    tensors = read_checkpoint(root, find_checkpoint(root, checkpoint), config)
    bundle = Bundle(
        path=str(Path(dest).absolute()),
        fingerprint="",
        config=config,
        max_seq_length=config.max_position_embeddings,
        has_pooler="pooler/kernel" in tensors,
        source=name or str(root),
        licence=licence or "",
    )
    vocabulary = read_vocabulary(root / VOCABULARY, config, CONFIG)
    casing = casing_of(root) if lower_case is None else lower_case
    return write_bundle(bundle, tensors, Tokenizer(vocabulary, casing, _MAX_WORD_CHARS))


def read_config(path: Path, activation: str | None = None) -> BertConfig:
    """Reads a `bert_config.json`, where "gelu" means the tanh form, or raises InputError."""
    values = read_object(path)
    hidden_act = values.get("hidden_act", "gelu")
    supported = isinstance(hidden_act, str) and hidden_act in _ACTIVATIONS
    if activation is None and not supported:
        raise InputError(f"{path}: hidden_act must be gelu or relu, got {hidden_act!r}")
    values = {"model_type": "bert", **values, "hidden_act": "gelu"}
    try:
        config = config_from_huggingface(values)
    except ValueError as error:
        raise InputError(str(error).replace("config.json", str(path))) from error
    if not isinstance(config, BertConfig):
        found = config.model_types[values["model_type"]]
        raise InputError(f"{path}: must be of a BERT encoder, is of {found}")
    refuse_unknown(path, config.unknown_settings(values), frozenset())
    return replace(config, hidden_act=activation or _ACTIVATIONS[hidden_act])


def casing_of(folder: Path) -> bool:
    """Returns whether the model is uncased, by a folder's name like "uncased_L-12_H-768_A-12"."""
    if _LOWER.search(folder.name):
        return True
    if _CASED.search(folder.name):
        return False
    raise no_casing(f"{folder}: the name")


def find_checkpoint(folder: Path, name: str | None) -> str:
    """Returns the prefix of the checkpoint's files."""
    names = sorted(path.name.removesuffix(".index") for path in folder.glob("*.index"))
    if name is not None:
        chosen = name.removesuffix(".index")
    elif _USUAL in names:
        chosen = _USUAL
    elif len(names) == 1:
        chosen = names[0]
    else:
        chosen = _latest(folder)
    if chosen not in names:
        listed = ", ".join(names) or "none"
        raise SettingError(
            "checkpoint", f"must be one of {listed} in {folder}, got {chosen or 'none'}"
        )
    if not list(folder.glob(f"{chosen}.data-*-of-*")):
        raise InputError(f"{folder}: the checkpoint's file {chosen}.data-00000-of-00001 is missing")
    return str(folder / chosen)


def _latest(folder: Path) -> str:
    """Returns the latest checkpoint by the folder's file `checkpoint`, "" if there is none."""
    state = folder / "checkpoint"
    text = state.read_text("utf-8", errors="replace") if state.is_file() else ""
    # TensorFlow escapes letters in the names of folders, which are not needed.
    match = re.search(r'^model_checkpoint_path: "(?:.*/)?([^"/]*)"$', text, re.MULTILINE)
    return match[1] if match else ""


def read_checkpoint(folder: Path, prefix: str, config: BertConfig) -> dict[str, np.ndarray]:
    """Reads the encoder's weights in the names and shapes of `tensor_shapes`."""
    with requires(f"the checkpoint {prefix}", "tensorflow"):
        import tensorflow as tf

    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
        shapes = {name: shape for name, shape in shapes.items() if not _IGNORED.match(name)}
        check_layer_count(folder / CONFIG, config, "bert/encoder/layer_", shapes)
        pooler = "bert/pooler/dense/kernel" in shapes
        expected = tensor_shapes(config, pooler)
        check_shapes(prefix, shapes, {google_name(name): expected[name] for name in expected})
        return {
            name: np.asarray(reader.get_tensor(google_name(name)), np.float32) for name in expected
        }
    except (tf.errors.OpError, RuntimeError, IndexError) as error:  # IndexError: file too short
        raise InputError(f"{prefix}: the checkpoint cannot be read, perhaps cut") from error
