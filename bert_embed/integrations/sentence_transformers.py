"""Gives an Encoder to libraries that take a SentenceTransformer, such as mteb and BERTopic."""

from collections.abc import Sequence
from typing import Any

try:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import InputModule
except ImportError as missing:
    raise ImportError(
        "as_sentence_transformer needs sentence-transformers and torch: pip install "
        "sentence-transformers"
    ) from missing

from bert_embed.encoder import Encoder


def as_sentence_transformer(encoder: Encoder) -> SentenceTransformer:
    """Returns a SentenceTransformer whose vectors are computed by an encoder.

    It has the prompts of the encoder's model. It can neither be trained nor saved.

    Raises:
        SettingError: The model is for sparse vectors, multi-vectors or scores.
    """
    encoder.encode([])  # raises before the texts of a caller are read
    prompts = dict(encoder.bundle.prompts)
    return SentenceTransformer(modules=[EncoderModule(encoder)], prompts=prompts, device="cpu")


class EncoderModule(InputModule):
    """An encoder as the only module of a SentenceTransformer."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    @property
    def max_seq_length(self) -> int:
        """The encoder's, and set there."""
        return self.encoder.max_seq_length

    @max_seq_length.setter
    def max_seq_length(self, length: int) -> None:
        self.encoder.max_seq_length = length

    @property
    def tokenizer(self) -> Any:
        """The encoder's own; it is no tokenizer of transformers."""
        return self.encoder.tokenizer

    def get_embedding_dimension(self) -> int:
        """Returns the encoder's dimension."""
        return self.encoder.dimension

    def preprocess(
        self, inputs: Sequence[Any], prompt: str | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        """Keeps the texts for `forward`, which tokenizes them."""
        return {"texts": list(inputs), "prompt": prompt or None}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Adds the vectors, float32 `[texts, dim]`; too long texts are cut."""
        vectors = self.encoder.encode(
            features["texts"], prompt=features["prompt"], long_text="truncate"
        )
        return {**features, "sentence_embedding": torch.from_numpy(vectors)}

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Raises NotImplementedError: a bundle is a model's only form on disk."""
        raise NotImplementedError(f"copy the bundle {self.encoder.bundle.path} instead")
