"""Models as google-research and TF Hub have them: checkpoints of TF1, SavedModels of both."""

import functools
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.support.models.tiny import write_tiny_huggingface


def write_tiny_google(
    folder: Path,
    *,
    checkpoint: str = "bert_model.ckpt",
    changes: Mapping[str, np.ndarray | None] | None = None,
    hidden_act: str = "gelu",
    **model: Any,
) -> dict[str, np.ndarray]:
    """Writes bert_config.json, vocab.txt and a checkpoint; the same weights lie as a Hugging Face
    folder in `huggingface` beside it.

    Args:
        folder: Made if it is not there.
        checkpoint: Name of the checkpoint's files.
        changes: Further variables, such as Adam's; None leaves one out.
        hidden_act: As bert_config.json says it; the other folder says what that means.
        **model: For `write_tiny_huggingface`.

    Returns:
        The variables of the encoder, by google-research's names.
    """
    twin = folder.parent / "huggingface"
    meant = {"gelu": "gelu_new"}.get(hidden_act, hidden_act)
    tensors = write_tiny_huggingface(twin, hidden_act=meant, **model)
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(twin / "vocab.txt", folder)
    config = json.loads((twin / "config.json").read_text())
    for name in ("model_type", "layer_norm_eps"):
        del config[name]
    (folder / "bert_config.json").write_text(json.dumps(config | {"hidden_act": hidden_act}))
    variables = dict(_variable(name, array) for name, array in tensors.items())
    every = {**variables, **(changes or {})}
    kept = {name: tf.constant(array) for name, array in every.items() if array is not None}
    path, slices = str(folder / checkpoint), [""] * len(kept)
    tf.raw_ops.SaveV2(
        prefix=path, tensor_names=[*kept], shape_and_slices=slices, tensors=[*kept.values()]
    )
    tf.compat.v1.train.update_checkpoint_state(str(folder), path)
    return variables


def _variable(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    place = name.replace("encoder.layer.", "encoder.layer_").replace(".", "/")
    stem, _, kind = place.rpartition("/")
    return _of_tensorflow(f"bert/{stem}", kind, array)


def _of_tensorflow(stem: str, kind: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    if stem.endswith("embeddings"):
        return stem, array
    names = ("gamma", "beta") if stem.lower().endswith("norm") else ("kernel", "bias")
    return f"{stem}/{names[kind != 'weight']}", array.T


_HEADS = 4  # of `write_tiny_huggingface`
_ACTIVATIONS = {
    "gelu": lambda x: tf.nn.gelu(x, approximate=False),
    "gelu_new": lambda x: tf.nn.gelu(x, approximate=True),
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
}


def write_tiny_hub(folder: Path, **settings: Any) -> None:
    """Writes the files of `_written`, which a process makes once for the same settings."""
    made = _written(**settings)
    shutil.copytree(made / "hub", folder)
    shutil.copytree(made / "huggingface", folder.parent / "huggingface", dirs_exist_ok=True)


@functools.cache
def _written(
    *,
    official: bool = True,
    scope: str = "",
    lower_case: bool | None = True,
    vocabulary: bool = True,
    beside: Callable[[tf.Tensor], tf.Tensor] | None = None,
    hidden_act: str = "gelu_new",
    **model: Any,
) -> Path:
    """Writes a SavedModel into a folder `hub`, and its weights as a Hugging Face folder beside it.

    Args:
        official: Whether the variables have the names of tf-models-official.
        scope: Put before every variable's name, such as "bert_encoder_v2/".
        lower_case: The attribute `do_lower_case`; None writes none.
        vocabulary: Whether vocab.txt is among the assets, by the attribute `vocab_file`.
        beside: What another function of the SavedModel computes; None adds no function.
        hidden_act: What the feed-forward layers compute.
        **model: For `write_tiny_huggingface`.

    Returns:
        The folder that holds both.
    """
    made = Path(tempfile.mkdtemp())
    twin = made / "huggingface"
    tensors = write_tiny_huggingface(twin, hidden_act=hidden_act, **model)
    arrays = dict(_official(name, array) for name, array in tensors.items())
    names = [scope + (name if official else f"v{n}") for n, name in enumerate(arrays)]
    named = dict(zip(names, arrays.values(), strict=True))
    encoder = _encoder(named, hidden_act, "pooler_transform/kernel" in arrays)
    if vocabulary:
        encoder.vocab_file = tf.saved_model.Asset(str(twin / "vocab.txt"))
    if beside is not None:
        encoder.beside = tf.function(beside, [tf.TensorSpec([None], tf.float32)])
    if lower_case is not None:
        encoder.do_lower_case = tf.Variable(lower_case, trainable=False)
    tf.saved_model.save(encoder, str(made / "hub"))
    return made


def _encoder(arrays: Mapping[str, np.ndarray], hidden_act: str, pooler: bool) -> tf.Module:
    """What is read of TF Hub's encoders: their variables, and the outputs and operations of a call.

    Nothing runs it, so it computes no BERT.
    """
    encoder = tf.Module()
    encoder.w = [tf.Variable(array, name=name) for name, array in arrays.items()]

    def call(inputs):
        read = [variable.read_value() for variable in encoder.w]
        x = _ACTIVATIONS[hidden_act](tf.gather(read[0], inputs["input_word_ids"]))
        if not pooler:
            return {"sequence_output": x}
        pooled = tf.tanh(x[:, 0])
        return {"sequence_output": x, "pooled_output": pooled, "default": pooled}

    names = ("input_word_ids", "input_mask", "input_type_ids")
    inputs = {name: tf.TensorSpec([None, None], tf.int32, name=name) for name in names}
    encoder.__call__ = tf.function(call, [inputs])
    return encoder


def _official(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    """A Hugging Face tensor's name and array as tf-models-official has them.

    Kernels of attention keep heads apart, as the exporter of TF Hub's encoders has them.
    """
    stem, _, kind = name.rpartition(".")
    for theirs, ours in (
        ("embeddings.word_embeddings", "word_embeddings/embeddings"),
        ("embeddings.position_embeddings", "position_embedding/embeddings"),
        ("embeddings.token_type_embeddings", "type_embeddings/embeddings"),
        ("encoder.layer.", "transformer/layer_"),
        (".attention.self.", "/self_attention/"),
        (".attention.output.dense", "/self_attention/attention_output"),
        (".attention.output.LayerNorm", "/self_attention_layer_norm"),
        (".intermediate.dense", "/intermediate"),
        (".output.dense", "/output"),
        (".output.LayerNorm", "/output_layer_norm"),
        ("embeddings.LayerNorm", "embeddings/layer_norm"),
        ("pooler.dense", "pooler_transform"),
    ):
        stem = stem.replace(theirs, ours)
    name, array = _of_tensorflow(stem, kind, array)
    if stem.endswith(("/query", "/key", "/value")):
        array = array.reshape(*array.shape[:-1], _HEADS, -1)
    elif stem.endswith("/attention_output") and kind == "weight":
        array = array.reshape(_HEADS, -1, array.shape[-1])
    return name, np.ascontiguousarray(array)
