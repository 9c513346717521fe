"""Computes what a sample says of the whole input, with the errors of sampling."""

import math
from dataclasses import dataclass
from itertools import chain

import numpy as np

from bert_embed.pipeline.estimate.choose import Stratum
from bert_embed.pipeline.estimate.sample import Measured, Sample

_SIGMAS = 2.0  # 95 of 100 samples lie within


@dataclass(frozen=True)
class Figure:
    """A number and its error; the truth lies within it in about 95 of 100 samples."""

    value: float
    error: float | None = 0.0  # 0 where everything was read; None where nothing tells it

    def __str__(self) -> str:
        if self.error == 0:
            return f"{round(self.value):,}"
        if self.error is None:
            return f"about {round(self.value):,}"
        share = 100 * self.error / self.value if self.value else 100.0
        return f"{round(self.value):,} ± {share:.1f}%"


@dataclass(frozen=True)
class Figures:
    """What the sample says of the whole input."""

    documents: Figure
    tokens: Figure  # with special ones, after texts are cut
    vectors: Figure
    records: Figure  # documents and what is rejected
    text_bytes: float
    mean_length: float  # tokens of a document
    p95_length: int
    cut_texts: float  # share of the texts that are cut
    cut_tokens: float  # share of the tokens that are lost with it
    equal_texts: float  # share of the sampled texts that are equal to another one of the sample
    unknown: float  # share of [UNK] in the tokens of the sample
    exact: bool  # whether the sample is the whole input
    sampled_documents: int
    sampled_share: float


def figures_of(sample: Sample, limit: int | None) -> Figures:
    """The figures of a sample; `limit` is the most records that the run reads."""
    totals, variances, known = np.zeros(6), np.zeros(6), True
    text_bytes = size = read = 0.0
    for stratum, measured in sample.strata:
        total, variance, tells = _stratum_totals(stratum, measured)
        totals, variances, known = totals + total, variances + variance, known and tells
        size += stratum.size
        read += min(stratum.size, sum(piece.size for piece in measured))
        text_bytes += sum(
            _weight(stratum, measured, piece) * piece.text_bytes for piece in measured
        )
    if limit is not None and totals[1] > limit:
        totals, variances = totals * limit / totals[1], variances * (limit / totals[1]) ** 2
    errors = [_SIGMAS * math.sqrt(variance) if known else None for variance in variances.tolist()]
    documents, records, tokens, _, _, vectors = map(Figure, totals.tolist(), errors)
    lengths, weights = _lengths(sample)
    pieces = [piece for _, measured in sample.strata for piece in measured]
    hashes = np.concatenate([np.empty(0, np.int64), *chain(*(piece.hashes for piece in pieces))])
    text_tokens = sum(piece.text_tokens for piece in pieces)
    _, _, kept_tokens, full_tokens, cut_texts, _ = totals.tolist()
    return Figures(
        documents=documents,
        tokens=tokens,
        vectors=vectors,
        records=records,
        text_bytes=text_bytes,
        mean_length=kept_tokens / max(documents.value, 1),
        p95_length=_percentile(lengths, weights, 0.95),
        cut_texts=cut_texts / max(documents.value, 1),
        cut_tokens=(full_tokens - kept_tokens) / max(full_tokens, 1),
        equal_texts=1 - len(np.unique(hashes)) / max(len(hashes), 1) if len(hashes) else 0.0,
        unknown=sum(piece.unknown for piece in pieces) / max(text_tokens, 1),
        exact=all(stratum.exact for stratum, _ in sample.strata),
        sampled_documents=len(lengths),
        sampled_share=read / size if size else 1.0,
    )


def _weight(stratum: Stratum, measured: list[Measured], piece: Measured) -> float:
    """How many pieces of the whole a measured one stands for."""
    if stratum.exact or not piece.size:
        return 1.0
    return stratum.size * piece.times / (piece.size * sum(other.times for other in measured))


def _stratum_totals(
    stratum: Stratum, measured: list[Measured]
) -> tuple[np.ndarray, np.ndarray, bool]:
    """The totals of a kind of files, float64 `[6]`, and their variances, if they are known."""
    # Pieces are chosen in proportion to their size, so the mean per byte, times all bytes, has no
    # bias. Places at equal distances err less than random ones, which the variance is of.
    if stratum.exact or not measured:
        return sum((piece.counts for piece in measured), np.zeros(6)), np.zeros(6), True
    used = [piece for piece in measured if piece.size]
    times = np.array([piece.times for piece in used], np.float64)
    density = np.stack([piece.counts / piece.size for piece in used])
    count = times.sum()
    mean = times @ density / count
    spread = times @ (density - mean) ** 2 / max(count - 1, 1) / count
    unread = max(0.0, 1 - sum(piece.size for piece in used) / stratum.size)
    total, variance = stratum.size * mean, stratum.size**2 * spread * unread
    if stratum.records is not None and total[1]:  # how many records there are is known
        total[:2] *= stratum.records / total[1]
        seen = sum(piece.counts[1] for piece in used)
        # One more than was seen: that a sample has no rejected record does not say that none is.
        rejected = ((1 - mean[0] / mean[1]) * seen + 1) / (seen + 2)
        variance[:2] = stratum.records**2 * rejected * (1 - rejected) / count, 0.0
    return total, variance, len(used) > 1


def _lengths(sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """int32 `[documents]`, the tokens of each sampled document; and float64, what it stands for."""
    lengths, weights = [np.empty(0, np.int32)], [np.empty(0)]
    for stratum, measured in sample.strata:
        for piece in measured:
            lengths += piece.lengths
            documents = sum(map(len, piece.lengths))
            weights.append(np.full(documents, _weight(stratum, measured, piece)))
    return np.concatenate(lengths), np.concatenate(weights)


def _percentile(lengths: np.ndarray, weights: np.ndarray, share: float) -> int:
    if not len(lengths):
        return 0
    order = np.argsort(lengths)
    sums = np.cumsum(weights[order])
    return int(lengths[order][np.searchsorted(sums, share * sums[-1])])
