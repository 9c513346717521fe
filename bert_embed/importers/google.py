"""Imports BERT encoders of Google: checkpoints of TensorFlow 1, SavedModels of TF Hub."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.base.environment import requires
from bert_embed.base.errors import InputError, SettingError, refusal
from bert_embed.bundle.bundle import SAVED_MODEL, TF1_HUB, VOCABULARY, Bundle
from bert_embed.importers.tokenizer_settings import SLOW, read_entries
from bert_embed.importers.weights import (
    FileSettings,
    check_layer_count,
    check_shapes,
    inside,
    new_bundle,
    optional_object,
    read_object,
    write_bundle,
)
from bert_embed.models.bert import BertConfig, google_name, official_name
from bert_embed.models.encoder import tensor_shapes
from bert_embed.models.families import config_from_huggingface
from bert_embed.text.tokenizer import Tokenizer

CONFIG = "bert_config.json"
_MAX_WORD_CHARS = 200  # of google-research's WordpieceTokenizer
_PADDED = 64  # rows, to a multiple of which google-research's word tables are padded at most
_USUAL = "bert_model.ckpt"
_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"  # of TensorFlow 2
# Variables of optimisers and heads, by the names that google-research gives them.
_IGNORED = re.compile(
    r".*/(adam_m|adam_v|lamb_m|lamb_v|Adam|Adam_1|AdamWeightDecayOptimizer(_1)?)$"
    r"|global_step$|good_steps$|loss_scale$|beta[12]_power$"
    r"|cls/|output_weights$|output_bias$|loss/"
)
# modeling.py computes "gelu" with tanh, unlike other programs.
_CONFIG_ACTIVATIONS = {"gelu": "gelu_new", "relu": "relu"}
_SILENT = "does not say whether the model lowers case"
_LOWER = re.compile(r"(^|_)(uncased|multilingual|chinese)_L-")
_CASED = re.compile(r"(^|_)cased_L-")


def import_google(
    root: Path,
    dest: str,
    origin: Mapping[str, str],
    checkpoint: str | None,
    lower_case: bool | None,
    activation: str | None,
) -> Bundle:
    """Imports `bert_config.json`, `vocab.txt` and a checkpoint into a bundle at `dest`."""
    config = read_config(root / CONFIG, activation)
    tensors = read_checkpoint(root, find_checkpoint(root, checkpoint), config)
    vocabulary = _vocabulary(root / VOCABULARY, config, CONFIG)
    casing = casing_of(root) if lower_case is None else lower_case
    tokenizer = Tokenizer(vocabulary, casing, _MAX_WORD_CHARS)
    bundle = new_bundle(dest, config, names_pooling=False, **origin)
    return write_bundle(bundle, tensors, tokenizer)


def read_config(path: Path, activation: str | None = None) -> BertConfig:
    """Reads a `bert_config.json`, where "gelu" means the tanh form, or raises InputError."""
    values: dict[str, Any] = read_object(path)
    hidden_act = values.get("hidden_act", "gelu")
    supported = isinstance(hidden_act, str) and hidden_act in _CONFIG_ACTIVATIONS
    if activation is None and not supported:
        raise InputError(f"{path}: hidden_act must be gelu or relu, got {hidden_act!r}")
    values = {"model_type": "bert", **values, "hidden_act": "gelu"}
    try:
        config = config_from_huggingface(values)
    except ValueError as error:
        raise InputError(str(error).replace("config.json", str(path))) from error
    if not isinstance(config, BertConfig):
        family = config.model_types[values["model_type"]]
        raise InputError(f"{path}: must be of a BERT encoder, is of {family}")
    FileSettings(path, config.unknown_settings(values)).refuse_unknown({"do_lower_case"})
    return replace(config, hidden_act=activation or _CONFIG_ACTIVATIONS[hidden_act])


def casing_of(folder: Path) -> bool:
    """Returns whether the model is uncased.

    By `do_lower_case` of its files, as transformers writes it, or by a folder's name like
    "uncased_L-12_H-768_A-12"; InputError if they differ.
    """
    name = folder.name
    casing = True if _LOWER.search(name) else False if _CASED.search(name) else None
    for path in (folder / CONFIG, folder / SLOW):
        values = optional_object(path)
        said = values.get("do_lower_case")
        for setting, usual in (("strip_accents", said), ("tokenize_chinese_chars", True)):
            if values.get(setting) not in (None, usual):
                raise values.unknown(setting, values[setting])
        if said is not None and (type(said) is not bool or casing not in (None, said)):
            raise _no_casing(
                f"{path}: do_lower_case is {said!r}, but the folder's name or another file says "
                "otherwise"
            )
        casing = casing if said is None else said
    if casing is None:
        raise _no_casing(f"{folder}: the name {_SILENT}")
    return casing


def _no_casing(said: str) -> InputError:
    """The error of a source that does not say whether the model is uncased, or in two ways."""
    how = "import the model with `model import SOURCE DEST` and lower_case or cased"
    return InputError(f"{said}; {how}", "lower_case", "cased")


def _vocabulary(path: Path, config: BertConfig, source: str) -> list[str]:
    """Reads as many entries as `config` from file `source` says, or fewer if it is padded."""
    rows = config.vocab_size
    vocabulary = [entry.strip() for entry in read_entries(path, rows)]
    padding = rows - len(vocabulary)
    if padding and not (rows % _PADDED == 0 and 0 < padding < _PADDED):
        raise InputError(
            f"{path}: must have {rows} entries as {source} says, has {len(vocabulary)}"
        )
    return vocabulary


def find_checkpoint(folder: Path, name: str | None) -> str:
    """Returns the prefix of the checkpoint's files: that of `name`, or of the latest one."""
    names = sorted(path.name.removesuffix(".index") for path in folder.glob("*.index"))
    if name is not None:
        chosen = name.removesuffix(".index")
    elif _USUAL in names:
        chosen = _USUAL
    elif len(names) == 1:
        chosen = names[0]
    else:
        state = folder / "checkpoint"
        text = state.read_text("utf-8", errors="replace") if state.is_file() else ""
        # TensorFlow escapes letters in the names of folders, which are not needed.
        match = re.search(r'^model_checkpoint_path: "(?:.*/)?([^"/]*)"$', text, re.MULTILINE)
        chosen = match[1] if match else ""
    if chosen not in names:
        listed = ", ".join(names) or "none"
        raise SettingError(
            "checkpoint", f"must be one of {listed} in {folder}, got {chosen or 'none'}"
        )
    if not list(folder.glob(f"{chosen}.data-*-of-*")):
        raise InputError(f"{folder}: the checkpoint's file {chosen}.data-00000-of-00001 is missing")
    return str(folder / chosen)


