"""Defines the settings that loading a model and the calls of an Encoder take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict

from bert_embed.architectures.encoder import EncoderConfig
from bert_embed.arguments import known_names, one_text, switch
from bert_embed.recipes import recipe_spec
from bert_embed.specs import VectorSpec
from bert_embed.storage.errors import SettingError

_OF_RECIPES = ("layers", "layer_combine", "pooling", "pool_special_tokens")


class VectorSettings(TypedDict, total=False):
    """How vectors are computed; what is left out or None is the model's own.

    `bert_embed.VectorSpec` explains all but the first.

    Attributes:
        recipe: Layers and pooling of the literature by name, one of `bert_embed.recipes.RECIPES`.
    """

    recipe: str | None
    layers: int | Sequence[int] | None
    layer_combine: str | None
    pooling: str | None
    pool_special_tokens: bool | None
    pool_prompt: bool | None
    dense: int | None
    normalize: bool | None
    dim: int | None


class TextSettings(TypedDict, total=False):
    """How the texts of a call are read; what is left out or None is the encoder's own.

    Attributes:
        prompt: Text to put before each text, or `name:` and the name of a model's prompt.
        max_seq_length: Maximum number of tokens of a row, special tokens and prompt included.
        long_text: What happens to longer texts: "truncate" cuts them, "window" takes all of a
            text in rows that overlap, "reject" raises an error. Left out, they are cut and a
            `bert_embed.TruncationWarning` says how many.
        stride: Number of tokens that neighbouring windows share; None is 64, or half of a short
            window.
        batch_tokens: Maximum tokens of a batch, padding included; None: chosen for the device.
    """

    prompt: str | None
    max_seq_length: int | None
    long_text: str | None
    stride: int | None
    batch_tokens: int | None


class SparseSettings(TextSettings, total=False):
    """Settings of a call for sparse vectors.

    Attributes:
        top_k: How many weights of a text to keep, the largest ones; None keeps all.
        min_weight: The smallest weight to keep.
    """

    top_k: int | None
    min_weight: float | None


class MultiSettings(TextSettings, total=False):
    """Settings of a call for multi-vectors of documents.

    Attributes:
        pool_factor: How many similar vectors of a text become one, by their mean.
    """

    pool_factor: int | None


class UnitSettings(TextSettings, total=False):
    """Settings of a call for vectors of tokens, words or spans.

    Attributes:
        recipe: Layers of the literature by name.
        layers: Numbers of the hidden states to use; None: the encoder's own.
        layer_combine: How several layers become one vector.
        dim: How many of the first numbers of a vector to keep.
        normalize: Whether vectors have unit length; None: they have not.
    """

    recipe: str | None
    layers: int | Sequence[int] | None
    layer_combine: str | None
    dim: int | None
    normalize: bool | None


class EncodeSettings(VectorSettings, TextSettings, total=False):
    """Settings of a call for vectors of texts.

    Attributes:
        show_progress_bar: Whether a line on stderr, in a notebook below its cell, says how many
            texts are done.
    """

    show_progress_bar: bool | None


@dataclass(frozen=True)
class CallSettings:
    """The settings of a call: those of its VectorSpec, those of `TextSettings`, and its display."""

    vectors: dict[str, Any]
    texts: dict[str, Any]
    progress: bool

    @property
    def batch_tokens(self) -> int | None:
        """Maximum tokens of a batch; None: chosen for the device."""
        return self.texts.get("batch_tokens")

    @classmethod
    def sort(cls, settings: Mapping[str, Any], known: type) -> "CallSettings":
        """Sorts the settings of a TypedDict; SettingError for a name that it does not have."""
        known_names(settings, known.__annotations__)
        vectors = {name: value for name, value in settings.items() if value is not None}
        texts = {
            name: vectors.pop(name) for name in TextSettings.__annotations__ if name in vectors
        }
        progress = switch("show_progress_bar", vectors.pop("show_progress_bar", False))
        return cls(vectors, texts, progress)


def changed_spec(
    spec: VectorSpec, config: EncoderConfig, recipe: str | None = None, **changes: Any
) -> VectorSpec:
    """Returns `spec`, or that of a recipe, with some fields changed; None changes nothing."""
    if recipe is None:
        return spec_with(spec, **changes)
    base = recipe_spec(one_text("recipe", recipe), config.num_hidden_layers)
    check_recipe(recipe, changes)
    return spec_with(base, **changes)


def check_recipe(recipe: str, changes: Mapping[str, Any]) -> None:
    """Checks that changes, of which None are none, leave alone what a recipe sets."""
    for name in _OF_RECIPES:
        if changes.get(name) is not None:
            raise SettingError("recipe", f"{recipe} sets {name}, give only one", name)


def spec_with(spec: VectorSpec, **changes: Any) -> VectorSpec:
    """Returns `spec` with some fields changed; None leaves a field as it is."""
    known_names(changes, {field.name for field in fields(VectorSpec)})
    changes = {name: value for name, value in changes.items() if value is not None}
    if "dim" in changes:
        changes = {"dim_last": False, **changes}  # the caller's is cut before unit length
    changed = replace(spec, **changes)
    if "layers" in changes and len(changed.layers) > 1 and "layer_combine" not in changes:
        raise SettingError(
            "layers",
            f"names {len(changed.layers)} layers: say how they become one vector, layer_combine "
            "sum, mean, concat, stack, or last for the highest of them",
            "layer_combine",
        )
    return changed
