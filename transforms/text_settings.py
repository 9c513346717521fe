"""Settings of a model in other people's pipelines: arguments in, what its handler needs out."""

import os
from dataclasses import dataclass
from typing import Any

from bert.encoder import spec_with
from bert.engine import check_model
from bert.resolve import resolve_model
from bert.text_spec import TextSpec
from bert.vector_spec import VectorSpec
from transforms.inference import BertModelHandler


@dataclass(frozen=True)
class TextModelSettings:
    """Which model, how it makes vectors, and where it runs.

    Attributes:
        model: As the caller named it.
        bundle: Folder of the model bundle; opened on workers only.
        fingerprint: The model's; a bundle that has another one is refused.
        spec: What a vector is.
        text_spec: How a text becomes rows of the model.
        precision: What the products are computed in, one of `bert.engine.PRECISIONS`.
        batch_tokens: Most tokens of a batch, filling included; None is what is fast.
        threads: Threads the model computes on; None for as many as the process may use.
        large_model: Whether the processes of a machine share one model.
        max_batch_seconds: How long a document may wait for others; None: it never waits for what
            comes after its bundle.
        device: What computes, one of `bert.engine.DEVICES`.
    """

    model: str
    bundle: str
    fingerprint: str
    spec: VectorSpec
    text_spec: TextSpec
    precision: str = "float32"
    batch_tokens: int | None = None
    threads: int | None = None
    large_model: bool = False
    max_batch_seconds: float | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        for name in ("batch_tokens", "threads"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        if self.max_batch_seconds is not None and not self.max_batch_seconds > 0:
            raise ValueError(f"max_batch_seconds must be over 0, got {self.max_batch_seconds}")

    def handler(self) -> BertModelHandler:
        """What loads the model and runs it over blocks of rows.

        A machine that does not see the bundle's folder finds the model by its name, as the
        caller's did: from Cloud Storage, or the packaged one.
        """
        found = os.path.isdir(self.bundle)
        return BertModelHandler(
            self.bundle if found else resolve_model(self.model).path,
            self.fingerprint,
            self.spec,
            self.text_spec,
            self.batch_tokens,
            self.threads,
            precision=self.precision,
            device=self.device,
        )


def text_model_settings(
    model: str,
    *,
    prompt: str | None = None,
    max_seq_length: int | None = None,
    long_text: str = "truncate",
    stride: int | None = None,
    precision: str = "float32",
    batch_tokens: int | None = None,
    threads: int | None = None,
    large_model: bool = False,
    max_batch_seconds: float | None = None,
    device: str = "auto",
    **vectors: Any,
) -> TextModelSettings:
    """Finds the model and checks all that can be checked without loading it.

    Args:
        model: "minilm", a bundle, a model's folder or `.tar.gz`, local or gs://, or a handle.
        prompt: What stands before every text, or `name:` and the name that the model gives it;
            None is the model's own, "" none.
        max_seq_length: Most tokens of a row, prompt and all; None is the model's own.
        long_text: What becomes of longer texts: "truncate" cuts them, "window" gives the mean over
            windows, "reject" refuses them.
        stride: Tokens that neighbouring windows share; None is 64, or half of a short window.
        precision: What the products are computed in, see `bert.engine.PRECISIONS`.
        batch_tokens: Most tokens that are computed at once; None is what is fast.
        threads: Processor cores the model uses; None takes all that a worker may use.
        large_model: Whether the worker processes of a machine share one model.
        max_batch_seconds: As `TextModelSettings`; bundles of streams are often one element.
        device: What computes, see `bert.engine.DEVICES`.
        **vectors: What to change of the model's own settings: `layers`, `layer_combine`,
            `pooling`, `pool_special_tokens`, `pool_prompt`, `dense`, `normalize`, `dim` (see
            `bert.vector_spec.VectorSpec`).

    Raises:
        ValueError: No such model, or it cannot give such vectors.
    """
    if vectors.get("layer_combine") == "stack":
        raise ValueError("layer_combine stack gives several vectors a text, take concat")
    bundle = resolve_model(model)
    spec = spec_with(bundle.defaults, **vectors)
    bundle.check(spec)
    check_model(precision, bundle, device)
    made = TextSpec(
        bundle.max_seq_length if max_seq_length is None else max_seq_length,
        long_text=long_text,
        stride=stride,
        prompt=bundle.prompt_text(prompt),
    )
    fitted = bundle.fit_texts(made)
    computing = precision, batch_tokens, threads, large_model, max_batch_seconds, device
    return TextModelSettings(model, bundle.path, bundle.fingerprint, spec, fitted, *computing)
