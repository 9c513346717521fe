"""Joins the hits that several kinds of vectors give a query."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from bert_embed.formats.output_files import parse_name
from bert_embed.nearest import Hit

FUSED = 1000  # hits of each kind that count
_CONSTANT = 60  # of the paper by Cormack, Clarke and Büttcher; what other programs use, too


def fused(rankings: Iterable[Sequence[Hit]]) -> list[Hit]:
    """Reciprocal rank fusion: a hit's score is the sum of 1 / (60 + rank) over its rankings.

    Ranks begin with 1. Of equal scores, the hit of the earlier ranking comes first.
    """
    scores: dict[tuple[object, ...], float] = {}
    hits: dict[tuple[object, ...], Hit] = {}
    for ranking in rankings:
        for rank, hit in enumerate(ranking, 1):
            row = _row(hit)
            hits.setdefault(row, hit)
            scores[row] = scores.get(row, 0.0) + 1 / (_CONSTANT + rank)
    order = sorted(scores, key=lambda row: -scores[row])
    return [replace(hits[row], score=scores[row]) for row in order]


def _row(hit: Hit) -> tuple[object, ...]:
    """What a hit shares with the same row's hits by other kinds: parts have the same rows."""
    name = parse_name(hit.file)
    part = hit.file if name is None else (name.block, name.part)
    return hit.folder, part, hit.row
