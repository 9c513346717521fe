"""Finds the vectors of a run that are nearest to queries, exactly, in one pass over its files.

Scores candidates again by the larger vectors of another output, and measures what that loses.
"""

import itertools
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bert_embed.base.errors import counted, required
from bert_embed.models.heads.kinds import KINDS
from bert_embed.models.heads.similarities import DENSE, SignBits, Similarity
from bert_embed.results.files import BATCH_ROWS, row_batches
from bert_embed.results.names import restored, stored_width
from bert_embed.results.outputs import (
    Output,
    each_file,
    has_block_records,
    open_vectors,
    vector_names,
)

PLACES = ("id", "start", "stop")
_SIGN_ROWS = 1 << 14  # of ubinary that are read at a time: 800 KB of 384 bits
PLACE_ROWS = 1 << 16  # that are read at a time, without their vectors
_LOG = logging.getLogger(__name__)
# What a document, window or chunk has in every output: its id as text, and its code points
Place: TypeAlias = tuple[str, int | None, int | None]


@dataclass(frozen=True)
class Hit:
    """A document, or a window or chunk of one, that is near a query."""

    score: float  # how similar its vector is to the query's
    folder: str  # the output that holds it
    file: str  # name of the file that holds its vector, below the folder
    row: int  # its row in the file
    id: str | int  # the document's id
    # Code point of the text where the window begins; None for a whole document
    start: int | None = None
    stop: int | None = None  # code point after its last, likewise
    text: str | None = None  # the document or window; None where it is not known
    exact: float | None = None  # of a candidate by its signs, the similarity of its whole vector

    @property
    def by_whole_vector(self) -> "Hit":
        """A candidate by its signs, with the similarity of its whole vector as score."""
        return replace(self, score=self.score if self.exact is None else self.exact, exact=None)

    @property
    def place(self) -> str:
        """The id, and the code points of a window."""
        return str(self.id) if self.start is None else f"{self.id} {self.start}:{self.stop}"


def nearest(
    folder: str,
    settings: dict[str, Any],
    queries: Any,
    k: int,
    kind: str = "sentence",
    among: Callable[[Sequence[str | int]], np.ndarray] | None = None,
    by_signs: bool = False,
    finished: frozenset[str] | None = None,
) -> list[list[Hit]]:
    """Finds the `k` best hits of each query; of equal ones the first in the input's order.

    The score of dense vectors is their cosine with the query, or what `settings` name as their
    similarity, of sparse ones the dot product, of multi-vectors MaxSim. Neither batches nor threads
    change a result. A vector that is not finite is no hit; a warning says which files hold such
    vectors.

    Args:
        folder: Output of a run.
        settings: What it says of its vectors.
        queries: float32 `[queries, width]`, for cosines of unit length; `SparseVectors` or
            `MultiVectors`.
        k: Most hits of a query.
        kind: The kind of vectors to search, one of `KINDS` that has a similarity.
        among: Says of some ids, bool `[ids]`, whose rows may be hits; None for all.
        by_signs: Whether the hits are those of ubinary vectors that share most signs with the
            query, which is several times faster; `Hit.exact` has their similarity.
        finished: That of an `Output`, the parts that are searched; None for all that are finished.
    """
    similarity = KINDS[kind].similarity
    if kind == "sentence":
        similarity = DENSE[settings.get("similarity", "cosine")]
    measured = required(similarity, "similarity")(queries)
    exact = None
    if by_signs:
        exact, measured = queries, SignBits(queries)
    scan = _Scan(folder, settings, measured, k, kind, among, exact)
    for hits in each_file(folder, kind, scan, finished):
        scan.keep(hits)
    return scan.best


