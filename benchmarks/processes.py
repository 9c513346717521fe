"""Processes or threads: `python -m benchmarks.processes [--sentences 3000] [--rounds 3]`.

A runner may start a process a core or one process with a thread a core. Here both embed the same
sentences, with vectors of sentences and with those of all tokens: all processes load and warm up,
then start together, and the clock runs until the last is done. Memory is what each holds then,
while the others live: PSS counts what processes share once, RSS in each of them.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks import measure
from benchmarks.corpus import FOLDER, english_sentences, write_lines
from bert_embed.backends.processor import available_cores

OUTPUTS = ("sentence", "token")
_PRECISIONS = ("float32", "int8")
_FIGURES = ("tokens_per_second", "pss_mib", "rss_mib")

Rounds = list[dict[str, float]]


def main() -> None:
    """Measures both ways in turn and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", nargs="+", choices=_PRECISIONS, default=_PRECISIONS)
    args = parser.parse_args()
    text = write_lines(FOLDER / "processes.txt", english_sentences(args.sentences)).absolute()
    cores = available_cores()
    ways = {f"{cores} processes, 1 thread": (cores, 1), f"1 process, {cores} threads": (1, cores)}
    every: dict[str, Rounds] = {}
    for turn in range(args.rounds):
        for precision in args.precision:
            for way, (processes, threads) in ways.items():
                done = together(text, processes, threads, precision)
                for output, figures in done.items():
                    every.setdefault(f"{precision}, {output}, {way}", []).append(figures)
        print(f"round {turn + 1} of {args.rounds}", flush=True)
    results = {name: _summary(rounds) for name, rounds in every.items()}
    record = {
        "benchmark": "processes",
        "data": f"{args.sentences} docstring sentences",
        "rounds": args.rounds,
        "results": results,
    }
    header = ["precision, output, way", "tokens/s of all", "spread"]
    header += ["PSS MiB a process", "RSS MiB a process"]
    measure.report(record, header, [_row(name, result) for name, result in results.items()])


def together(
    text: Path, processes: int, threads: int, precision: str
) -> dict[str, dict[str, float]]:
    """Returns by output what processes do that share a text's lines and start together."""
    shares = [f"{number}/{processes}" for number in range(processes)]
    flags = ("--input", text, "--threads", threads, "--precision", precision)
    workers = [measure.Child("worker", *flags, "--share", share) for share in shares]
    figures = {}
    for output in OUTPUTS:
        _all_answer(workers, {"embed": output})  # to warm up
        spent = _all_answer(workers, {"embed": output})
        held = _all_answer(workers, {"memory": []})
        wall = max(one["stop"] for one in spent) - min(one["start"] for one in spent)
        figures[output] = {
            "tokens_per_second": sum(one["tokens"] for one in spent) / wall,
            "pss_mib": max(one["pss"] for one in held) / 2**20,
            "rss_mib": max(one["rss"] for one in held) / 2**20,
        }
    for worker in workers:
        worker.close()
    return figures


def _all_answer(workers: Sequence[measure.Child], question: object) -> Rounds:
    for worker in workers:
        worker.tell(question)
    return [worker.answer() for worker in workers]


def _summary(rounds: Rounds) -> dict[str, float]:
    figures = {name: measure.Figure.of([one[name] for one in rounds]) for name in _FIGURES}
    summary = {name: round(figure.median) for name, figure in figures.items()}
    return summary | {"spread": round(figures["tokens_per_second"].spread, 3)}


def _row(name: str, result: dict[str, float]) -> list[str]:
    rate, spread = f"{result['tokens_per_second']}", f"{result['spread']:.2f}"
    return [name, rate, spread, f"{result['pss_mib']}", f"{result['rss_mib']}"]


if __name__ == "__main__":
    main()
