"""Gives an Encoder to LangChain; needs langchain-core."""

import os
from typing import Unpack

from langchain_core.embeddings import Embeddings

from bert_embed.arguments import known_names
from bert_embed.calls.settings import EncodeSettings
from bert_embed.encoder import Encoder


class EncoderEmbeddings(Embeddings):
    """LangChain's embeddings of an encoder.

    Args:
        model: As `bert_embed.load` takes it, or an Encoder.
        **settings: As `Encoder.encode` takes them, for every text.

    Raises:
        SettingError: There is no such model or setting.
    """

    def __init__(
        self, model: str | os.PathLike[str] | Encoder = "minilm", **settings: Unpack[EncodeSettings]
    ) -> None:
        known_names(settings, {"model", *EncodeSettings.__annotations__})
        self.encoder = model if isinstance(model, Encoder) else Encoder(model)
        self._settings = settings

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Returns a vector for each text, with the model's prompt for documents if it has one."""
        return self.encoder.encode_document(texts, **self._settings).tolist()

    def embed_query(self, text: str) -> list[float]:
        """Returns the vector of a query, with the model's prompt for queries if it has one."""
        return self.encoder.encode_query(text, **self._settings).tolist()
