"""Scores candidates again by the larger vectors of another output, and measures what that loses."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bert_embed.models.heads.similarities import DENSE
from bert_embed.results.files import row_batches
from bert_embed.results.read import each_file
from bert_embed.search.nearest import PLACE_ROWS, PLACES, Hit

# What a document, window or chunk has in every output: its id as text, and its code points
Place: TypeAlias = tuple[str, int | None, int | None]


def place_of(hit: Hit) -> Place:
    """What the hits of one document, window or chunk have in common in several outputs."""
    return str(hit.id), hit.start, hit.stop


def vectors_at(
    folder: str, settings: dict[str, Any], wanted: Iterable[Place]
) -> dict[Place, np.ndarray]:
    """Returns the vectors of those places that an output has, float32 `[width]`.

    Of rows with one place the last counts. All ids are read, and the vectors that are wanted.
    """
    places = set(wanted)
    ids = pa.array(sorted({place[0] for place in places}), pa.string())

    def of_file(path: Path) -> dict[Place, np.ndarray]:
        rows: list[np.ndarray] = [np.empty(0, np.int64)]
        first = 0
        for batch in row_batches(path, settings, columns=("id",), vectors=False, rows=PLACE_ROWS):
            named = batch.columns["id"].cast(pa.string())
            rows.append(first + np.flatnonzero(pc.is_in(named, value_set=ids).to_numpy()))
            first += len(batch)
        chosen = np.concatenate(rows)
        found: dict[Place, np.ndarray] = {}
        if not len(chosen):
            return found
        for batch in row_batches(path, settings, columns=PLACES, chosen=chosen):
            for row, vector in zip(batch.columns.to_pylist(), batch.vectors, strict=True):
                place = str(row["id"]), row.get("start"), row.get("stop")
                if place in places and np.isfinite(vector).all():
                    found[place] = vector
        return found

    found: dict[Place, np.ndarray] = {}
    for of_one in each_file(folder, "sentence", of_file):
        found |= of_one
    return found


def rescored(
    hits: Sequence[Sequence[Hit]],
    vectors: dict[Place, np.ndarray],
    queries: np.ndarray,
    similarity: str,
) -> list[list[Hit]]:
    """The hits that have vectors, with the scores of these, best first.

    `queries` are float32 `[queries, width]`, as `nearest` takes them.
    """
    measured = DENSE[similarity](queries)
    scored = []
    for number, few in enumerate(hits):
        kept = [hit for hit in few if place_of(hit) in vectors]
        stacked = np.array([vectors[place_of(hit)] for hit in kept], np.float32)
        scores = measured.exact(stacked, queries[number]).tolist() if kept else []
        again = [replace(hit, score=score) for hit, score in zip(kept, scores, strict=True)]
        scored.append(sorted(again, key=lambda hit: -hit.score))
    return scored


@dataclass(frozen=True)
class Recall:
    """How many of the exact nearest were found."""

    share: float  # the mean over queries
    error: float  # half of its 95% interval, by the normal approximation
    queries: int

    @classmethod
    def of(cls, found: Sequence[Iterable[Place]], exact: Sequence[Iterable[Place]]) -> "Recall":
        """That of the places that were found for some queries, and of those that are right."""
        pairs = [(set(some), set(right)) for some, right in zip(found, exact, strict=True)]
        shares = np.array([len(some & right) / len(right) for some, right in pairs if right])
        if not len(shares):
            return cls(1.0, 0.0, 0)
        error = 1.96 * float(shares.std()) / np.sqrt(len(shares))
        return cls(float(shares.mean()), float(error), len(shares))