def read_checkpoint(folder: Path, prefix: str, config: BertConfig) -> dict[str, np.ndarray]:
    """Reads the encoder's weights in the names and shapes of `tensor_shapes`."""
    with requires(f"the checkpoint {prefix}", "tensorflow"):
        import tensorflow as tf

    try:
        reader = tf.train.load_checkpoint(prefix)
        shapes = reader.get_variable_to_shape_map()
        if _OBJECTS in shapes:
            raise InputError(
                f"{prefix}: is a checkpoint of TensorFlow 2, only those of TensorFlow 1 are read; "
                "take google-research's, or the SavedModel of the same encoder from TF Hub"
            )
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


_VALUE = "VARIABLE_VALUE"
_OTHER_EXPORT = "take version 3 or later of the model, or the checkpoint that it was made from"


def _read_variables(
    root: Path, nodes: Any, functions: Iterable[Any]
) -> tuple[dict[str, np.ndarray], bool | None]:
    """Returns the variables that functions read, by name, and `do_lower_case`, None without one."""
    import tensorflow as tf

    used = sorted({node for function in functions for node in function.bound_inputs})
    names = {nodes[node].variable.name for node in used} - {""}
    try:
        reader = tf.train.load_checkpoint(str(root / "variables" / "variables"))
        keys = _keys(reader.get_tensor(_OBJECTS))
        variables = {name: reader.get_tensor(keys[name]) for name in names}
        key = f"do_lower_case/.ATTRIBUTES/{_VALUE}"
        return variables, bool(reader.get_tensor(key)) if reader.has_tensor(key) else None
    except (OSError, ValueError, KeyError, IndexError, RuntimeError, tf.errors.OpError) as error:
        raise refusal(error, f"{root}: the variables cannot be read, perhaps cut") from error


def _parsed(root: Path) -> Any:
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    if (root / TF1_HUB).is_file():
        raise InputError(f"{root}: is a TensorFlow 1 hub.Module, {_OTHER_EXPORT}")
    saved = saved_model_pb2.SavedModel()
    try:
        saved.ParseFromString((root / SAVED_MODEL).read_bytes())
    except OSError as error:
        message = f"{root}: {SAVED_MODEL} cannot be read: {error.strerror}"
        raise refusal(error, message) from error
    except DecodeError as error:
        raise InputError(f"{root}: {SAVED_MODEL} cannot be read, perhaps cut") from error
    if len(saved.meta_graphs) != 1 or not saved.meta_graphs[0].object_graph_def.nodes:
        raise InputError(f"{root}: is a SavedModel of TensorFlow 1, {_OTHER_EXPORT}")
    return saved.meta_graphs[0]


def _keys(serialized: bytes) -> dict[str, str]:
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    objects = trackable_object_graph_pb2.TrackableObjectGraph.FromString(serialized)
    return {
        attribute.full_name: attribute.checkpoint_key
        for node in objects.nodes
        for attribute in node.attributes
        if attribute.name == _VALUE
    }


def _operations(library: Iterable[Any], call: Iterable[str]) -> set[str]:
    functions = {function.signature.name: function for function in library}
    operations: set[str] = set()
    todo, reached = list(call), set[str]()
    while todo:
        name = todo.pop()
        if name in functions and name not in reached:
            reached.add(name)
            for node in functions[name].node_def:
                operations.add(node.op)
                todo += [node.op, *(value.func.name for value in node.attr.values())]
    return operations


