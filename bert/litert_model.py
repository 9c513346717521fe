"""LiteRT models: a bundle in, a .tflite file with int8 weights out; once a machine, then kept."""

import hashlib
import json
import os
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bert.bundle import Bundle, read_bundle
from bert.cache import cache_folder, made_once, run_apart
from bert.engine import Wanted
from bert.vector_spec import VectorSpec

FORMAT = 1  # rises when a file of today would give other vectors


@dataclass(frozen=True)
class Request:
    """What a LiteRT model shall give.

    Attributes:
        spec: What a vector is made of.
        wanted: Which vectors; None for a model that only finishes pooled ones.
        prompt_tokens: Tokens of the prompt behind each [CLS].
        special_ids: Those of [CLS] and [SEP].
    """

    spec: VectorSpec
    wanted: Wanted | None
    prompt_tokens: int
    special_ids: tuple[int, int]

    def to_json(self) -> str:
        """Returns the request as JSON, the same text for the same request."""
        wanted = None if self.wanted is None else asdict(self.wanted)
        parts = [self.spec.to_dict(), wanted, self.prompt_tokens, self.special_ids]
        return json.dumps(parts, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Request":
        """Reads what `to_json` gave."""
        spec, wanted, prompt_tokens, special_ids = json.loads(text)
        return cls(
            VectorSpec.from_dict(spec),
            None if wanted is None else Wanted(**wanted),
            prompt_tokens,
            tuple(special_ids),
        )


def litert_file(bundle: Bundle, request: Request) -> Path:
    """Returns the file of the LiteRT model, made now if it is not there.

    The first process of a machine makes it, in a process of its own, in some ten seconds; the
    others wait. It is kept in `$BERT_EMBED_CACHE`, else `~/.cache/bert-embed`.

    Raises:
        ValueError: The model's files are damaged, or the cache cannot be written.
        RuntimeError: The conversion broke.
    """
    made_by = [FORMAT, version("tensorflow"), bundle.fingerprint, request.to_json()]
    key = hashlib.sha256(json.dumps(made_by).encode()).hexdigest()[:32]
    kept = cache_folder() / "int8" / f"{key}.tflite"
    try:
        arguments = [bundle.path, str(kept), request.to_json()]
        what = f"{bundle.path}: making it int8"
        made_once(kept, kept.exists, lambda: run_apart("bert.litert_model", arguments, what))
    except OSError as error:
        raise ValueError(
            f"{kept.parent}: int8 models cannot be kept there ({error.strerror}), set "
            "BERT_EMBED_CACHE to a folder that can be written"
        ) from error
    return kept


def convert(bundle: Bundle, request: Request) -> bytes:
    """Converts a model by dynamic-range quantization.

    Weights are int8 with a scale for each output of a product, activations are made int8 when the
    model runs, with a scale for each token: so a vector depends on its own row only. Everything
    but the products is float32. No calibration is needed.

    Raises:
        ValueError: The model's files are damaged.
    """
    import tensorflow as tf

    encoder = bundle.load_encoder()
    encoder.suit_litert()
    function = _function(encoder, request)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], encoder)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    return converter.convert()


def _function(encoder: Any, request: Request) -> Any:
    import tensorflow as tf

    from bert.pooling import finish, model_outputs

    spec, wanted, ids = request.spec, request.wanted, tf.TensorSpec([None, None], tf.int32)
    if wanted is not None:

        @tf.function(input_signature=[ids, ids], autograph=False)
        def outputs(input_ids: tf.Tensor, type_ids: tf.Tensor) -> dict[str, tf.Tensor]:
            rest = type_ids, request.special_ids, request.prompt_tokens
            return model_outputs(encoder, spec, wanted, input_ids, None, *rest)

        return outputs.get_concrete_function()
    layers = len(spec.layers) if spec.layer_combine == "stack" else 1
    width = layers * spec.pooled_width(encoder.config)

    @tf.function(input_signature=[tf.TensorSpec([None, width], tf.float32)], autograph=False)
    def finished(pooled: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"sentences": finish(encoder, spec, pooled)}

    return finished.get_concrete_function()


def main(arguments: list[str]) -> int:
    """Converts the bundle in a folder to a file, which appears whole."""
    folder, dest, request = arguments
    try:
        data = convert(read_bundle(folder), Request.from_json(request))
    except ValueError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    unfinished = Path(f"{dest}.{os.getpid()}")
    unfinished.write_bytes(data)
    unfinished.replace(dest)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
