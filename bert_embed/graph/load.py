"""Loads a bundle's weights."""

from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.bundle.bundle import AGAIN, Bundle
from bert_embed.bundle.files import WEIGHTS
from bert_embed.graph.litert_model import read_tensors
from bert_embed.storage.errors import InputError


def load_encoder(bundle: Bundle) -> Any:
    """Returns the model with its weights, an `Encoder`; InputError if they are damaged."""
    from bert_embed.graph.model import Encoder  # imports TensorFlow: 5 s

    return Encoder(bundle.config, load_tensors(bundle), bundle.has_pooler, bundle.heads)


def load_tensors(bundle: Bundle) -> dict[str, np.ndarray]:
    """Returns the float32 weights in the names and shapes of `Bundle.tensor_shapes`."""
    bundle.verify_files([WEIGHTS])
    tensors = read_tensors(Path(bundle.path, WEIGHTS))
    if {name: array.shape for name, array in tensors.items()} != bundle.tensor_shapes():
        raise InputError(f"{bundle.path}: {WEIGHTS} holds another encoder; {AGAIN}")
    return tensors
