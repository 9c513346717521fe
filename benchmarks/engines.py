"""Our encoder beside other engines: `python -m benchmarks.engines [--precision float32|int8]`.

The encoder alone: token rows of real sentences in, pooled vectors of unit length out. Every engine
is a process of its own with one thread; they take turns, and each is shown at its own best number
of padded tokens a batch. The batches are the same for all. The rows are those of `--sentences`
sentences, sorted by length and cut to groups of 4,096 tokens, of which every `--every`th is taken.
"limit" is the share of the tokens that large float32 products alone would allow, filling not
counted; "kept" says how many of 32 vectors stay the same bit for bit with other neighbours, alone,
and padded to twice their length.
"""

import argparse
from pathlib import Path

import numpy as np

from benchmarks import measure
from benchmarks.engine_models import (
    ENGINES,
    Engine,
    EngineProcess,
    exported,
    row_file,
    vectors_of,
)
from benchmarks.peers import peer_versions
from benchmarks.sides.engine import OURS

_PACKAGES = ("onnxruntime", "openvino", "ctranslate2", "ai-edge-litert", "sentence-transformers")
_PACKAGES += ("torch",)
BUDGETS = (256, 512, 1024, 2048, 4096)
_HEADER = (
    *("engine", "tokens a batch", "tokens/CPU s", "spread", "ours is", "tokens/s", "padding"),
    *("limit", "cosine mean, min", "kept", "peak MiB", f"tokens/CPU s at {BUDGETS}"),
)

Passes = dict[int, list[dict[str, float]]]


def main() -> None:
    """Measures all engines in turn and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--precision", choices=[*ENGINES], default="float32")
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--every", type=int, default=27)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    rows = row_file(args.sentences, args.every)
    models = exported()
    engines = ENGINES[args.precision]
    swept, limit = sweep(engines, models, rows, args.rounds)
    results = {name: summary(passes, limit) for name, passes in swept.items()}
    reference = float32_vectors(models, rows)
    for name, result in results.items():
        result |= examined(engines[name], models, rows, int(result["batch_tokens"]), reference)
        ours = results[OURS]["tokens_per_cpu_second"]
        result["ours_is"] = round(ours / result["tokens_per_cpu_second"], 3)
    record = {
        "benchmark": "engines" if args.precision == "float32" else f"engines_{args.precision}",
        "data": f"{args.sentences} docstring sentences as token rows, every {args.every}th group",
        "rounds": args.rounds,
        "engines": peer_versions(*_PACKAGES),
        "limit_tokens_per_cpu_second": round(limit),
        "results": results,
    }
    measure.report(record, _HEADER, [_row(name, result) for name, result in results.items()])


def sweep(
    engines: dict[str, Engine], models: Path, rows: Path, rounds: int
) -> tuple[dict[str, Passes], float]:
    """Returns every pass of every engine by budget, and the tokens a CPU second of the limit."""
    processes = {name: EngineProcess(engine, models, rows) for name, engine in engines.items()}
    every: dict[str, Passes] = {name: {} for name in engines}
    limits = []
    for budget in BUDGETS:
        for turn in range(rounds + 1):
            for name, process in processes.items():
                taken = process.ask(**{"pass": budget})
                if turn:  # the first pass meets every shape for the first time
                    every[name].setdefault(budget, []).append(taken)
            limits.append(processes[OURS].ask(limit=[])["tokens_per_cpu_second"])
        rates = [f"{name} {_rate(passes[budget]):.0f}" for name, passes in every.items()]
        print(f"{budget} tokens a batch: {', '.join(rates)}; limit {limits[-1]:.0f}", flush=True)
    for process in processes.values():
        process.close()
    return every, float(np.median(limits))


def _rate(passes: list[dict[str, float]]) -> float:
    return float(np.median([each["tokens"] / each["cpu"] for each in passes]))


def summary(passes: Passes, limit: float) -> dict[str, object]:
    """Returns an engine's figures at its best budget."""
    rates = {budget: _rate(each) for budget, each in passes.items()}
    best = max(rates, key=lambda budget: rates[budget])
    chosen = passes[best]
    return {
        "batch_tokens": best,
        "tokens_per_cpu_second": round(rates[best]),
        "spread": round(measure.Figure.of([each["cpu"] for each in chosen]).spread, 3),
        "tokens_per_second": round(np.median([each["tokens"] / each["wall"] for each in chosen])),
        "padding": round(1 - chosen[0]["tokens"] / chosen[0]["padded"], 4),
        "share_of_limit": round(rates[best] / limit, 3),
        "by_budget": {str(budget): round(rate) for budget, rate in rates.items()},
    }


def float32_vectors(models: Path, rows: Path) -> np.ndarray:
    """Returns the vectors that all others are compared with: ours in float32."""
    process = EngineProcess(ENGINES["float32"][OURS], models, rows)
    vectors, _ = vectors_of(process, "reference", 1024)
    process.close()
    return vectors


def examined(
    engine: Engine, models: Path, rows: Path, budget: int, reference: np.ndarray
) -> dict[str, object]:
    """Returns what a fresh process of an engine holds at most, and how good its vectors are."""
    process = EngineProcess(engine, models, rows)
    vectors, taken = vectors_of(process, "vectors", budget)
    kept = process.ask(neighbours=[])
    process.close()
    cosine = (vectors * reference).sum(axis=1)
    return {
        "peak_mib": round(taken["peak"] / 2**20),
        "cosine_mean": round(float(cosine.mean()), 6),
        "cosine_min": round(float(cosine.min()), 6),
        "neighbours": kept,
    }


def _row(name: str, result: dict) -> list[str]:
    kept = result["neighbours"]
    return [
        name,
        f"{result['batch_tokens']}",
        f"{result['tokens_per_cpu_second']:.0f}",
        f"{result['spread']:.2f}",
        f"{result['ours_is']:.2f} x",
        f"{result['tokens_per_second']:.0f}",
        f"{result['padding']:.1%}",
        f"{result['share_of_limit']:.0%}",
        f"{result['cosine_mean']:.5f}, {result['cosine_min']:.5f}",
        ", ".join(str(each["equal"]) for each in kept.values()),
        f"{result['peak_mib']}",
        " ".join(str(rate) for rate in result["by_budget"].values()),
    ]


if __name__ == "__main__":
    main()
