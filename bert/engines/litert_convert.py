"""Converts bundles to LiteRT models with int8 weights, once a machine, and keeps the files."""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

from bert.bundle.apart import call_apart
from bert.bundle.bundle import Bundle
from bert.bundle.cache import cache_folder, made_once
from bert.graph.load import load_encoder
from bert.specs import OutputSpec, VectorSpec
from storage.errors import InputError

FORMAT = 1  # increased when files of an older version would give other vectors


@dataclass(frozen=True)
class Request:
    """The outputs of a LiteRT model.

    Attributes:
        spec: How vectors are computed.
        output_spec: Which vectors; None for a model that only finishes pooled vectors.
        prompt_tokens: Number of tokens of the prompt after each [CLS].
        special_ids: Ids of [CLS] and [SEP].
    """

    spec: VectorSpec
    output_spec: OutputSpec | None
    prompt_tokens: int
    special_ids: tuple[int, int]

    def to_json(self) -> str:
        """Returns the request as JSON, the same text for the same request."""
        output_spec = None if self.output_spec is None else asdict(self.output_spec)
        parts = [self.spec.to_dict(), output_spec, self.prompt_tokens, self.special_ids]
        return json.dumps(parts, sort_keys=True)


def litert_file(bundle: Bundle, request: Request) -> Path:
    """Returns the file of the LiteRT model, which is converted if the cache does not hold it.

    The first process of a machine converts it, in a separate process and some ten seconds; the
    others wait. The file is kept in `$BERT_EMBED_CACHE`, else `~/.cache/bert-embed`.

    Raises:
        InputError: The model's files are damaged, or the cache cannot be written.
        RuntimeError: The conversion failed.
    """
    key_parts = [FORMAT, _tensorflow_version(), bundle.fingerprint, request.to_json()]
    key = hashlib.sha256(json.dumps(key_parts).encode()).hexdigest()[:32]
    kept = cache_folder() / "int8" / f"{key}.tflite"
    try:
        what = f"{bundle.path}: the conversion to int8"
        convert = f"{__name__}:write_converted"
        made_once(kept, kept.exists, lambda: call_apart(what, convert, bundle, request, kept))
    except OSError as error:
        raise InputError(
            f"{kept.parent}: int8 models cannot be kept there ({error.strerror}), set "
            "BERT_EMBED_CACHE to a folder that can be written"
        ) from error
    return kept


def write_converted(bundle: Bundle, request: Request, dest: Path) -> None:
    """Writes what `convert` returns to a file, which appears whole."""
    unfinished = dest.with_name(f"{dest.name}.{os.getpid()}")
    unfinished.write_bytes(convert(bundle, request))
    unfinished.replace(dest)


def convert(bundle: Bundle, request: Request) -> bytes:
    """Converts a model by dynamic-range quantization.

    Weights are int8 with a scale for each output of a product. Activations become int8 when the
    model runs, with a scale for each token, so a vector depends only on its own row. All but the
    products is float32. No calibration is necessary.

    Raises:
        InputError: The model's files are damaged.
    """
    import tensorflow as tf

    encoder = load_encoder(bundle)
    encoder.suit_litert()
    function = _function(encoder, request)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([function], encoder)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    return converter.convert()


def _function(encoder: Any, request: Request) -> Any:
    import tensorflow as tf

    from bert.graph.pooling import finish, model_outputs

    spec, output_spec, ids = (
        request.spec,
        request.output_spec,
        tf.TensorSpec([None, None], tf.int32),
    )
    if output_spec is not None:

        @tf.function(input_signature=[ids, ids], autograph=False)
        def outputs(input_ids: tf.Tensor, type_ids: tf.Tensor) -> dict[str, tf.Tensor]:
            rest = type_ids, request.special_ids, request.prompt_tokens
            return model_outputs(encoder, spec, output_spec, input_ids, None, *rest)

        return outputs.get_concrete_function()
    layers = len(spec.layers) if spec.layer_combine == "stack" else 1
    width = layers * spec.pooled_width(encoder.config)

    @tf.function(input_signature=[tf.TensorSpec([None, width], tf.float32)], autograph=False)
    def finished(pooled: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"sentences": finish(encoder, spec, pooled)}

    return finished.get_concrete_function()


def _tensorflow_version() -> str:
    """Returns the version of TensorFlow, also of its other packages (-cpu, tf-nightly, …)."""
    try:
        return version("tensorflow")
    except PackageNotFoundError:
        names = packages_distributions().get("tensorflow", ())  # reads the lists of all packages
        return " ".join(f"{name} {version(name)}" for name in sorted(set(names)))
