"""Memory: the most our process holds over few and over many documents, with a model of no cost.

`python -m benchmarks.memory [--few 50000] [--many 1000000] [--rounds 3]`. The peak is that of the
whole process, TensorFlow included; what it holds must depend on the block, not on the input.
"""

import argparse
from functools import partial

from benchmarks import measure
from benchmarks.null_model import BLOCKS, embed, line_file


def main() -> None:
    """Measures both sizes in turn and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few", type=int, default=50_000)
    parser.add_argument("--many", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    files = {f"{count:,} documents": line_file(count) for count in (args.few, args.many)}
    spent = measure.in_turn(
        {name: partial(embed, BLOCKS, text) for name, text in files.items()}, args.rounds
    )
    few, many = (measure.Figure.of([each.peak / 2**20 for each in spent[name]]) for name in files)
    ratio = many.median / few.median
    record = {
        "benchmark": "memory",
        "data": f"docstring sentences, {args.few} and {args.many}",
        "rounds": args.rounds,
        "peak_mib": {"few": round(few.median, 1), "many": round(many.median, 1)},
        "spread": {"few": round(few.spread, 3), "many": round(many.spread, 3)},
        "ratio": round(ratio, 3),
    }
    rows = [
        [name, f"{figure.median:,.0f}", f"{figure.spread:.3f}", f"{figure.median / few.median:.3f}"]
        for name, figure in zip(files, (few, many), strict=True)
    ]
    measure.report(record, ["input", "peak MiB", "spread", "times the first"], rows)


if __name__ == "__main__":
    main()
