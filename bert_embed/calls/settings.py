"""Defines the settings that loading a model and the calls of an Encoder take."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict

import numpy as np

from bert_embed.arguments import known_names, one_text, switch, whole_number, whole_numbers
from bert_embed.config import BertConfig
from bert_embed.recipes import recipe_spec
from bert_embed.specs import VectorSpec
from bert_embed.storage.errors import SettingError

_OF_RECIPES = ("layers", "layer_combine", "pooling", "pool_special_tokens")
_TENSOR, _NUMPY = "convert_to_tensor", "convert_to_numpy"
# Keywords of sentence-transformers that `encode` does not have, with their default there.
_NOT_OURS = {
    "chunk_size": (None, "is not offered, one process uses all cores"),
    "output_value": (
        "sentence_embedding",
        "is not offered, encode_tokens gives the vectors of tokens",
    ),
    "pool": (None, "is not offered, one process uses all cores; pooling joins tokens"),
    "precision": (
        "float32",
        "is not offered, vectors are float32 here; a run stores others (output_dtype)",
    ),
    "truncate_dim": (None, "is called dim here, and what is cut is scaled to length 1 again"),
}


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
        prompt_name: The name of a model's prompt, as in sentence-transformers.
        max_seq_length: Maximum number of tokens of a row, special tokens and prompt included.
        long_text: What happens to longer texts: "truncate" cuts them, "window" takes all of a
            text in rows that overlap, "reject" raises an error. Left out, they are cut and a
            `bert_embed.TruncationWarning` says how many.
        stride: Number of tokens that neighbouring windows share; None is 64, or half of a short
            window.
        batch_tokens: Maximum tokens of a batch, padding included; None: chosen for the device.
    """

    prompt: str | None
    prompt_name: str | None
    max_seq_length: int | None
    long_text: str | None
    stride: int | None
    batch_tokens: int | None


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
    """Settings of a call for vectors of texts; the last six are sentence-transformers' own.

    Attributes:
        normalize_embeddings: True scales vectors to unit length; False leaves them as they are.
        show_progress_bar: Whether a line on stderr says how many texts are done.
        convert_to_numpy: True; False gives a list of torch's tensors.
        convert_to_tensor: Whether to return one tensor, which requires torch.
        batch_size: Is checked and not used: batches are formed by tokens (`batch_tokens`).
        device: None, or the device that the encoder computes on.
    """

    normalize_embeddings: bool | None
    show_progress_bar: bool | None
    convert_to_numpy: bool
    convert_to_tensor: bool
    batch_size: int
    device: Any


@dataclass(frozen=True)
class ResultForm:
    """What a call does beside computing vectors.

    Attributes:
        progress: Whether it shows how far it is.
        tensor: Whether it returns one tensor.
        tensors: Whether it returns a list of tensors, one a text.
    """

    progress: bool = False
    tensor: bool = False
    tensors: bool = False

    def of(self, vectors: np.ndarray, one: bool) -> Any:
        """Returns the vectors of texts, or the vector of one text, in this form."""
        if not (self.tensor or self.tensors):
            return vectors
        tensor = _torch(_TENSOR if self.tensor else _NUMPY).from_numpy(vectors)
        return tensor if self.tensor or one else list(tensor)


@dataclass(frozen=True)
class CallSettings:
    """The settings of a call, sorted.

    Attributes:
        vectors: Those that change the encoder's VectorSpec.
        texts: Those of `TextSettings`.
        form: The form of the result.
    """

    vectors: dict[str, Any]
    texts: dict[str, Any]
    form: ResultForm = ResultForm()

    @classmethod
    def of_units(cls, settings: Mapping[str, Any]) -> "CallSettings":
        """Sorts `UnitSettings`; SettingError for an unknown name."""
        known_names(settings, UnitSettings.__annotations__)
        return cls._sorted(settings)

    @classmethod
    def of_texts(cls, settings: Mapping[str, Any], device: str) -> "CallSettings":
        """Sorts `EncodeSettings`.

        Args:
            settings: As the caller gave them.
            device: The one that the encoder computes on.

        Raises:
            SettingError: A name is unknown, a value is wrong, or two settings conflict.
        """
        own = dict(settings)
        for name, (default, why) in _NOT_OURS.items():
            if own.pop(name, default) != default:
                raise SettingError(name, why)
        known_names(own, EncodeSettings.__annotations__)

        def taken(name: str, default: Any) -> Any:
            value = own.pop(name, None)
            return default if value is None else value

        unit_length = switch("normalize_embeddings", taken("normalize_embeddings", False))
        if unit_length and own.get("normalize") is False:
            raise SettingError("normalize", "False conflicts with normalize_embeddings True")
        if unit_length:
            own["normalize"] = True
        whole_number("batch_size", taken("batch_size", 1), least=1)
        wanted = str(taken("device", device))
        if wanted.partition(":")[0].replace("cuda", "gpu") != device:
            raise SettingError("device", f"is {device} since the model was loaded, got {wanted}")
        tensor = switch(_TENSOR, taken(_TENSOR, False))
        tensors = not switch(_NUMPY, taken(_NUMPY, True)) and not tensor
        if tensor or tensors:
            _torch(_TENSOR if tensor else _NUMPY)  # now, not when all is computed
        progress = switch("show_progress_bar", taken("show_progress_bar", False))
        return cls._sorted(own, ResultForm(progress, tensor, tensors))

    @classmethod
    def _sorted(cls, settings: Mapping[str, Any], *form: ResultForm) -> "CallSettings":
        given = {name: value for name, value in settings.items() if value is not None}
        texts = {name: given.pop(name) for name in TextSettings.__annotations__ if name in given}
        return cls(given, texts, *form)


def _torch(setting: str) -> Any:
    try:
        import torch
    except ImportError as error:
        raise SettingError(
            setting, "requires torch, which is not installed; leave it out for NumPy arrays"
        ) from error
    return torch


def prompt_setting(settings: Mapping[str, Any]) -> str | None:
    """Returns the prompt that a call asks for; None for the encoder's own."""
    name, prompt = settings.get("prompt_name"), settings.get("prompt")
    if name is None:
        return prompt
    if prompt is not None:
        raise SettingError("prompt_name", "conflicts with prompt, give only one", "prompt")
    return f"name:{one_text('prompt_name', name)}"


def changed_spec(
    spec: VectorSpec, config: BertConfig, recipe: str | None = None, **changes: Any
) -> VectorSpec:
    """Returns `spec`, or that of a recipe, with some fields changed; None changes nothing.

    Args:
        spec: The model's or the encoder's own.
        config: The model's sizes.
        recipe: One of `bert_embed.recipes.RECIPES`, which replaces all of `spec`.
        **changes: Fields of VectorSpec.

    Raises:
        SettingError: As `spec_with`; or there is no such recipe, or it conflicts with a field.
    """
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
    """Returns `spec` with some fields changed; None leaves a field as it is.

    Raises:
        SettingError: An unknown field, a wrong value, or several layers without `layer_combine`.
    """
    known_names(changes, {field.name for field in fields(VectorSpec)})
    given = {name: value for name, value in changes.items() if value is not None}
    if "layers" in given:
        given["layers"] = layers = whole_numbers("layers", given["layers"])
        if len(layers) > 1 and "layer_combine" not in given:
            raise SettingError(
                "layers",
                f"names {len(layers)} layers: say how they become one vector, layer_combine sum, "
                "mean, concat, stack, or last for the highest of them",
                "layer_combine",
            )
    return replace(spec, **given)