def spread_rows(folder: str, settings: dict[str, Any], count: int) -> list[Hit]:
    """Returns up to `count` rows of an output's vectors of texts, evenly spread; scores are 0."""
    names = vector_names(folder)
    if not names:
        return []
    chosen = [names[at] for at in np.unique(np.linspace(0, len(names) - 1, count).astype(int))]
    hits: list[Hit] = []
    for number, name in enumerate(chosen):
        wanted = -(-(count - len(hits)) // (len(chosen) - number))
        with open_vectors(folder, name) as path:
            batches = row_batches(path, settings, columns=PLACES, vectors=False, rows=PLACE_ROWS)
            tables = [batch.columns for batch in batches]
        if tables:
            table = pa.concat_tables(tables)
            rows = np.unique(np.linspace(0, len(table) - 1, min(wanted, len(table))).astype(int))
            places = table.take(pa.array(rows)).to_pylist()
            hits += [
                Hit(0.0, folder, name, row, **place)
                for row, place in zip(rows.tolist(), places, strict=True)
            ]
    return hits


@dataclass
class _Scan:
    """Finds the hits of one file after the other, and keeps the best of each query, best first."""

    folder: str
    settings: dict[str, Any]
    similarity: Similarity
    k: int
    kind: str
    among: Callable[[Sequence[str | int]], np.ndarray] | None
    exact: np.ndarray | None  # the queries whose candidates are wanted by their signs

    def __post_init__(self) -> None:
        self.best: list[list[Hit]] = [[] for _ in range(len(self.similarity))]
        self._floor = np.full(len(self.similarity), -np.inf)  # below it no hit is among the best
        self._check_pages = not has_block_records(self.folder)

    def keep(self, hits: list[list[Hit]]) -> None:
        """Adds the hits of the next file."""
        for number, new in enumerate(hits):
            if new:
                both = sorted([*self.best[number], *new], key=lambda hit: -hit.score)
                self.best[number] = both[: self.k]
                if len(both) >= self.k:
                    self._floor[number] = self.best[number][-1].score

    def __call__(self, path: Path) -> list[list[Hit]]:
        """The hits of one file that may be among the best."""
        similarity = self.similarity
        scores = [np.empty(0)] * len(similarity)
        rows = [np.empty(0, np.int64)] * len(similarity)
        by_signs = self.exact is not None
        size = 0 if self.exact is None else stored_width("ubinary", self.exact.shape[1])
        bits = [np.empty((0, size), np.uint8)] * len(similarity)
        floor, first, not_finite = self._floor.copy(), 0, 0
        batches = row_batches(
            *(path, self.settings),
            kind=self.kind,
            columns=() if self.among is None else ("id",),
            rows=_SIGN_ROWS if by_signs else BATCH_ROWS,
            check_pages=self._check_pages,
            packed=by_signs,
        )
        for batch in batches:
            finite = similarity.finite(batch.vectors)
            not_finite += len(batch) - len(finite)
            if self.among is not None:
                finite = finite[self.among(batch.columns["id"].to_pylist())[finite]]
            vectors = batch.vectors[finite] if len(finite) < len(batch) else batch.vectors
            for number, near, exact in similarity.scored(vectors, floor, self.k):
                both = np.append(scores[number], exact)
                order = np.argsort(-both, kind="stable")[: self.k]
                scores[number] = both[order]
                rows[number] = np.append(rows[number], finite[near] + first)[order]
                if by_signs:
                    bits[number] = np.concatenate([bits[number], vectors[near]])[order]
                if len(order) == self.k:
                    floor[number] = max(floor[number], both[order[-1]])
            first += len(batch)
        name = f"{path.parent.name}/{path.name}"
        if not_finite:
            holds = counted(not_finite, "vector")
            _LOG.warning("%s holds %s with NaN or infinity, which are left out", name, holds)
        places = self._places(path, np.unique(np.concatenate(rows)))
        whole = [self._exact_scores(number, few) for number, few in enumerate(bits)]
        return [
            [
                Hit(score, self.folder, name, row, **places[row], exact=exact)
                for score, row, exact in zip(of_query.tolist(), in_file.tolist(), few, strict=False)
            ]
            for of_query, in_file, few in zip(scores, rows, whole, strict=True)
        ]

    def _exact_scores(self, number: int, bits: np.ndarray) -> Iterable[float | None]:
        """The similarity of a query and candidates, uint8 `[rows, bytes]`; None for all others."""
        if self.exact is None:
            return itertools.repeat(None)
        vectors = restored(bits, None, "ubinary", self.exact.shape[1])
        similarity = DENSE[self.settings.get("similarity", "cosine")]
        return similarity(self.exact).exact(vectors, self.exact[number]).tolist()

    def _places(self, path: Path, rows: np.ndarray) -> dict[int, dict[str, Any]]:
        """Ids, and code points of windows, of some rows of a file, int64 in order."""
        batches = row_batches(
            *(path, self.settings),
            kind=self.kind,
            columns=PLACES,
            vectors=False,
            rows=PLACE_ROWS,
            chosen=rows,
        )
        places = [place for batch in batches for place in batch.columns.to_pylist()]
        return dict(zip(rows.tolist(), places, strict=True))


def place_of(hit: Hit) -> Place:
    """What the hits of one document, window or chunk have in common in several outputs."""
    return str(hit.id), hit.start, hit.stop


def vectors_at(output: Output, wanted: Iterable[Place]) -> dict[Place, np.ndarray | None]:
    """Returns the vectors of those places that an output has, float32 `[width]`.

    None where rows of one place have different ones. All ids are read, and the vectors that are
    wanted.
    """
    places, settings = set(wanted), output.settings
    ids = pa.array(sorted({place[0] for place in places}), pa.string())

    def of_file(path: Path) -> dict[Place, np.ndarray | None]:
        rows: list[np.ndarray] = [np.empty(0, np.int64)]
        first = 0
        for batch in row_batches(path, settings, columns=("id",), vectors=False, rows=PLACE_ROWS):
            named = batch.columns["id"].cast(pa.string())
            rows.append(first + np.flatnonzero(pc.is_in(named, value_set=ids).to_numpy()))
            first += len(batch)
        chosen = np.concatenate(rows)
        vectors: dict[Place, np.ndarray | None] = {}
        if not len(chosen):
            return vectors
        for batch in row_batches(path, settings, columns=PLACES, chosen=chosen):
            for row, vector in zip(batch.columns.to_pylist(), batch.vectors, strict=True):
                place = str(row["id"]), row.get("start"), row.get("stop")
                if place in places and np.isfinite(vector).all():
                    add_vectors(vectors, {place: vector})
        return vectors

    found: dict[Place, np.ndarray | None] = {}
    for of_one in each_file(output.folder, "sentence", of_file, output.finished):
        add_vectors(found, of_one)
    return found


def add_vectors(
    vectors: dict[Place, np.ndarray | None], others: Mapping[Place, np.ndarray | None]
) -> None:
    """Adds what `vectors_at` found elsewhere, with None for a place that has another vector."""
    for place, vector in others.items():
        earlier = vectors.setdefault(place, vector)
        if earlier is None or vector is None or not np.array_equal(earlier, vector):
            vectors[place] = None


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
        with_vectors = [hit for hit in few if place_of(hit) in vectors]
        stacked = np.array([vectors[place_of(hit)] for hit in with_vectors], np.float32)
        scores = measured.exact(stacked, queries[number]).tolist() if with_vectors else []
        again = [replace(hit, score=score) for hit, score in zip(with_vectors, scores, strict=True)]
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
        pairs = [(set(places), set(right)) for places, right in zip(found, exact, strict=True)]
        shares = np.array([len(places & right) / len(right) for places, right in pairs if right])
        if not len(shares):
            return cls(1.0, 0.0, 0)
        error = 1.96 * float(shares.std()) / np.sqrt(len(shares))
        return cls(float(shares.mean()), float(error), len(shares))
