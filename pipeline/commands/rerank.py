"""Puts hits in the order of a cross-encoder."""

import operator
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bert_embed.bundle.bundle import Bundle
from bert_embed.bundle.find import resolve_model
from bert_embed.encoder import Encoder
from bert_embed.heads.scores import ScoresHead
from bert_embed.nearest import Hit
from bert_embed.pipeline.errors import UsageError
from bert_embed.storage.plurals import counted

RERANKED = 100  # hits of a query


class Reranker:
    """A model that scores pairs of a query and a text; UsageError if `model` does not."""

    def __init__(self, model: str) -> None:
        bundle = resolve_model(model)
        self._label = relevance_label(bundle, model)
        self._encoder = Encoder(bundle, device="cpu")

    def __call__(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """The hits, all of which have texts, with the model's scores, best first."""
        texts = [hit.text or "" for hit in hits]
        if not texts:
            return []
        scores = self._encoder.encode_scores([query] * len(texts), texts, long_text="truncate")[
            :, self._label
        ]
        scored = [
            replace(hit, score=score)
            for hit, score in zip(hits, np.asarray(scores, np.float64).tolist(), strict=True)
        ]
        return sorted(scored, key=operator.attrgetter("score"), reverse=True)


def relevance_label(bundle: Bundle, model: str) -> int:
    """The number of the label that says how relevant a text is; UsageError if no one knows.

    A model with one label has no other; of two, the second says that the text answers the query.
    """
    head = bundle.heads.get("scores")
    if not isinstance(head, ScoresHead):
        raise UsageError(f"--rerank {model} is no cross-encoder: it has no scores")
    labels = head.labels
    if len(labels) > 2:
        raise UsageError(
            f"--rerank {model} must have one label or two, it has {counted(len(labels), 'label')}: "
            f"{', '.join(labels)}"
        )
    return len(labels) - 1
