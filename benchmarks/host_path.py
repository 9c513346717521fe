"""Everything but the model: our blocks against rows, with a model that costs nothing.

`python -m benchmarks.host_path [--sentences 500000] [--rounds 3]`. CPU seconds on one core from a
text file to Parquet. The rows' way is ReadFromText, FastBertTokenizer in batches, RunInference,
WriteToParquet. What a process takes for the first 1,000 sentences is start-up, taken off both.
"""

import argparse
from collections.abc import Callable
from functools import partial

from benchmarks import measure
from benchmarks.null_model import BLOCKS, ROWS, embed, line_file

_SMALL = 1000


def main() -> None:
    """Measures both ways in turn and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    measure.one_core()
    whole, small = line_file(args.sentences), line_file(_SMALL)
    sides: dict[str, Callable[[], measure.Spent]] = {}
    for name in (BLOCKS, ROWS):
        sides[name] = partial(embed, name, whole)
        sides[f"{name}, start-up"] = partial(embed, name, small)
    spent = measure.in_turn(sides, args.rounds)
    results = {
        name: figures(spent[name], spent[f"{name}, start-up"], args.sentences - _SMALL)
        for name in (BLOCKS, ROWS)
    }
    ratio = results[ROWS]["cpu_seconds"] / results[BLOCKS]["cpu_seconds"]
    record = {
        "benchmark": "host_path",
        "data": f"{args.sentences} docstring sentences, {_SMALL} of them as start-up; one core",
        "rounds": args.rounds,
        "results": results,
        "ratio": round(ratio, 2),
    }
    rows = [_row(name, results[name], results[BLOCKS]["cpu_seconds"]) for name in results]
    measure.report(
        record, ["side", "CPU s", "spread", "sentences/CPU s", "start-up CPU s", "ours is"], rows
    )


def figures(
    spent: list[measure.Spent], startup: list[measure.Spent], sentences: int
) -> dict[str, float]:
    """Returns the medians of a side over its rounds, start-up taken off."""
    cpu = measure.Figure.of(
        [(whole - start).cpu for whole, start in zip(spent, startup, strict=True)]
    )
    return {
        "cpu_seconds": round(cpu.median, 2),
        "spread": round(cpu.spread, 3),
        "sentences_per_cpu_second": round(sentences / cpu.median),
        "startup_cpu_seconds": round(measure.Figure.of([start.cpu for start in startup]).median, 2),
    }


def _row(name: str, result: dict[str, float], ours: float) -> list[str]:
    return [
        name,
        f"{result['cpu_seconds']:.1f}",
        f"{result['spread']:.2f}",
        f"{result['sentences_per_cpu_second']:,.0f}",
        f"{result['startup_cpu_seconds']:.1f}",
        f"{result['cpu_seconds'] / ours:.2f} x",
    ]


if __name__ == "__main__":
    main()
