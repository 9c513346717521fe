"""Search by sparse and multi-vectors: a process that finds the nearest of one query, or of more.

`python -m benchmarks.search_kinds [--kinds sparse,multi] [--sparse 1000000] [--multi 100000]
[--queries 1,10] [--rounds 3]`. Documents are noise: 200 entries of 30,522, as SPLADE gives them,
drawn such that few entries are common; 32 tokens of 128 numbers in float16. A query has 30 entries,
or 32 tokens. The seconds are those of the whole process, start included, without a model. It runs
once before it is measured, so that the system holds the files in memory.
"""

import argparse
import shutil
import sys
from functools import partial
from pathlib import Path

from benchmarks import measure
from benchmarks.growth import WORK
from benchmarks.sides.nearest import DIM, ENTRIES, TOKENS, VOCABULARY

_SIDE = (sys.executable, "-m", "benchmarks.sides.nearest")
_TIMES = ("wall", "cpu")


def main() -> None:
    """Measures each kind with each number of queries and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kinds", default="sparse,multi")
    parser.add_argument("--sparse", type=int, default=1_000_000)
    parser.add_argument("--multi", type=int, default=100_000)
    parser.add_argument("--queries", default="1,10")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rows, results = [], {}
    for kind in args.kinds.split(","):
        output = _written(kind, documents := getattr(args, kind))
        size = sum(path.stat().st_size for path in output.rglob("*.parquet")) / documents
        try:
            sides = {
                queries: partial(_search, output, kind, queries)
                for queries in args.queries.split(",")
            }
            _search(output, kind, "1")
            spent = measure.in_turn(sides, args.rounds)
        finally:
            shutil.rmtree(output)
        for queries, runs in spent.items():
            wall, cpu = (measure.Figure.of([getattr(one, name) for one in runs]) for name in _TIMES)
            peak = measure.Figure.of([one.peak / 2**20 for one in runs])
            results[f"{kind}, {queries}"] = {
                "documents": documents,
                "bytes_a_document": round(size),
                "wall_s": round(wall.median, 2),
                "cpu_s": round(cpu.median, 2),
                "peak_mib": round(peak.median),
                "spread": round(wall.spread, 2),
            }
            shown = f"{wall.median:.2f}", f"{wall.spread:.2f}", f"{cpu.median:.2f}"
            of_kind = kind, f"{documents:,}", f"{size:,.0f}", queries
            rows.append([*of_kind, *shown, f"{peak.median:,.0f}"])
    record = {
        "benchmark": "search_kinds",
        "data": f"sparse: {ENTRIES} of {VOCABULARY:,} entries; multi: {TOKENS} tokens of {DIM}",
        "rounds": args.rounds,
        "found": results,
    }
    titles = ["kind", "documents", "bytes each", "queries", "seconds", "spread", "CPU seconds"]
    measure.report(record, [*titles, "peak MiB"], rows)


def _written(kind: str, documents: int) -> Path:
    """The files, which a process of its own writes: a child counts its parent's memory, too."""
    output = (WORK / f"search-{kind}-{documents}").absolute()
    shutil.rmtree(output, ignore_errors=True)
    measure.run([*_SIDE, "write", output, kind, documents])
    return output


def _search(output: Path, kind: str, queries: str) -> measure.Spent:
    return measure.run([*_SIDE, "find", output, kind, queries])


if __name__ == "__main__":
    main()