def _find_vocabulary(root: Path, asset: str | None) -> Path:
    """Returns the file with the WordPiece vocabulary: an asset of the graph, or the usual one."""
    usual = root / "assets" / "vocab.txt"
    if asset is not None:
        vocabulary = inside(root, f"assets/{asset}")
        if not vocabulary.resolve().is_relative_to(root.resolve()):
            raise InputError(f"{root}: its vocabulary {vocabulary} lies outside of the model")
        return vocabulary
    if usual.is_file():
        return usual
    raise InputError(
        f"{root}: has no vocabulary, put the model's vocab.txt into its folder {root / 'assets'}"
    )


# What a graph computes with each activation and with no other; its pooler has a Tanh, too.
_GRAPH_ACTIVATIONS = {"gelu": {"Erf", "Erfc"}, "gelu_new": {"Pow"}, "relu": {"Relu"}}
_LAYER = re.compile(r"transformer/layer_(\d+)/")


def import_tfhub(
    root: Path, dest: str, origin: Mapping[str, str], lower_case: bool | None
) -> Bundle:
    """Imports a SavedModel by its variables' tf-models-official names; its graph does not run."""
    with requires(f"the SavedModel {root}", "tensorflow"):
        graph = _parsed(root)
    objects = graph.object_graph_def
    attributes = {child.local_name: child.node_id for child in objects.nodes[0].children}
    if "__call__" not in attributes:
        raise InputError(f"{root}: is not a BERT encoder of TF Hub, it cannot be called")
    call = objects.nodes[attributes["__call__"]].function.concrete_functions
    functions = [objects.concrete_functions[name] for name in call]
    variables, lowers = _read_variables(root, objects.nodes, functions)
    fields = (function.output_signature.dict_value.fields for function in functions)
    operations = _operations(graph.graph_def.library.function, call)
    try:
        if not any("sequence_output" in names for names in fields):
            raise InputError("it returns no sequence_output")
        config, tensors = _encoder_tensors(variables, operations)
    except InputError as error:
        raise InputError(
            f"{root}: is not a BERT encoder of TF Hub or tf-models: {error}"
        ) from error
    asset = None
    if "vocab_file" in attributes:
        number = objects.nodes[attributes["vocab_file"]].asset.asset_file_def_index
        asset = graph.asset_file_def[number].filename
    vocabulary = _vocabulary(_find_vocabulary(root, asset), config, "the SavedModel")
    uncased = lowers if lower_case is None else lower_case
    if uncased is None:
        raise _no_casing(f"{root}: {_SILENT}")
    tokenizer = Tokenizer(vocabulary, uncased, _MAX_WORD_CHARS)
    bundle = new_bundle(dest, config, names_pooling=False, **origin)
    return write_bundle(bundle, tensors, tokenizer)


def _encoder_tensors(
    named: Mapping[str, np.ndarray], operations: set[str]
) -> tuple[BertConfig, dict[str, np.ndarray]]:
    """Returns sizes, from the shapes, and weights, in the names and shapes of `tensor_shapes`.

    The activation is from the graph's operations; attention kernels are `[hidden, heads, head
    width]`.
    """
    word = official_name("embeddings/word")
    scopes = [name.removesuffix(word) for name in named if name.endswith(word)]
    if not scopes:
        raise InputError(f"it has no variable {word}")
    variables = {name.removeprefix(scopes[0]): array for name, array in named.items()}
    shapes = {name: array.shape for name, array in variables.items()}
    used = [name for name, of_name in _GRAPH_ACTIVATIONS.items() if of_name & operations]
    if len(used) != 1:
        which = " and ".join(used) or "none"
        raise InputError(f"its graph computes {which} of gelu, gelu_new and relu")
    config = _config(shapes, used[0])
    wanted = tensor_shapes(config, official_name("pooler/kernel") in variables)
    sizes = {official_name(name): [math.prod(shape)] for name, shape in wanted.items()}
    check_shapes("its variables", {name: [math.prod(shapes[name])] for name in shapes}, sizes)
    return config, {
        name: variables[official_name(name)].reshape(shape).astype(np.float32)
        for name, shape in wanted.items()
    }


def _config(shapes: Mapping[str, tuple[int, ...]], activation: str) -> BertConfig:
    layers = {match[1] for name in shapes if (match := _LAYER.match(name))}
    query, inner = (official_name(f"layers/0/{name}/kernel") for name in ("query", "intermediate"))
    try:
        vocab_size, hidden = shapes[official_name("embeddings/word")]
        _, heads, _ = shapes[query]
        return BertConfig(
            vocab_size=vocab_size,
            hidden_size=hidden,
            num_hidden_layers=len(layers),
            num_attention_heads=heads,
            intermediate_size=shapes[inner][1],
            max_position_embeddings=shapes[official_name("embeddings/position")][0],
            hidden_act=activation,
            type_vocab_size=shapes[official_name("embeddings/type")][0],
        )
    except KeyError as error:
        raise InputError(f"it has no variable {error.args[0]}") from error
    except (ValueError, IndexError) as error:
        raise InputError(f"its variables have other shapes: {error}") from error
