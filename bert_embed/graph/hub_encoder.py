"""Runs a SavedModel with TF Hub's interface for BERT encoders as it is."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from bert_embed.bundle.bundle import Bundle
from bert_embed.bundle.files import SAVED_MODEL, file_sha256
from bert_embed.bundle.safe_graph import check_graph
from bert_embed.config import BertConfig
from bert_embed.storage.errors import InputError


class SavedModelEncoder:
    """A `bert_embed.graph.model.BertEncoder` without the embeddings, layer 0.

    Attributes:
        config: Its sizes; heads and inner width, which a SavedModel does not say, are 1.
        has_pooler: Whether it returns a `pooled_output`.
    """

    def __init__(self, call: Callable[..., Any], config: BertConfig, has_pooler: bool) -> None:
        """Keeps the SavedModel, as `tf.saved_model.load` returns it."""
        self.config, self.has_pooler = config, has_pooler
        self._call = call
        self._last: tuple[Any, Any] = (None, None)

    def hidden_states(
        self,
        input_ids: tf.Tensor,
        mask: tf.Tensor,
        type_ids: tf.Tensor,
        highest: int | None = None,
    ) -> list[Any]:
        """Computes all layers; `highest` only limits those that are returned.

        Args:
            input_ids: int32 `[batch, length]`.
            mask: int32 `[batch, length]`, 1 for tokens, 0 for padding, which is at the end.
            type_ids: int32 `[batch, length]`, 0 for the first text, 1 for the second.
            highest: The last layer to return; None is all.

        Returns:
            None in place of the embeddings, then `highest` times float32
            `[batch, length, hidden]`; values at padded positions are undefined.
        """
        outputs = call_encoder(self._call, input_ids, mask, type_ids)
        layers = layer_outputs(outputs)
        pooled = tf.cast(outputs["pooled_output"], tf.float32) if self.has_pooler else None
        self._last = (layers[-1], pooled)
        return [None, *layers][: None if highest is None else highest + 1]

    def pooled(self, last: tf.Tensor) -> tf.Tensor:
        """Returns the pooler's output, float32 `[batch, hidden]`, of the call that gave `last`."""
        if not self.has_pooler:
            raise InputError("this model has no pooler")
        state, pooled = self._last
        if state is not last:
            raise InputError("pooled needs the last hidden state of the latest call")
        return pooled


def load_hub_encoder(bundle: Bundle) -> SavedModelEncoder:
    """Loads the SavedModel of a bundle whose kind is "saved_model".

    The graph is checked each time, because the folder may have changed since the import.

    Raises:
        InputError: It cannot be loaded, is not the graph that was imported, or is not trusted and
            holds operations that no encoder needs.
    """
    check_graph(Path(bundle.path), bundle.trusted)
    imported = bundle.files.get(SAVED_MODEL)
    if imported is not None and file_sha256(Path(bundle.path, SAVED_MODEL)) != imported:
        raise InputError(f"{bundle.path}: {SAVED_MODEL} is not the one that was imported")
    try:
        call = tf.saved_model.load(bundle.path)
    except (OSError, ValueError, IndexError, tf.errors.OpError) as error:
        raise InputError(f"{bundle.path}: the SavedModel cannot be loaded") from error
    return SavedModelEncoder(call, bundle.config, bundle.has_pooler)


def call_encoder(
    call: Callable[..., Any], input_ids: tf.Tensor, mask: tf.Tensor, type_ids: tf.Tensor
) -> Mapping[str, Any]:
    """Calls a SavedModel by TF Hub's names for int32 `[batch, length]`; returns its outputs."""
    inputs = {"input_word_ids": input_ids, "input_mask": mask, "input_type_ids": type_ids}
    return call({name: tf.cast(value, tf.int32) for name, value in inputs.items()})


def layer_outputs(outputs: Mapping[str, Any]) -> list[tf.Tensor]:
    """Returns the layers that a call returned, as float32 in order; at least the last one."""
    layers = list(outputs.get("encoder_outputs", ())) or [outputs["sequence_output"]]
    return [tf.cast(layer, tf.float32) for layer in layers]
