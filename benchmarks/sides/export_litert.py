"""all-MiniLM-L6-v2 for LiteRT in float32: `python -m benchmarks.sides.export_litert FILE`.

The graph is that of our TensorFlow engine, with masks, as TensorFlow's converter converts it.
"""

import argparse
from pathlib import Path

import tensorflow as tf

from bert.bundle.find import resolve_model
from bert.graph.load import load_encoder, load_tokenizer
from bert.graph.pooling import model_outputs
from bert.specs import OutputSpec


def main() -> None:
    """Writes the model file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    bundle = resolve_model("minilm")
    encoder, tokenizer = load_encoder(bundle), load_tokenizer(bundle)
    for layer in encoder.layers:
        layer.activation = tf.nn.gelu  # LiteRT has a kernel for it, and none for erf
    special = tokenizer.cls_id, tokenizer.sep_id

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2, autograph=False)
    def vectors(ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        types = tf.zeros_like(ids)
        made = model_outputs(encoder, bundle.defaults, OutputSpec(), ids, mask, types, special)
        return made["sentences"]

    function = vectors.get_concrete_function()
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], encoder)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_bytes(converter.convert())


if __name__ == "__main__":
    main()
