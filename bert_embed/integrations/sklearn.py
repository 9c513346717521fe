"""Gives an Encoder to scikit-learn; needs scikit-learn."""

import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

import bert_embed
from bert_embed.encoder import Encoder
from bert_embed.storage.errors import SettingError

_OF_MODEL = ("model", "threads", "precision", "device")


class TextEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A transformer from a column of texts to their vectors.

    It learns nothing, so that `fit` only checks its parameters. All copies of it in a process share
    one model.

    Args:
        model, threads, precision, device: As `bert_embed.load` takes them; or an Encoder as the
            model.
        recipe, layers, layer_combine, pooling, pool_special_tokens, normalize, dim, prompt,
        max_seq_length, long_text, stride, batch_tokens: As `Encoder.encode` takes them.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | Encoder = "minilm",
        *,
        recipe: str | None = None,
        layers: int | Sequence[int] | None = None,
        layer_combine: str | None = None,
        pooling: str | None = None,
        pool_special_tokens: bool | None = None,
        normalize: bool | None = None,
        dim: int | None = None,
        prompt: str | None = None,
        max_seq_length: int | None = None,
        long_text: str | None = None,
        stride: int | None = None,
        batch_tokens: int | None = None,
        threads: int | None = None,
        precision: str = "float32",
        device: str = "auto",
    ) -> None:
        # scikit-learn requires that these are kept as they came, and checked later.
        self.model = model
        self.recipe = recipe
        self.layers = layers
        self.layer_combine = layer_combine
        self.pooling = pooling
        self.pool_special_tokens = pool_special_tokens
        self.normalize = normalize
        self.dim = dim
        self.prompt = prompt
        self.max_seq_length = max_seq_length
        self.long_text = long_text
        self.stride = stride
        self.batch_tokens = batch_tokens
        self.threads = threads
        self.precision = precision
        self.device = device

    def fit(self, X: Any, y: Any = None) -> "TextEncoder":
        """Loads the model and checks the parameters; SettingError for a wrong one."""
        self._n_features_out = self._encode([]).shape[1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Returns the vectors of texts, float32 `[texts, dim]`.

        Args:
            X: A column of texts, as `Encoder.encode` takes it.
        """
        return self._encode(X)

    def _encode(self, texts: Any) -> np.ndarray:
        settings = self.get_params(deep=False)
        if settings["layer_combine"] == "stack":
            raise SettingError("layer_combine", "stack gives several vectors a text, take concat")
        of_model = [settings.pop(name) for name in _OF_MODEL]
        encoder = of_model[0] if isinstance(of_model[0], Encoder) else _encoder(*of_model)
        return encoder.encode(texts, **settings)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.two_d_array = True, False
        tags.requires_fit = False
        return tags


@functools.lru_cache(maxsize=2)
def _encoder(
    model: str | os.PathLike[str], threads: int | None, precision: str, device: str
) -> Encoder:
    return bert_embed.load(model, threads, precision=precision, device=device)
