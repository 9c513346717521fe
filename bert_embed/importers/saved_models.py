"""Reads variables, vocabulary and operations of a SavedModel; its graph, a program, never runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.bundle.files import SAVED_MODEL, TF1_HUB
from bert_embed.importers.json_files import inside
from bert_embed.storage.errors import InputError
from bert_embed.storage.packages import requires

_VALUE = "VARIABLE_VALUE"
_OBJECTS = "_CHECKPOINTABLE_OBJECT_GRAPH"
_OTHER_EXPORT = "take version 3 or later of the model, or the checkpoint that it was made from"


@dataclass(frozen=True)
class SavedModel:
    """What the files of a TensorFlow 2 SavedModel say."""

    root: Path
    variables: Mapping[str, np.ndarray]  # arrays that its call reads, by name; none of heads
    outputs: frozenset[str]  # names of what its call returns
    operations: frozenset[str]  # names of those of its call
    vocabulary: str | None  # `vocab_file`, relative to `root`; None without one
    has_pieces: bool  # whether it names a SentencePiece model
    lower_case: bool | None  # its `do_lower_case`; None without one


def read_saved_model(root: Path) -> SavedModel:
    """Reads a TensorFlow 2 SavedModel."""
    with requires(f"the SavedModel {root}", "tensorflow"):
        import tensorflow as tf

    graph = _parsed(root)
    objects = graph.object_graph_def
    attributes = {child.local_name: child.node_id for child in objects.nodes[0].children}
    if "__call__" not in attributes:
        raise InputError(f"{root}: is not a BERT encoder of TF Hub, it cannot be called")
    call = objects.nodes[attributes["__call__"]].function.concrete_functions
    functions = [objects.concrete_functions[name] for name in call]
    used = sorted({node for function in functions for node in function.bound_inputs})
    names = {objects.nodes[node].variable.name for node in used} - {""}
    try:
        reader = tf.train.load_checkpoint(str(root / "variables" / "variables"))
        keys = _keys(reader.get_tensor(_OBJECTS))
        variables = {name: reader.get_tensor(keys[name]) for name in names}
        key = f"do_lower_case/.ATTRIBUTES/{_VALUE}"
        lower_case = bool(reader.get_tensor(key)) if reader.has_tensor(key) else None
    except (OSError, ValueError, KeyError, IndexError, RuntimeError, tf.errors.OpError) as error:
        raise InputError(f"{root}: the variables cannot be read, perhaps cut") from error
    vocabulary = None
    if "vocab_file" in attributes:
        asset = objects.nodes[attributes["vocab_file"]].asset.asset_file_def_index
        vocabulary = f"assets/{graph.asset_file_def[asset].filename}"
    return SavedModel(
        root=root,
        variables=variables,
        outputs=frozenset(
            name for function in functions for name in function.output_signature.dict_value.fields
        ),
        operations=_operations(graph.graph_def.library.function, call),
        vocabulary=vocabulary,
        has_pieces="sp_model_file" in attributes,
        lower_case=lower_case,
    )


def _parsed(root: Path) -> Any:
    """Returns the message MetaGraphDef of a SavedModel of TensorFlow 2."""
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    if (root / TF1_HUB).is_file():
        raise InputError(f"{root}: is a TensorFlow 1 hub.Module, {_OTHER_EXPORT}")
    saved = saved_model_pb2.SavedModel()
    try:
        saved.ParseFromString((root / SAVED_MODEL).read_bytes())
    except OSError as error:
        raise InputError(f"{root}: {SAVED_MODEL} cannot be read: {error.strerror}") from error
    except DecodeError as error:
        raise InputError(f"{root}: {SAVED_MODEL} cannot be read, perhaps cut") from error
    if len(saved.meta_graphs) != 1 or not saved.meta_graphs[0].object_graph_def.nodes:
        raise InputError(f"{root}: is a SavedModel of TensorFlow 1, {_OTHER_EXPORT}")
    return saved.meta_graphs[0]


def _keys(serialized: bytes) -> dict[str, str]:
    """Returns the checkpoint's key of each variable by the variable's name."""
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    objects = trackable_object_graph_pb2.TrackableObjectGraph.FromString(serialized)
    return {
        attribute.full_name: attribute.checkpoint_key
        for node in objects.nodes
        for attribute in node.attributes
        if attribute.name == _VALUE
    }


def _operations(library: Iterable[Any], call: Iterable[str]) -> frozenset[str]:
    """Returns the operations of some functions, and of those that they call."""
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
    return frozenset(operations)


def find_vocabulary(saved: SavedModel) -> Path:
    """Returns the file with the WordPiece vocabulary."""
    root, usual = saved.root, saved.root / "assets" / "vocab.txt"
    if saved.vocabulary is not None:
        vocabulary = inside(root, saved.vocabulary)
        if not vocabulary.resolve().is_relative_to(root.resolve()):
            raise InputError(f"{root}: its vocabulary {vocabulary} lies outside of the model")
        return vocabulary
    if saved.has_pieces or list((root / "assets").glob("*.model")):
        raise InputError(
            f"{root}: has a sentencepiece vocabulary, which BERT models do not have; its models "
            "(ALBERT, XLNet) are not supported"
        )
    if usual.is_file():
        return usual
    raise InputError(
        f"{root}: has no vocabulary, put the model's vocab.txt into its folder {root / 'assets'}"
    )
