"""BERT without Beam: tokenizer, encoder, model bundles. Importing it loads no TensorFlow."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bert.encoder import Encoder

__version__ = "0.1.0"

_LAZY = {
    "Encoder": "bert.encoder",
    "Tokenizer": "bert.tokenizer",
    "read": "bert.results",
    "read_spans": "bert.results",
    "read_tokens": "bert.results",
    "read_words": "bert.results",
}


def load(
    model: str = "minilm",
    threads: int | None = None,
    prompt: str | None = None,
    precision: str = "float32",
    device: str = "auto",
    **spec: Any,
) -> "Encoder":
    """Loads a model that turns texts into vectors.

    Args:
        model: "minilm", a bundle, a model's folder or `.tar.gz`, local or gs://, or a handle of
            TF Hub.
        threads: Processor cores to use; None takes all that this process may use.
        prompt: What stands before each text, or `name:` and the name of one of the model's prompts;
            None is the model's default, "" none.
        precision: What the products are computed in: "float32", "int8" on processors, "bfloat16"
            where the processor has it and on GPUs and TPUs, "float16" on GPUs.
        device: "cpu", "gpu", "tpu", or "auto": a GPU if TensorFlow sees one, else the processor.
            On a GPU or TPU the first call takes about a minute: it compiles.
        **spec: What to change of the model's own settings: `layers`, `layer_combine`, `pooling`,
            `pool_special_tokens`, `pool_prompt`, `dense`, `normalize`, `dim` (see
            `bert.vector_spec.VectorSpec`).

    Raises:
        ValueError: No such model, or it cannot give such vectors.
    """
    from bert.encoder import Encoder, spec_with
    from bert.resolve import resolve_model

    bundle = resolve_model(model)
    return Encoder(bundle, spec_with(bundle.defaults, **spec), threads, prompt, precision, device)


def __dir__() -> list[str]:
    return sorted([*_LAZY, "__version__", "load"])


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'bert' has no attribute {name!r}")
