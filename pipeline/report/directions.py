"""Finds the main directions of vectors (PCA), and their places in two dimensions."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np

from bert_embed.pipeline.arguments import TSNE
from bert_embed.pipeline.report.sample import spread
from bert_embed.storage.packages import requires

_SEED = 42
_DIRECTIONS = 50  # directions that clusters and t-SNE see: what is beyond is mostly noise
_FITTED = 4096  # vectors, evenly spread, that decide on the directions
_SPARE, _ROUNDS = 10, 6  # further directions, and rounds, that make those kept exact
_TINY = 1e-12
_SHARES = 20  # that the page shows
_FEWEST = 3  # vectors of which directions can be told
_PERPLEXITY = 30
_PACKAGE = "openTSNE"
_FEWEST_POINTS = 100  # of which t-SNE is made unasked: of fewer a plane shows as much
UNASKED = 2000  # at most: of more it takes longer than five seconds of a core
_QUICK = 2000  # points up to which Barnes and Hut's method is the faster one


@dataclass(frozen=True)
class Directions:
    """The main directions of vectors."""

    places: np.ndarray  # float32 `[rows, directions]`, where each vector is along them, at most 50
    shares: list[float]  # the share of the variance in each, most first


def main_directions(vectors: np.ndarray) -> Directions | None:
    """The main directions of float32 `[rows, width]`, by subspace iteration; None: too few rows."""
    if len(vectors) < _FEWEST:
        return None
    middle = vectors.mean(axis=0)
    centred = vectors[spread(len(vectors), _FITTED)] - middle
    total = float(np.square(centred).sum())
    if total <= np.finfo(np.float32).eps * float(np.square(vectors).sum()):
        return None  # all vectors are equal
    width = vectors.shape[1]
    directions = min(_DIRECTIONS, len(centred) - 1, width)
    draw = np.random.default_rng(_SEED)
    axes = draw.standard_normal((width, min(directions + _SPARE, width)), "f4")
    for _ in range(_ROUNDS):
        axes = _orthonormal(centred.T @ (centred @ axes))
    squares, turns = _eigen(centred @ axes)
    axes = axes @ turns[:, :directions]
    # An axis may point either way: the largest number of each is positive.
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    shares = [round(square / total, 5) for square in squares[: min(directions, _SHARES)].tolist()]
    return Directions((vectors - middle) @ axes, shares)


def _orthonormal(columns: np.ndarray) -> np.ndarray:
    """float32 `[width, n]`: an orthonormal base of what columns of that shape span."""
    scaled = columns / np.linalg.norm(columns, axis=0).max()
    squares, turns = _eigen(scaled)
    return scaled @ (turns / np.sqrt(np.maximum(squares, _TINY))).astype(np.float32)


def _eigen(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvalues of the products of columns with each other, largest first, and the vectors.

    A few columns wide, so that it needs one thread: several wait for each other on busy processors.
    """
    wide = columns.astype(np.float64)
    values, vectors = np.linalg.eigh(wide.T @ wide)
    return np.maximum(values[::-1], 0), vectors[:, ::-1].astype(np.float32)


def projections(directions: Directions, chosen: str | None) -> list[dict[str, Any]]:
    """The maps of a page: that of `chosen` first, and always that of PCA.

    With None it is t-SNE where openTSNE is installed, and that takes seconds and shows more.
    """
    if chosen is None and _FEWEST_POINTS <= len(directions.places) <= UNASKED and not lacks_tsne():
        chosen = TSNE
    plane = directions.places[:, :2]
    if plane.shape[1] < 2:  # of vectors of one number
        plane = np.pad(plane, ((0, 0), (0, 1)))
    maps = [_named("PCA", "numpy", {"directions": 2}, plane)]
    if chosen == TSNE and len(directions.places) > _PERPLEXITY:
        maps.insert(0, _tsne(directions.places))
    return maps


def lacks_tsne() -> bool:
    """Whether a map by t-SNE needs a package that is not installed."""
    try:
        return find_spec(_PACKAGE) is None
    except ValueError:  # it is barred, as tests do
        return True


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
        "perplexity": _PERPLEXITY,
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
    plane = plane @ _eigen(plane)[1]  # the long side lies across
    return _named("t-SNE", "openTSNE", settings | {"directions": places.shape[1]}, plane)


def _named(name: str, package: str, parameters: dict[str, Any], at: np.ndarray) -> dict[str, Any]:
    low, high = np.quantile(at, (0.005, 0.995), axis=0)  # a few far ones shrink no map
    if not (high > low).any():
        low, high = at.min(axis=0), at.max(axis=0)
    size = max(float((high - low).max()), 1e-12)
    middle = (low + high) / 2
    whole = np.clip(np.rint(((at - middle) / size + 0.5) * 10_000), -2000, 12_000).astype(int)
    return {
        "name": name,
        "package": package,
        "version": version(package),
        "parameters": parameters,
        "extent": np.maximum(np.rint((high - low) / size * 10_000), 1).astype(int).tolist(),
        "x": whole[:, 0].tolist(),
        "y": whole[:, 1].tolist(),
    }
