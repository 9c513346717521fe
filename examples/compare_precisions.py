"""Embed a corpus as float32, convert it to int8, ubinary and fewer numbers, print what each loses.

A row of the table is what `bert-embed compare` says of that output and the one of float32: bytes of
a vector, and how many of the nearest neighbours stay the same, with 95% intervals.

Usage, from the clone's folder:
    python -m examples.compare_precisions FILE FOLDER [--text_column NAME] [--model MODEL]
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bert_embed

VARIANTS: dict[str, dict[str, Any]] = {
    "int8": {"output_dtype": "int8"},
    "ubinary": {"output_dtype": "ubinary"},
    "dim 128": {"dim": 128},
}


def table(source: Path, folder: Path, **flags: Any) -> list[list[str]]:
    """The rows of the table, the titles first; the same call again computes nothing anew."""

    def size(output: Path) -> str:
        written = json.loads((output / "run.json").read_text("utf-8"))["written"]["embeddings"]
        return f"{written['bytes'] / written['rows']:,.0f}"

    whole = folder / "float32"
    bert_embed.embed(source, whole, show_progress=False, **flags)
    rows = [["", "bytes a row", "first 1", "first 10", "first 100", "rank correlation"]]
    rows.append(["float32", size(whole), *["1.000"] * 4])
    for name, options in VARIANTS.items():
        output = folder / name.replace(" ", "_")
        bert_embed.export(whole, output, "parquet", **options)
        found = bert_embed.compare(whole, output)
        estimates = found.overlap_at_1, found.overlap_at_10, found.overlap_at_100
        rows.append(
            [name, size(output)]
            + [
                f"{one.mean:.3f} ({one.low:.3f} to {one.high:.3f})"
                for one in (*estimates, found.rank_correlation)
            ]
        )
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; returns 0, or 2 where the corpus or the model will not do."""
    parser = argparse.ArgumentParser(
        description="What int8, ubinary and 128 numbers lose of the neighbours of float32."
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the corpus, as embed takes it")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="for the four outputs")
    parser.add_argument("--model", default="minilm", help="as embed takes it (default: minilm)")
    parser.add_argument("--text_column", default="text", help="as embed takes it (default: text)")
    args = parser.parse_args(arguments)
    try:
        rows = table(args.file, args.folder, model=args.model, text_column=args.text_column)
    except (ValueError, bert_embed.RunFailed) as error:  # which too many bad records are
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())
