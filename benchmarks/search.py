"""Search: the whole command over a finished output whose files are in memory, by number type.

`python -m benchmarks.search [--vectors 1000000] [--dtypes float32,int8] [--rounds 5]`. The vectors
are noise, written by a run with a model of no cost; the query is embedded by the real model. The
command runs once before it is measured, so that the system holds the files in memory.
"""

import argparse
import shutil
import sys
from functools import partial
from pathlib import Path

from benchmarks import measure
from benchmarks.growth import WORK, line_file

_QUERY = "make an object callable"
_TIMES = ("wall", "cpu")


def main() -> None:
    """Measures every number type in turn and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--dtypes", default="float32,float16,bfloat16,int8,ubinary")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    outputs = {dtype: _written(args.vectors, dtype) for dtype in args.dtypes.split(",")}
    try:
        for output in outputs.values():
            _search(output)
        spent = measure.in_turn(
            {dtype: partial(_search, output) for dtype, output in outputs.items()}, args.rounds
        )
    finally:
        for output in outputs.values():
            shutil.rmtree(output)
    rows, results = [], {}
    for dtype, runs in spent.items():
        wall, cpu = (measure.Figure.of([getattr(one, name) for one in runs]) for name in _TIMES)
        peak = measure.Figure.of([one.peak / 2**20 for one in runs])
        results[dtype] = {
            "wall_s": round(wall.median, 2),
            "cpu_s": round(cpu.median, 2),
            "peak_mib": round(peak.median),
            "spread": round(wall.spread, 2),
        }
        shown = f"{wall.median:.2f}", f"{wall.spread:.2f}", f"{cpu.median:.2f}"
        rows.append([dtype, *shown, f"{peak.median:,.0f}"])
    record = {
        "benchmark": "search",
        "data": f"{args.vectors:,} vectors of 384 numbers",
        "rounds": args.rounds,
        "found": results,
    }
    measure.report(record, ["number type", "seconds", "spread", "CPU seconds", "peak MiB"], rows)


def _written(vectors: int, dtype: str) -> Path:
    output = (WORK / f"search-{vectors}-{dtype}").absolute()
    shutil.rmtree(output, ignore_errors=True)
    side = [sys.executable, "-m", "benchmarks.sides.null_pipeline", f"--output_dtype={dtype}"]
    measure.run([*side, "--input", line_file(vectors), "--output", output])
    return output


def _search(output: Path) -> measure.Spent:
    return measure.run([sys.executable, "-m", "bert_embed", "search", output, _QUERY, "--k", 3])


if __name__ == "__main__":
    main()
