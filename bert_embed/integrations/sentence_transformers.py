"""Gives an Encoder to libraries that take a SentenceTransformer, such as mteb and BERTopic."""

from collections.abc import Sequence
from typing import Any

import numpy as np

try:
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import InputModule
except ImportError as missing:
    raise ImportError(
        "as_sentence_transformer needs sentence-transformers and torch: pip install "
        "sentence-transformers"
    ) from missing

from bert_embed.backends.runner import pad_rows
from bert_embed.base.arguments import text_list
from bert_embed.base.errors import SettingError
from bert_embed.encoder import Encoder
from bert_embed.settings import TextSpec
from bert_embed.text.documents import tokenize_documents
from bert_embed.text.layout import fit_texts, lay_out


def as_sentence_transformer(encoder: Encoder) -> SentenceTransformer:
    """Returns a SentenceTransformer whose vectors are computed by an encoder.

    It has the prompts of the encoder's model. It can neither be trained nor saved.

    Raises:
        SettingError: The model is for sparse vectors, multi-vectors or scores.
    """
    encoder.encode([])  # raises before the texts of a caller are read
    prompts = dict(encoder.bundle.prompts)
    return SentenceTransformer(
        modules=[EncoderModule(encoder)],
        prompts=prompts,
        similarity_fn_name=encoder.bundle.similarity,
        device="cpu",
    )


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
        """Keeps the texts, or pairs of them, for `forward`, and adds their padded ids."""
        if settings := [name for name in kwargs if name != "task" and kwargs[name]]:
            raise SettingError(settings[0], "is not offered here: give settings to bert_embed.load")
        pairs = [one if isinstance(one, (list, tuple)) else (one,) for one in inputs]
        if len(sizes := {len(pair) for pair in pairs}) > 1 or not sizes <= {1, 2}:
            raise SettingError("inputs", "must be texts, or pairs of two texts")
        texts = [text_list("inputs", texts) for texts in zip(*pairs, strict=True)]
        columns: dict[str, Any] = {"texts": texts[0], "texts_b": None}
        if sizes == {2}:
            columns["texts_b"] = texts[1]
        return {**columns, "prompt": prompt, **self._ids(columns, prompt)}

    def _ids(self, columns: dict[str, Any], prompt: str | None) -> dict[str, torch.Tensor]:
        """The ids that the encoder computes with, padded, and their masks."""
        encoder = self.encoder
        text = encoder.prompt if prompt is None else prompt
        tokenizer = encoder.tokenizer
        spec = fit_texts(encoder.bundle, TextSpec(self.max_seq_length, prompt=text), tokenizer)
        documents = tokenize_documents(tokenizer, prompt=text, **columns)
        layout = lay_out(documents, spec, tokenizer)
        rows, every = layout.rows, layout.row
        ids, mask = pad_rows(rows.input_ids, rows.row_splits, every)
        named = {"input_ids": np.where(mask, ids, tokenizer.pad_id), "attention_mask": mask}
        if rows.token_type_ids is not None:
            named["token_type_ids"], _ = pad_rows(rows.token_type_ids, rows.row_splits, every)
        return {name: torch.from_numpy(value.astype(np.int64)) for name, value in named.items()}

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Adds the vectors, float32 `[texts, dim]`; too long texts are cut."""
        vectors = self.encoder.encode(**_call(features))
        added = {**features, "sentence_embedding": torch.from_numpy(vectors)}
        return _Features(self.encoder, added)

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Raises NotImplementedError: a bundle is a model's only form on disk."""
        raise NotImplementedError(f"copy the bundle {self.encoder.bundle.path} instead")


class _Features(dict[str, Any]):
    """What a module returns; vectors of tokens are computed where they are asked for."""

    def __init__(self, encoder: Encoder, features: dict[str, Any]) -> None:
        super().__init__(features)
        self._encoder = encoder

    def __missing__(self, name: str) -> Any:
        if name != "token_embeddings":
            raise KeyError(name)
        rows = self._encoder.units(**_call(self))
        vectors = [torch.from_numpy(row.vectors) for row in rows]
        return torch.nn.utils.rnn.pad_sequence(vectors, batch_first=True)


def _call(features: dict[str, Any]) -> dict[str, Any]:
    names = ("texts", "texts_b", "prompt")
    return {name: features[name] for name in names} | {"long_text": "truncate"}
