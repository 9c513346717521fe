"""A head in one file, as CONTRIBUTING.md tells: the norm of a text's mean vector."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bert_embed.models.encoder import EncoderConfig, Ops
from bert_embed.models.heads.head import BatchRows, Column, DocumentRows, Head, Kind, Settings, Type


@dataclass(frozen=True)
class NormHead(Head):
    """One number a document."""

    kind: ClassVar[str] = "norm"

    def shapes(self, config: EncoderConfig) -> dict[str, tuple[int, ...]]:
        return {}

    def graph(self, ops: Ops, states: Any) -> Any:
        return ops.over_tokens(states, "mean")

    def empty(self) -> tuple[np.ndarray, ...]:
        return (np.empty((0, 1), np.float32),)

    def batch_rows(self, output: np.ndarray, ids: np.ndarray, mask: np.ndarray) -> BatchRows:
        norms = np.sqrt(np.vecdot(output, output))[:, None]
        finite = np.isfinite(norms[:, 0])
        return BatchRows(finite, finite.astype(np.int64), (norms[finite],))

    def joined(self, lengths: np.ndarray, columns: Sequence[np.ndarray]) -> np.ndarray:
        norms = np.zeros((len(lengths), 1), np.float32)
        norms[lengths > 0] = columns[0]
        return norms

    def documents(
        self, rows: np.ndarray, places: DocumentRows, options: Mapping[str, Any]
    ) -> np.ndarray:
        return places.means(rows)


class NormKind(Kind):
    """float32 `[documents, windows or chunks, 1]`."""

    is_array = True

    def words(self, settings: Settings, unit: str) -> str:
        return f"the norm of the mean vector of a {unit}"

    def types(self, settings: Settings) -> dict[str, Type]:
        return {"norm": Type("float32")}

    def columns(self, vectors: np.ndarray, settings: Settings) -> dict[str, Column]:
        return {"norm": Column(vectors[:, 0])}

    def of_columns(self, columns: Mapping[str, Column], settings: Settings) -> np.ndarray:
        return columns["norm"].values[:, None]

    def shape(self, settings: Settings) -> Sequence[int]:
        return [1]


NORM = NormKind("norm", "norms", 0, NormHead)  # its row of the registry
