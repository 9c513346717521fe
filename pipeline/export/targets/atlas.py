"""Writes `atlas.parquet` with a map of the corpus, as Embedding Atlas reads it."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bert_embed.formats.result_files import Rows
from bert_embed.pipeline.export.encode import write_parquet
from bert_embed.pipeline.export.journal import JOURNAL, write_files
from bert_embed.pipeline.export.source import Source
from bert_embed.storage.files import join, write_whole

_FILE = "atlas.parquet"
_FITTED_ROWS = 20_000  # of which the axes of the map are computed
_FITTED_BYTES = 64 << 20
_VECTOR, _X, _Y = "vector", "projection_x", "projection_y"


class AtlasTarget:
    """One file with the columns, the vectors, and two coordinates."""

    others: tuple[str, ...] = ()

    def __init__(self, source: Source) -> None:
        self.rows = source.wanted_rows
        self.journal = join(source.options.dest, JOURNAL)
        self._source, self._dest = source, source.options.dest
        source.check_added(_VECTOR, _X, _Y)
        self._schema = (
            source.schema.append(pa.field(_VECTOR, pa.list_(pa.float32(), source.width)))
            .append(pa.field(_X, pa.float32()))
            .append(pa.field(_Y, pa.float32()))
        )

    def names(self, number: int, count: int) -> tuple[str, ...]:
        """The one file."""
        return (_FILE,)

    def write(self, number: int, count: int, rows: int, batches: Iterator[Rows]) -> None:
        """Computes the axes of the map, then writes the file, of a sample of the rows."""
        fitted = min(rows, _FITTED_ROWS, max(1, _FITTED_BYTES // (4 * self._source.width)))
        axes = principal_axes(
            np.concatenate([batch.vectors for batch in self._source.sampled(fitted)])
        )
        tables = (self._table(batch, axes) for batch in self._source.sampled(rows))
        path = join(self._dest, _FILE)
        write_whole(path, lambda out: write_parquet(out, tables, self._schema))

    def finish(self) -> None:
        """Nothing is left to write."""

    def _table(self, batch: Rows, axes: "Axes") -> pa.Table:
        numbers = pa.array(batch.vectors.reshape(-1))
        x, y = axes.coordinates(batch.vectors)
        vectors = pa.FixedSizeListArray.from_arrays(numbers, self._source.width)
        columns = [*batch.columns.columns, vectors, pa.array(x), pa.array(y)]
        return pa.table(columns, schema=self._schema)


@dataclass(frozen=True)
class Axes:
    """The two directions in which vectors differ most.

    Attributes:
        mean: float64 `[width]`.
        directions: float64 `[width, 2]`, of unit length.
    """

    mean: np.ndarray
    directions: np.ndarray

    def coordinates(self, vectors: np.ndarray) -> np.ndarray:
        """float32 `[2, rows]` of float32 `[rows, width]`."""
        return ((vectors - self.mean) @ self.directions).T.astype(np.float32)


def principal_axes(vectors: np.ndarray) -> Axes:
    """Computes the first two principal components (PCA) of float32 `[rows, width]`."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    _, _, found = np.linalg.svd(vectors - mean, full_matrices=False)
    directions = np.zeros((vectors.shape[1], 2))
    directions[:, : len(found[:2])] = found[:2].T
    largest = directions[np.abs(directions).argmax(axis=0), range(2)]
    return Axes(mean, directions * np.where(largest < 0, -1, 1))  # components have no sign


def export_atlas(source: Source) -> bool:
    """Exports a map and what it shows; False if it was there already."""
    target = AtlasTarget(source)
    return write_files(target, source, source.options.dest, target.rows)
