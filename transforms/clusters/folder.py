"""Defines ClusterFolder, the only owner of the names in an output of `cluster` or `dedup`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

import numpy as np

from bert_embed.formats.output_files import RUN_FILE, file_name, output_name, parse_name
from bert_embed.storage.files import (
    join,
    list_files,
    make_below,
    make_folder,
    names_in,
    open_raw,
    remove,
    remove_folder,
    size_of,
    sizes_in,
    sweep_temporary,
    write_whole,
)
from bert_embed.storage.plurals import counted
from bert_embed.transforms.output_folder import CLUSTERS, DUPLICATES, STATE

CENTROIDS = "centroids.npy"
_SAMPLES, _ASSIGNED, _COPIES, _PAIRS, _SUPERSEDED = (
    f"{STATE}/{name}" for name in ("samples", "assigned", "copies", "pairs", "superseded")
)
_WORK = (_SAMPLES, _ASSIGNED, _COPIES, _PAIRS, _SUPERSEDED)


class Progress(NamedTuple):
    """What an unfinished job has done: files sampled and assigned, ranges of clusters searched."""

    sampled: int
    clustered: int
    searched: int

    def __str__(self) -> str:
        return (
            f"sampled {self.sampled:,}, clustered {counted(self.clustered, 'file')}; "
            f"{counted(self.searched, 'range')} of clusters searched"
        )


@dataclass(frozen=True)
class ClusterFolder:
    """The files of `cluster` or `dedup`."""

    path: str  # the folder, local or remote

    @property
    def record(self) -> str:
        """Path of the record."""
        return join(self.path, RUN_FILE)

    @property
    def centroids(self) -> str:
        """Path of the centroids."""
        return join(self.path, CENTROIDS)

    def clusters(self, vectors: str) -> str:
        """Path of the clusters of a file of vectors, by its name in the run's output."""
        return self._table(CLUSTERS, vectors)

    def duplicates(self, vectors: str) -> str:
        """Path of the duplicates in a file of vectors, likewise."""
        return self._table(DUPLICATES, vectors)

    def _table(self, kind: str, vectors: str) -> str:
        name = output_name(vectors)
        return join(self.path, file_name(kind, name.block, name.part, ".parquet"))

    def sample(self, file: int) -> str:
        """Path of the sample of a file of vectors, by its number."""
        return join(self.path, f"{_SAMPLES}/{file:07d}.npy")

    def assigned(self, file: int) -> str:
        """Path of what says that a file of vectors is assigned."""
        return join(self.path, f"{_ASSIGNED}/{file:07d}.npz")

    def copies(self, file: int, segment: int) -> str:
        """Path of copies of vectors, sorted by cluster."""
        return join(self.path, f"{_COPIES}/{file:07d}-{segment:05d}.bin")

    def pairs(self, task: int) -> str:
        """Path of the pairs of some clusters."""
        return join(self.path, f"{_PAIRS}/pairs-{task:07d}.npz")

    def write_superseded(self, file: int, rows: np.ndarray) -> None:
        """Keeps the rows of a file of vectors, int64, whose documents a later output has."""
        self.write(self._superseded(file), lambda out: np.save(out, rows))

    def superseded_rows(self, file: int) -> np.ndarray:
        """Returns what `write_superseded` kept."""
        with open_raw(self._superseded(file)) as stored:
            return np.load(stored)

    def _superseded(self, file: int) -> str:
        return join(self.path, f"{_SUPERSEDED}/{file:07d}.npy")

    def write(self, path: str, write: Callable[[BinaryIO], object]) -> int:
        """Writes a file of the folder, whole or not at all; returns its bytes."""
        folder = path.rpartition("/")[0]
        if folder != self.path:
            make_below(self.path, folder.removeprefix(join(self.path, "")))
        make_below(self.path, STATE)
        return write_whole(path, write, join(self.path, STATE)).size

    def sizes(self) -> dict[str, int]:
        """The files of the result by path, and their bytes."""
        sizes = {
            join(self.path, f"{kind}/{name}"): size
            for kind in (CLUSTERS, DUPLICATES)
            for name, size in sizes_in(join(self.path, kind)).items()
        }
        size = size_of(self.centroids)
        return sizes if size is None else sizes | {self.centroids: size}

    def written(self) -> dict[str, tuple[int, int]]:
        """How many files there are of each kind of result, and their bytes."""
        counts = dict.fromkeys((CLUSTERS, DUPLICATES, CENTROIDS), (0, 0))
        for path, size in self.sizes().items():
            kind = path.removeprefix(join(self.path, "")).partition("/")[0]
            counts[kind] = counts[kind][0] + 1, counts[kind][1] + size
        return counts

    def progress(self) -> "Progress":
        """How much an unfinished job has done."""
        counts = (len(names_in(join(self.path, kind))) for kind in (_SAMPLES, _ASSIGNED, _PAIRS))
        return Progress(*counts)

    def other_file(self) -> str | None:
        """Path of a file beside record and bookkeeping, None if there is none."""
        own = (join(self.path, f"{STATE}/"), self.record)
        paths = (file.path for file in list_files(self.path))
        return next((path for path in paths if not path.startswith(own)), None)

    def prepare(self) -> None:
        """Makes the folder; removes unfinished files of ended processes."""
        make_folder(join(self.path, STATE))
        sweep_temporary(self.path)
        sweep_temporary(join(self.path, STATE))

    def remove_work(self) -> None:
        """Removes what only an unfinished job needs: samples, copies, pairs, counts of files."""
        for kind in _WORK:
            folder = join(self.path, kind)
            remove([join(folder, name) for name in names_in(folder)])
        for kind in (*_WORK, STATE):
            remove_folder(join(self.path, kind))

    def remove_all(self) -> None:
        """Removes what `cluster` or `dedup` wrote and nothing else, the record last."""
        self.remove_work()
        for kind in (CLUSTERS, DUPLICATES):
            names = [f"{kind}/{name}" for name in names_in(join(self.path, kind))]
            remove([join(self.path, name) for name in names if parse_name(name) is not None])
            remove_folder(join(self.path, kind))
        remove([self.centroids])
        remove([self.record])
