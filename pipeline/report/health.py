"""Says whether vectors look healthy: their norms, cosines, equal ones, and main directions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from bert_embed.pipeline.report.directions import Directions
from bert_embed.storage.plurals import counted
from bert_embed.vectors import FINE, conditions, pair_cosines

_SEED = 20_000
_PAIRS = 20_000
_BINS = 40
_UNIT = 0.01  # how far from 1 a norm of normalized vectors may be once stored in few bits
_ALIKE = 0.7  # mean cosine of random pairs above which vectors hardly tell texts apart
_NARROW = 0.5  # share of the variance in one direction above which texts differ in little else
_MANY_EQUAL = 0.1
_FEW = 10  # vectors, which are alike by chance, and of which cosines and variance tell nothing


@dataclass(frozen=True)
class Finding:
    """One fact about the vectors."""

    name: str  # what was looked at
    value: str  # what was found, for people
    normal: str  # what is normal, in one sentence
    healthy: bool  # whether it is


def equal_ids(count: int) -> Finding:
    """Says of how many documents the id is that of another one."""
    return Finding(
        "Equal ids",
        f"{counted(count, 'document has', 'documents have')} the id of another one",
        "None is normal. By such an id vectors cannot be joined to a table: --id_column takes one "
        "with unique values.",
        False,
    )


def usable_rows(vectors: np.ndarray) -> np.ndarray:
    """int64 `[rows]`: the numbers of the vectors that are finite and not zero."""
    return np.flatnonzero(conditions(vectors) == FINE)


def health(
    vectors: np.ndarray,
    settings: Mapping[str, Any],
    directions: Directions | None,
    repeated: int | None,
) -> dict[str, Any]:
    """What the report says of float32 `[rows, width]`, with histograms of norms and cosines."""
    usable = vectors[usable_rows(vectors)]
    norms = np.sqrt(np.vecdot(usable, usable)) if len(usable) else np.empty(0)
    cosines = random_cosines(usable)
    bad = int((~np.isfinite(vectors)).any(axis=1).sum())
    zero = len(vectors) - len(usable) - bad
    equal = equal_vectors(vectors)
    findings = [_broken(bad, zero)]
    if len(usable):
        findings.append(_norms(norms, settings))
    if len(cosines):
        findings += [_cosines(cosines, len(usable)), _equal(equal, len(vectors), repeated)]
    if directions is not None:
        findings.append(_directions(directions, len(usable)))
    return {
        "rows": len(vectors),
        "findings": [vars(finding) for finding in findings],
        "norms": histogram(norms[:0] if _are_one(norms) else norms),
        "cosines": histogram(cosines),
        "mean_cosine": round(float(cosines.mean()), 4) if len(cosines) else None,
        "equal": equal,
        "not_finite": bad,
        "zero": zero,
        "variances": [] if directions is None else directions.shares,
    }


def random_cosines(vectors: np.ndarray) -> np.ndarray:
    """float64 `[pairs]`: cosines of pairs of different rows, drawn with a fixed seed."""
    if len(vectors) < 2:
        return np.empty(0)
    draw = np.random.default_rng(_SEED)
    left = draw.integers(0, len(vectors), _PAIRS)
    right = (left + draw.integers(1, len(vectors), _PAIRS)) % len(vectors)
    return pair_cosines(vectors, left, vectors, right)


def equal_vectors(vectors: np.ndarray) -> int:
    """How many vectors are equal to an earlier one, bit for bit."""
    rows = np.ascontiguousarray(vectors)
    return len(rows) - len({xxhash.xxh3_64_intdigest(row) for row in rows})


def histogram(values: np.ndarray) -> dict[str, Any]:
    """Counts of values in equal bins, with the ends of the range."""
    if not len(values):
        return {"low": 0, "high": 0, "counts": []}
    low, high = float(values.min()), float(values.max())
    if high - low < 1e-6 * max(abs(high), 1e-6):  # no more than rounding
        low, high = low - abs(low) / 100, high + abs(high) / 100
    counts, _ = np.histogram(values, _BINS, (low, high))
    return {"low": round(low, 6), "high": round(high, 6), "counts": counts.tolist()}


def _broken(bad: int, zero: int) -> Finding:
    return Finding(
        "NaN and zero vectors",
        f"{bad:,} with a number that is not finite, {zero:,} of zeros",
        "Normal is none: such a vector is near nothing, and spoils sums and indexes.",
        bad == zero == 0,
    )


def _norms(norms: np.ndarray, settings: Mapping[str, Any]) -> Finding:
    low, middle, high = (float(norm) for norm in np.quantile(norms, (0, 0.5, 1)))
    binary = settings["output_dtype"] == "ubinary"
    # Several layers side by side, each of length 1, are longer.
    unit = settings["normalize"] and settings["layer_combine"] != "stack" and not binary
    if binary:
        normal = "Stored as bits, read back as 1 and -1: all have the same length."
    elif unit:
        normal = "These vectors are normalized: every length is 1, up to rounding."
    elif settings["normalize"] and not binary:
        normal = "The vector of each layer is normalized: all have the same length, up to rounding."
    else:
        normal = "Not normalized: lengths within a factor of about two are normal; use cosines."
    healthy = abs(low - 1) < _UNIT and abs(high - 1) < _UNIT if unit else high < 10 * middle
    value = f"{low:.4g} to {high:.4g}, median {middle:.4g}"
    if _are_one(norms):
        value = f"all {middle:.4g}"
    return Finding("Length (norm)", value, normal, healthy)


def _are_one(norms: np.ndarray) -> bool:
    """Whether lengths differ by no more than rounding, of which no chart tells anything."""
    return bool(len(norms)) and f"{norms.min():.4g}" == f"{norms.max():.4g}"


def _cosines(cosines: np.ndarray, rows: int) -> Finding:
    mean = float(cosines.mean())
    return Finding(
        "Cosine of random pairs",
        f"{mean:.3f} on average",
        "Sentence models give 0 to 0.4 on a mixed corpus; pooled vectors of a plain BERT 0.5 to "
        f"0.8. Above {_ALIKE} scores differ little, and thresholds are hard to set.",
        mean <= _ALIKE or rows < _FEW,
    )


def _equal(count: int, rows: int, repeated: int | None) -> Finding:
    texts = "" if repeated is None else f"; {repeated:,} have the text of an earlier one"
    return Finding(
        "Equal vectors",
        f"{count:,} of {rows:,} ({100 * count / rows:.1f}%) are equal to an earlier one{texts}",
        "As many as there are repeated texts is normal. More means that different texts became "
        "the same tokens: they were cut to the same beginning, differ in case or spaces only, or "
        "hold words that the model does not know.",
        count - (repeated or 0) <= _MANY_EQUAL * rows or rows < _FEW,
    )


def _directions(directions: Directions, rows: int) -> Finding:
    first, ten = directions.shares[0], sum(directions.shares[:10])
    return Finding(
        "Variance by direction",
        f"{100 * first:.1f}% in the first, {100 * ten:.1f}% in the first ten",
        "A mixed corpus has 3 to 15% in the first and falls slowly; one subject, or two groups "
        f"far apart, up to {100 * _NARROW:.0f}%. Above that most numbers of the vectors say "
        "nothing.",
        # So few vectors have few directions, and most of the variance in one of them.
        first <= _NARROW or rows < _FEW,
    )
