"""Takes a sample of a run's vectors, the same every time, and places it in two dimensions."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np

from bert_embed.base.environment import requires
from bert_embed.base.errors import InputError, counted
from bert_embed.base.threads import in_parallel
from bert_embed.models.heads.kinds import KINDS
from bert_embed.pipeline.options.commands import TSNE
from bert_embed.results.columns import python_values
from bert_embed.results.files import holds_vectors, row_batches
from bert_embed.results.names import kinds_of
from bert_embed.results.run_record import RunRecord
from bert_embed.storage.files import join, names_in
from bert_embed.transforms.output_folder import OutputFolder

MOST_ROWS = 20_000
_MOST_BYTES = 64 << 20  # of vectors in memory: wide ones give fewer rows
MOST_FILES = 128
_BATCH = 256  # rows that are read at a time: their whole texts are in memory until they are cut
_TEXT_LETTERS = 500  # of a text that are kept: enough for its most frequent words
_COLUMNS = ("id", "start", "stop", "num_tokens_full", "text_hash", "text")


@dataclass(frozen=True)
class Run:
    """A finished run that a report is about."""

    folder: OutputFolder
    record: RunRecord


@dataclass(frozen=True)
class Sample:
    """Documents of a run, or their windows or chunks, with their vectors."""

    vectors: np.ndarray  # float32 `[rows, width]`
    ids: list[Any]  # the documents' ids
    files: list[str]  # which file holds each row
    # starts, stops: The code points of windows and chunks; None for whole documents
    starts: list[int] | None = None
    stops: list[int] | None = None
    # The beginning of each text; None where the output holds none
    texts: list[str | None] | None = None
    # Tokens of each document if nothing had been cut; None for pieces
    full_lengths: list[int] | None = None
    repeated: int | None = None  # documents with the text of an earlier one; None for pieces
    extra: dict[str, list[Any]] = field(default_factory=dict)  # the extra columns, by name
    total: int = 0  # rows in the output, sampled or not

    def __len__(self) -> int:
        return len(self.ids)


def take_sample(run: Run) -> Sample | None:
    """The first rows of files, evenly spread over the output; None: no vectors of texts."""
    settings = run.record.vectors
    if settings is None or "sentence" not in kinds_of(settings):
        return None
    kind, rows = _written(run.record)
    if not kind:
        return None
    most = min(MOST_ROWS, _MOST_BYTES // (4 * math.prod(settings["shape"])))
    names = _some_files(run, kind, MOST_FILES)
    limit = max(rows if rows <= most else most // max(len(names), 1), 1)
    parts = list(in_parallel(lambda name: _read(run, name, limit), names))
    extra = run.record.input.extra_columns or {}
    return _joined(names, parts, extra, rows if rows > most else None)


def _written(record: RunRecord) -> tuple[str, int]:
    """The kind of a run's vectors of texts, "" if it wrote none, and their rows."""
    written = record.numbers.written
    kind = next((kind for kind in KINDS["sentence"].places if kind in written), "")
    return kind, written[kind].rows if kind else 0


def _some_files(run: Run, kind: str, most: int) -> list[str]:
    """Names of files of vectors, evenly spread; InputError if the run wrote more, or fewer."""
    place = join(run.folder.path, kind)
    names = list(filter(holds_vectors, (f"{kind}/{name}" for name in names_in(place))))
    if len(names) != (written := run.record.numbers.written[kind].files):
        raise InputError(
            f"{place} holds {counted(len(names), 'file')}, its run wrote "
            f"{written}: `bert-embed verify` lists what is missing or extra"
        )
    return [names[at] for at in spread(len(names), most)]


