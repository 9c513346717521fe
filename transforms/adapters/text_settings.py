"""Checks the arguments of a model in other people's pipelines."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from bert_embed.arguments import known_names, path_text, seconds, switch, whole_number
from bert_embed.bundle.find import resolve_model
from bert_embed.bundle.prompts import document_prompt
from bert_embed.calls.settings import VectorSettings, changed_spec
from bert_embed.engines.choose import check_precision
from bert_embed.rows.fit import fit_texts
from bert_embed.specs import TextSpec, VectorSpec
from bert_embed.storage.errors import SettingError
from bert_embed.transforms.infer import BlockModelHandler

if TYPE_CHECKING:
    from bert_embed.embedder import Embedder

# What the transforms take themselves.
_OWN = (
    "model",
    "column",
    "output_column",
    "text_b_column",
    "max_batch_seconds",
    "as_numpy",
    "as_rows",
)
_OF_TEXTS = ("long_text", "stride", "vectors", "top_k", "min_weight", "pool_factor")
_COMPUTING = ("precision", "batch_tokens", "threads", "large_model", "device")


class ModelSettings(VectorSettings, total=False):
    """How a model is used in other people's pipelines; what is left out is the model's own.

    Beside these there are `recipe` and the fields of `bert_embed.VectorSpec`.

    Attributes:
        vectors: Kinds of vectors, some of `bert_embed.heads.vectors.VECTOR_KINDS`; None: what the
            model is for.
        top_k: Most weights of a sparse vector, the largest; None: all.
        min_weight: The smallest weight of a sparse vector.
        pool_factor: Similar tokens of a text that become one of its multi-vectors; 1: none do.
        prompt: What precedes every text, or `name:` and the name that the model gives it; None
            is the model's own for documents; "" none.
        max_seq_length: Most tokens of a row, special tokens and prompt included.
        long_text: How longer texts are handled: "truncate" cuts them, "window" gives the mean over
            windows, "reject" rejects them. Left out: cut, with one logged warning.
        stride: Tokens that neighbouring windows share; None is 64, or half of a short window.
        precision: Number type of the matrix products, one of `engines.choose.PRECISIONS`.
        batch_tokens: Most tokens of a batch, padding included; None: chosen for the device.
        threads: Processor cores for the model; None: all that a worker may use.
        large_model: Whether the worker processes of a machine share one model.
        device: Where the model runs, one of `bert_embed.engines.choose.DEVICES`.
    """

    vectors: Sequence[str] | None
    top_k: int | None
    min_weight: float
    pool_factor: int
    prompt: str | None
    max_seq_length: int | None
    long_text: str
    stride: int | None
    precision: str
    batch_tokens: int | None
    threads: int | None
    large_model: bool
    device: str


@dataclass(frozen=True)
class TextModelSettings:
    """Which model, how it computes vectors, and where it runs."""

    model: str  # as the caller named it
    bundle: str  # its folder, opened on workers only
    fingerprint: str  # the model's; a bundle with another one is rejected
    spec: VectorSpec
    text_spec: TextSpec
    precision: str = "float32"
    batch_tokens: int | None = None
    threads: int | None = None
    large_model: bool = False
    max_batch_seconds: float | None = None  # a document's longest wait; None: until its bundle ends
    device: str = "auto"
    cuts_silently: bool = False  # the caller chose what happens to long texts

    def __post_init__(self) -> None:
        path_text("model", self.model)
        for name in ("batch_tokens", "threads"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name), least=1)
        switch("large_model", self.large_model)
        if self.max_batch_seconds is not None:
            seconds("max_batch_seconds", self.max_batch_seconds)

    def load_embedder(self) -> "Embedder":
        """Loads the model on workers; one without the bundle's folder finds it by its name."""
        is_here = os.path.isdir(self.bundle)
        return BlockModelHandler(
            self.bundle if is_here else resolve_model(self.model).path,
            self.fingerprint,
            self.spec,
            self.text_spec,
            threads=self.threads,
            precision=self.precision,
            device=self.device,
        ).load_model()


def text_model_settings(
    model: str | os.PathLike[str],
    max_batch_seconds: float | None = None,
    **settings: Unpack[ModelSettings],
) -> TextModelSettings:
    """Finds the model and checks all that can be checked without loading it, or ValueError."""
    known_names(settings, {*_OWN, *ModelSettings.__annotations__})
    for name in _OWN:
        if name in settings:
            raise SettingError(name, "is a setting of another transform, not of this one")
    vectors: dict[str, Any] = {**settings}
    computing = {name: vectors.pop(name) for name in _COMPUTING if name in vectors}
    max_seq_length, prompt = vectors.pop("max_seq_length", None), vectors.pop("prompt", None)
    texts = {name: vectors.pop(name) for name in _OF_TEXTS if name in vectors}
    if vectors.get("layer_combine") == "stack":
        raise SettingError("layer_combine", "stack gives several vectors a text, take concat")
    model = path_text("model", model)
    bundle = resolve_model(model)
    spec = changed_spec(bundle.defaults, bundle.config, **vectors)
    bundle.check(spec)
    if max_seq_length is None:
        max_seq_length = bundle.max_seq_length
    if texts.get("vectors") is None:
        texts["vectors"] = bundle.default_vectors
    text_spec = TextSpec(max_seq_length, prompt=document_prompt(bundle, prompt), **texts)
    bundle.check_vectors(text_spec.vectors)
    text_spec = fit_texts(bundle, text_spec)
    checked = TextModelSettings(
        model,
        bundle.path,
        bundle.fingerprint,
        spec,
        text_spec,
        max_batch_seconds=max_batch_seconds,
        cuts_silently="long_text" in texts,
        **computing,
    )
    check_precision(checked.precision, checked.device)
    return checked
