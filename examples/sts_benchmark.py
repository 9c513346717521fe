"""Measure a model on rated pairs of sentences: Spearman and Pearson of its cosines, times 100.

Reads STS Benchmark in the forms it goes about in, and any file of pairs in one of them:

- tab-separated without a header (`sts-test.csv`): the score, the two sentences in columns 5 to 7;
- tab- or comma-separated with a header that names `sentence1`, `sentence2` and `score` (or
  `similarity_score`); a column `split`, where there is one, chooses the rows;
- comma-separated without a header: the sentences in columns 1 and 2, the score in column 3;
- JSON lines with those names; all of them also with `.gz`.

Usage, from the clone's folder: python -m examples.sts_benchmark FILE [--model MODEL]
"""

import argparse
import csv
import gzip
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import bert_embed

_SCORES = ("score", "similarity_score")
_TABBED = {"score": 4, "sentence1": 5, "sentence2": 6}  # the original release has no header
_COMMAS = {"sentence1": 0, "sentence2": 1, "score": 2}
_MISSING = "a pair must have sentence1, sentence2 and a number as its score"


@dataclass(frozen=True)
class Pair:
    """Two sentences and how alike people found them, on whatever scale."""

    first: str
    second: str
    score: float


def read_pairs(path: Path, split: str = "test") -> list[Pair]:
    """Reads a file of rated pairs.

    Args:
        path: Its name tells JSON lines (`.jsonl`) and gzip (`.gz`); its first line the rest.
        split: The rows taken, where the file says of which split each is.

    Raises:
        ValueError: No such file, no pairs in it, or a row that is no pair; the line is named.
    """
    name = path.name.removesuffix(".gz")
    try:
        with (gzip.open if path.name.endswith(".gz") else open)(
            path, "rt", encoding="utf-8", newline=""
        ) as file:
            lines = list(file)
        rows = _json_rows(lines) if name.endswith(".jsonl") else _table_rows(lines)
        pairs = [
            _pair(path, number, row)
            for number, row in rows
            if row.get("split") is None or row["split"] == split
        ]
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if len(pairs) < 2:
        raise ValueError(
            f"{path} must hold at least 2 pairs (of split {split!r}), got {len(pairs)}"
        )
    return pairs


def _json_rows(lines: Sequence[str]) -> Iterator[tuple[int, Mapping[str, object]]]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            row = json.loads(line)
            yield number, row if isinstance(row, dict) else {}


def _table_rows(lines: Sequence[str]) -> Iterator[tuple[int, Mapping[str, object]]]:
    tabbed = bool(lines) and "\t" in lines[0]
    if tabbed:  # a quotation mark in the sentences of the original release is only that
        reader = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(lines)
    columns = _TABBED if tabbed else _COMMAS
    for place, cells in enumerate(reader):
        if place == 0 and "sentence1" in cells:
            columns = {name: at for at, name in enumerate(cells)}
        elif cells:
            row = {name: cells[at] for name, at in columns.items() if at < len(cells)}
            yield reader.line_num, row


def _pair(path: Path, line: int, row: Mapping[str, object]) -> Pair:
    first, second = row.get("sentence1"), row.get("sentence2")
    score = next((row[name] for name in _SCORES if name in row), None)
    if not isinstance(first, str) or not isinstance(second, str):
        raise ValueError(f"{path}, line {line}: {_MISSING}")
    try:
        return Pair(first, second, float(str(score)))
    except ValueError as error:
        raise ValueError(f"{path}, line {line}: {_MISSING}") from error


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Cosines of the vectors in the same row, float64 `[rows]`, of two float `[rows, width]`."""
    a, b = first.astype(np.float64), second.astype(np.float64)
    return (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


def pearson(x: np.ndarray, y: np.ndarray) -> float:
    """Pearson's correlation of two float `[n]`; NaN where one of them is constant.

    >>> round(pearson(np.array([1.0, 2.0, 4.0]), np.array([2.0, 4.0, 8.0])), 12)
    1.0
    """
    a, b = x - x.mean(), y - y.mean()
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale > 0 else float("nan")


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's rank correlation of two float `[n]`: Pearson's of their ranks.

    >>> round(spearman(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 4.0, 9.0, 8.0])), 12)
    0.8
    """
    return pearson(ranks(x), ranks(y))


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1, float64 `[n]`; equal values share the mean of the ranks they take up.

    >>> ranks(np.array([10.0, 30.0, 20.0, 30.0])).tolist()
    [1.0, 3.5, 2.0, 3.5]
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[place]


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints both figures; returns 0, or 2 where the file or the model will not do."""
    parser = argparse.ArgumentParser(
        description="Spearman and Pearson, times 100, of a model's cosines with people's scores."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="rated pairs: csv, tsv, jsonl, .gz")
    parser.add_argument("--model", default="minilm", help="as embed takes it (default: minilm)")
    parser.add_argument("--precision", default="float32", help="as embed takes it")
    parser.add_argument(
        "--split", default="test", help="where the file has several (default: test)"
    )
    args = parser.parse_args(arguments)
    try:
        pairs = read_pairs(args.file, args.split)
        encoder = bert_embed.load(args.model, precision=args.precision)
    except ValueError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    vectors = encoder.encode([one.first for one in pairs] + [one.second for one in pairs])
    similarities = cosines(vectors[: len(pairs)], vectors[len(pairs) :])
    scores = np.array([one.score for one in pairs])
    print(f"{len(pairs):,} pairs of {args.file.name}, model {args.model}, {args.precision}")
    print(f"Spearman {100 * spearman(similarities, scores):.2f}")
    print(f"Pearson  {100 * pearson(similarities, scores):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
