"""Saves an encoder as a SavedModel with the interface of TF Hub's encoders."""

from collections.abc import Sequence

import tensorflow as tf

from bert_embed.backends.tensorflow.model import Encoder

_INPUTS = {
    name: tf.TensorSpec([None, None], tf.int32, name=name)
    for name in ("input_word_ids", "input_mask", "input_type_ids")
}


class HubEncoder(tf.Module):
    """The object that `hub.KerasLayer`, `hub.load` and `tf.saved_model.load` return.

    A call takes a dict of int32 `[batch, length]`: `input_word_ids`, `input_mask` and
    `input_type_ids`. It returns a dict: `sequence_output` float32 `[batch, length, hidden]`,
    `encoder_outputs` a list of the same for every layer, and, where the model has a pooler,
    `pooled_output` and `default`, both float32 `[batch, hidden]`.
    """

    # hub.KerasLayer reads these attributes; the properties of tf.Module would not be saved.
    variables: Sequence[tf.Variable] = ()
    trainable_variables: Sequence[tf.Variable] = ()

    def __init__(self, encoder: Encoder) -> None:
        super().__init__(name="bert_encoder")
        self.encoder = encoder
        self.variables, self.trainable_variables = list(encoder.variables), list(encoder.variables)

    @tf.function(input_signature=[_INPUTS], autograph=False)
    def __call__(self, inputs):
        states = self.encoder.hidden_states(
            inputs["input_word_ids"], inputs["input_mask"], inputs["input_type_ids"]
        )
        outputs = {"sequence_output": states[-1], "encoder_outputs": states[1:]}
        if self.encoder.has_pooler:
            pooled = self.encoder.call("pooler", states[-1][:, 0], inputs["input_mask"])
            outputs |= {"pooled_output": pooled, "default": pooled}
        return outputs

    @tf.function(input_signature=[_INPUTS], autograph=False)
    def serve(self, inputs):
        """Returns the same with flat names, as a serving signature requires."""
        outputs = dict(self(inputs))
        layers = outputs.pop("encoder_outputs")
        return outputs | {f"encoder_outputs_{i}": layer for i, layer in enumerate(layers)}


def save(encoder: Encoder, folder: str) -> None:
    """Writes the SavedModel into `folder`."""
    module = HubEncoder(encoder)
    tf.saved_model.save(module, folder, signatures=module.serve)
