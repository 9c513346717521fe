"""Small google-research folders, written by TensorFlow 1's own Saver from known tensors."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tests.support.models.tiny import write_tiny_huggingface


def write_tiny_google(
    folder: Path,
    *,
    checkpoint: str = "bert_model.ckpt",
    extra: Mapping[str, np.ndarray] | None = None,
    without: str = "",
    hidden_act: str = "gelu",
    **model: Any,
) -> dict[str, np.ndarray]:
    """Writes bert_config.json, vocab.txt and a checkpoint; the same weights lie as a Hugging Face
    folder in `huggingface` beside it.

    Args:
        folder: Made if it is not there.
        checkpoint: Name of the checkpoint's files.
        extra: Further variables, such as Adam's.
        without: A variable that is left out.
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
    variables.pop(without, None)
    _save({**variables, **(extra or {})}, folder / checkpoint)
    return variables


def _variable(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    place = name.replace("encoder.layer.", "encoder.layer_").replace(".", "/")
    stem, _, kind = place.rpartition("/")
    if stem.endswith("embeddings"):
        return f"bert/{stem}", array
    if stem.endswith("LayerNorm"):
        return f"bert/{stem}/{'gamma' if kind == 'weight' else 'beta'}", array
    if kind == "weight":
        return f"bert/{stem}/kernel", array.T
    return f"bert/{stem}/bias", array


def _save(arrays: Mapping[str, np.ndarray], prefix: Path) -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [
            tf.compat.v1.get_variable(name, initializer=np.ascontiguousarray(array))
            for name, array in arrays.items()
        ]
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(variables)
        saver.save(session, str(prefix), write_meta_graph=False)
