"""Processes or threads.

A runner may start a process a core or one process with a thread a core. Here both embed the same
sentences, with vectors of sentences and with those of all tokens: all processes load and warm up,
then start together, and the clock runs until the last is done. Memory is what each holds then,
while the others live: PSS counts what processes share once, RSS in each of them.
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks import measure
from benchmarks.corpus import FOLDER, english_sentences, write_lines
from bert_embed.base.environment import available_cores

OUTPUTS = ("sentence", "token")
_FIGURES = ("tokens_per_second", "pss_mib", "rss_mib")

Rounds = list[dict[str, float]]


def processes(
    name: str,
    sentences: int = 3000,
    rounds: int = 3,
    precisions: Sequence[str] = ("float32", "int8"),
) -> None:
    """Measures both ways in turn."""
    text = write_lines(FOLDER / "processes.txt", english_sentences(sentences)).absolute()
    cores = available_cores()
    ways = {f"{cores} processes, 1 thread": (cores, 1), f"1 process, {cores} threads": (1, cores)}
    every: dict[str, Rounds] = {}
    for turn in range(rounds):
        for precision in precisions:
            for way, (count, threads) in ways.items():
                for output, figures in together(text, count, threads, precision).items():
                    every.setdefault(f"{precision}, {output}, {way}", []).append(figures)
        print(f"round {turn + 1} of {rounds}", flush=True)
    results = {title: _summary(each) for title, each in every.items()}
    record = {"benchmark": name, "data": f"{sentences} docstring sentences", "rounds": rounds}
    columns = {
        "precision, output, way": "{name}",
        "tokens/s of all": "{tokens_per_second}",
        "spread": "{spread:.2f}",
        "PSS MiB a process": "{pss_mib}",
        "RSS MiB a process": "{rss_mib}",
    }
    measure.report(record, columns, results)


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
