"""Where the time around the model goes: processor time of each room, with a model of no cost.

`python -m benchmarks.host_profile [--sentences 500000] [--rounds 3]`. One core, a text file to
Parquet, as our side of `benchmarks.host_path`. What a run over the first 1,000 sentences takes in
the same room is start-up, taken off. What no room has is Beam's, the plan's and the account's.
"""

import argparse
import os
import statistics

from benchmarks import measure
from benchmarks.null_model import line_file, profile
from benchmarks.sides.null_profile import ROOMS

_SMALL = 1000
_ALL, _REST = "everything", "Beam, plan, account"


def main() -> None:
    """Measures the rooms and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # the processes inherit it
    whole, small = line_file(args.sentences), line_file(_SMALL)
    names = [*ROOMS, _ALL]
    found: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(args.rounds):
        startup, seconds = profile(small), profile(whole)
        for name in names:
            found[name].append(seconds[name] - startup[name])
        print(f"round {turn + 1} of {args.rounds}: {found[_ALL][-1]:.1f} s", flush=True)
    each = args.sentences - _SMALL
    spent = {name: statistics.median(found[name]) / each * 1e6 for name in names}
    rooms = [name for name in ROOMS if ":" not in name]
    spent[_REST] = spent[_ALL] - sum(spent[name] for name in rooms)
    record = {
        "benchmark": "host_profile",
        "data": f"{args.sentences} docstring sentences, {_SMALL} of them as start-up; one core",
        "rounds": args.rounds,
        "microseconds_a_sentence": {name: round(value, 3) for name, value in spent.items()},
    }
    order = [*ROOMS, _REST, _ALL]
    rows = [[name, f"{spent[name]:.2f}", f"{spent[name] / spent[_ALL]:.0%}"] for name in order]
    measure.report(record, ["room", "microseconds a sentence", "share"], rows)


if __name__ == "__main__":
    main()