def spread(count: int, most: int) -> list[int]:
    """Up to `most` of the numbers below `count`, evenly spread.

    >>> spread(3, 10), spread(10, 3)
    ([0, 1, 2], [0, 3, 6])
    """
    chosen = min(count, most)
    return [at * count // chosen for at in range(chosen)]


def _read(run: Run, name: str, rows: int) -> tuple[list[np.ndarray], dict[str, list[Any]]]:
    """Vectors and columns of the first rows of a file; of whole texts few are in memory."""
    vectors: list[np.ndarray] = []
    columns: dict[str, list[Any]] = {}
    extra = run.record.input.extra_columns or {}
    for batch in row_batches(
        *(run.folder.path_of(name), run.record.settings),
        columns=(*_COLUMNS, *extra),
        rows=_BATCH,
        limit=rows,
        types=extra,
    ):
        vectors.append(batch.vectors)
        for column in batch.columns.column_names:
            values = python_values(batch.columns[column])
            columns.setdefault(column, []).extend(map(_cut, values))
    return vectors, columns


def _cut(value: Any) -> Any:
    return value[:_TEXT_LETTERS] if isinstance(value, str) else value


def _joined(
    names: list[str],
    parts: list[tuple[list[np.ndarray], dict[str, list[Any]]]],
    extra: Mapping[str, str],
    total: int | None,
) -> Sample:
    """The rows of all files; `total` is None if these are all rows."""
    rows = [(part, len(part.get("id", ()))) for _, part in parts]
    columns: dict[str, list[Any]] = {
        column: [value for part, count in rows for value in part.get(column, [None] * count)]
        for column in dict.fromkeys(column for part, _ in rows for column in part)
    }
    vectors = [batch for batches, _ in parts for batch in batches]
    hashes = columns.get("text_hash")
    of_rows = [name for name, (_, count) in zip(names, rows, strict=True) for _ in range(count)]
    return Sample(
        vectors=np.concatenate(vectors or [np.empty((0, 1), np.float32)]),
        ids=columns.get("id", []),
        files=of_rows,
        starts=columns.get("start"),
        stops=columns.get("stop"),
        texts=None if "text" in extra else columns.get("text"),
        full_lengths=columns.get("num_tokens_full"),
        repeated=None if hashes is None else len(hashes) - len({*hashes}),
        extra={name: columns[name] for name in extra if name in columns},
        total=len(of_rows) if total is None else total,
    )


_SEED = 42
_DIRECTIONS = 50  # directions that clusters and t-SNE see: what is beyond is mostly noise
_FITTED = 4096  # vectors, evenly spread, that decide on the directions
_SPARE, _ROUNDS = 10, 6  # further directions, and rounds, that make those kept exact
_FEWEST = 3  # vectors of which directions can be told
_PERPLEXITY = 30
_PACKAGE = "openTSNE"
_FEWEST_POINTS = 100  # of which t-SNE is made unasked: of fewer a plane shows as much
UNASKED = 2000  # at most: of more it takes longer than five seconds of a core
_QUICK = 2000  # points up to which Barnes and Hut's method is the faster one


def main_directions(vectors: np.ndarray) -> np.ndarray | None:
    """float32 `[rows, directions]`: where float32 `[rows, width]` lie along at most 50 directions.

    Those of most variance come first, by a randomized singular value decomposition (Halko,
    Martinsson and Tropp, 2011). None: too few different rows.
    """
    if len(vectors) < _FEWEST:
        return None
    middle = vectors.mean(axis=0, dtype=np.float64)
    # In float64, so that the order in which threads add numbers moves no point of a map.
    centred = vectors[spread(len(vectors), _FITTED)].astype(np.float64) - middle
    if np.square(centred).sum() <= np.finfo(np.float32).eps * float(np.square(vectors).sum()):
        return None  # all vectors are equal
    width = vectors.shape[1]
    directions = min(_DIRECTIONS, len(centred) - 1, width)
    draw = np.random.default_rng(_SEED)
    axes = draw.standard_normal((width, min(directions + _SPARE, width)))
    for _ in range(_ROUNDS):
        axes, _ = np.linalg.qr(centred.T @ (centred @ axes))
    axes = axes @ np.linalg.svd(centred @ axes, full_matrices=False)[2].T[:, :directions]
    # An axis may point either way: the largest number of each is positive.
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    parts = np.array_split(vectors, -(-len(vectors) // _FITTED))
    return np.concatenate([(part - middle) @ axes for part in parts]).astype(np.float32)


def projections(places: np.ndarray, chosen: str | None) -> list[dict[str, Any]]:
    """The maps of a page, of `main_directions`: that of `chosen` first, and always that of PCA.

    With None it is t-SNE where openTSNE is installed, and that takes seconds and shows more.
    """
    if chosen is None and _FEWEST_POINTS <= len(places) <= UNASKED and not lacks_tsne():
        chosen = TSNE
    plane = places[:, :2]
    if plane.shape[1] < 2:  # of vectors of one number
        plane = np.pad(plane, ((0, 0), (0, 1)))
    maps = [_named("PCA", "numpy", {}, plane)]
    if chosen == TSNE and len(places) > _PERPLEXITY:
        maps.insert(0, _tsne(places))
    return maps


def lacks_tsne() -> bool:
    """Whether a map by t-SNE needs a package that is not installed."""
    return find_spec(_PACKAGE) is None


def check_projection(chosen: str | None) -> None:
    """Checks that what computes a map is installed; InputError if it is not."""
    if chosen == TSNE:
        _tsne_function()


def _tsne_function() -> Callable[..., Any]:
    with requires("--projection tsne", "openTSNE"):
        import openTSNE
    return openTSNE.TSNE


def _tsne(places: np.ndarray) -> dict[str, Any]:
    # One thread: sums over several are rounded in another order, and the map would change.
    settings: dict[str, Any] = {
        "perplexity": min(_PERPLEXITY, (len(places) - 1) // 3),  # as many as have neighbours
        "initialization": "pca",
        # The time of the first grows with the points, that of the second is ten seconds for any.
        "negative_gradient_method": "bh" if len(places) <= _QUICK else "fft",
        "theta": 0.8,
        "early_exaggeration_iter": 150,
        "n_iter": 250,
        "random_state": _SEED,
        "n_jobs": 1,
    }
    plane = np.asarray(_tsne_function()(**settings).fit(places))
    plane = plane @ np.linalg.eigh(plane.T @ plane)[1][:, ::-1]  # the long side lies across
    return _named("t-SNE", "openTSNE", settings | {"directions": places.shape[1]}, plane)


def _named(name: str, package: str, parameters: dict[str, Any], at: np.ndarray) -> dict[str, Any]:
    # Here, because searches import this file without drawing, and a parser of mail comes with it.
    from importlib.metadata import version

    # A few far ones shrink no map: they lie on its edge.
    low, high = np.quantile(at, (0.005, 0.995), axis=0)
    room = (high - low).max() / 8 if (high > low).any() else np.inf
    low, high = np.maximum(at.min(axis=0), low - room), np.minimum(at.max(axis=0), high + room)
    size = max(float((high - low).max()), 1e-12)
    middle = (low + high) / 2
    whole = np.rint(((np.clip(at, low, high) - middle) / size + 0.5) * 10_000).astype(int)
    return {
        "name": name,
        "package": package,
        "version": version(package),
        "parameters": parameters,
        "extent": np.maximum(np.rint((high - low) / size * 10_000), 1).astype(int).tolist(),
        "x": whole[:, 0].tolist(),
        "y": whole[:, 1].tolist(),
    }
