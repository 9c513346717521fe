"""Our encoder beside other engines, for the shapes of families that are not MiniLM's.

`python -m benchmarks.families [--models NAME ...] [--rounds 3] [--texts 60] [--memory]`: one core,
float32, some ten minutes on an idle core with AVX2, less with AVX-512; the first run also writes
the models for every engine (some minutes more, 9 GB below build/). Weights are random; so are the
ids, of rows as long as sentences are: `--texts` of them in three runs of neighbours, at a sixth, a
half and five sixths of 6,000 sentences sorted by length. A pass that is not measured warms each
engine up; one pass with each size of batch finds its best, at which it then takes its turn in
`--rounds` rounds. Ours keeps its default.

`--memory` measures our memory instead, with the model of the most words, in one process and in two
that live at once: two minutes.
"""

import argparse
import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks import measure
from benchmarks.corpus import FOLDER
from benchmarks.engines import Engine, row_file
from benchmarks.peers import peer_environment, peer_python, peer_versions
from benchmarks.sides.engine import OURS
from bert_embed.backends.batches import CPU_BATCH_TOKENS
from bert_embed.importers import import_model

_BASE = {"hidden_size": 768, "num_attention_heads": 12}
MODELS: dict[str, dict[str, object]] = {
    "XLM-R-small": {
        **{"model_type": "bert", "vocab_size": 250_037, "num_hidden_layers": 12},
        **{"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536},
        "position_embedding_type": "absolute",  # CTranslate2's converter asks for it
    },
    "ModernBERT-base": {
        **{"model_type": "modernbert", "vocab_size": 50_368, "num_hidden_layers": 22},
        **{**_BASE, "intermediate_size": 1152},
    },
    "Nomic-base": {
        **{"model_type": "nomic_bert", "vocab_size": 30_528, "num_hidden_layers": 12},
        **{**_BASE, "intermediate_size": 3072},
    },
}
_MOST_WORDS = "XLM-R-small"
_OURS = Engine(OURS, "bundle", "float32")
_ENGINES = {
    OURS: _OURS,
    "ONNX Runtime": Engine("onnxruntime", "fused.onnx", "float32"),
    "OpenVINO": Engine("openvino", "plain.xml", "float32"),
    "CTranslate2": Engine("ctranslate2", "ctranslate2", "float32"),
    "transformers, torch": Engine("transformers", "model", "float32"),
}
_BUDGETS = (256, 512, 1024)
_PACKAGES = ("onnxruntime", "openvino", "ctranslate2", "transformers", "torch")
_SENTENCES, _RUNS = 6000, 3
_FIRST_WORD = 5  # behind the special tokens
_FOLDER = FOLDER / "families"
_HEADER = (
    *("model", "engine", "tokens a batch", "tokens/CPU s", "spread", "ours is", "cosine min"),
    *("peak MiB", f"tokens/CPU s at {_BUDGETS}"),
)
_MEMORY_HEADER = (
    *("precision", "processes", "PSS MiB of all", "spread", "PSS MiB a process"),
    *("of it, mapped files", "RSS MiB a process", "peak MiB a process"),
)

Passes = dict[int, list[float]]  # tokens a CPU second, by tokens a batch


def main() -> None:
    """Measures the engines in turn and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=[*MODELS], default=[*MODELS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--texts", type=int, default=60)
    parser.add_argument("--memory", action="store_true")
    args = parser.parse_args()
    measure.one_core()
    if args.memory:
        _report_memory(args.texts, args.rounds)
        return
    results, table = {}, []
    for name in args.models:
        folder = exported(name)
        rows = random_rows(folder, name, args.texts)
        results[name] = compared(folder, rows, args.rounds)
        table += [[name, *_row(engine, result)] for engine, result in results[name].items()]
        print("\n".join(measure.table_lines([_HEADER, *table])), flush=True)
    record = {
        "benchmark": "families",
        "data": f"{args.texts} rows as long as sentences, random ids, random weights",
        "rounds": args.rounds,
        "engines": peer_versions(*_PACKAGES),
        "results": results,
    }
    measure.report(record, _HEADER, table)


def exported(name: str) -> Path:
    """Returns the folder of a model in the forms of all engines, which is filled once."""
    here = Path(__file__).parent
    recipe = [*sorted((here / "sides").glob("export_*.py")), here / "requirements.txt"]
    config = json.dumps(MODELS[name])
    digest = hashlib.sha256(config.encode() + b"".join(path.read_bytes() for path in recipe))
    folder = (_FOLDER / f"{name}-{digest.hexdigest()[:12]}").absolute()
    if not (folder / "bundle").exists():
        print(f"exporting {name} for every engine", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [peer_python(), "-m", "benchmarks.sides.export_families", "--config", config]
        measure.run([*command, "--output", folder], peer_environment())
        import_model(str(folder / "model"), str(folder / "bundle"))
    return folder


def random_rows(folder: Path, name: str, texts: int) -> Path:
    """Writes the file of token rows, of lengths that sentences have, and returns its path."""
    with np.load(row_file("sentences", _SENTENCES, 1)) as saved:
        lengths = np.diff(saved["row_splits"])  # sorted
    runs = []
    for part in np.array_split(lengths, _RUNS):
        start = (len(part) - texts // _RUNS) // 2
        runs.append(part[start : start + texts // _RUNS])
    splits = np.cumsum([0, *np.concatenate(runs)])
    words = np.random.default_rng(texts).integers(
        _FIRST_WORD, MODELS[name]["vocab_size"], splits[-1], np.int32
    )
    path = folder / f"rows-{texts}.npz"
    np.savez(path, input_ids=words, row_splits=splits)
    return path


def compared(folder: Path, rows: Path, rounds: int) -> dict[str, dict[str, object]]:
    """Returns the figures of every engine, or why it has none."""
    failed = {
        name: (folder / f"{engine.file}.failed").read_text("utf-8").splitlines()[0]
        for name, engine in _ENGINES.items()
        if (folder / f"{engine.file}.failed").exists()
    }
    processes = {
        name: engine.start(folder, rows) for name, engine in _ENGINES.items() if name not in failed
    }
    passes: dict[str, Passes] = {name: {} for name in processes}
    vectors = {}
    for name, process in processes.items():
        file = folder / "vectors.npy"
        process.ask({"vectors": CPU_BATCH_TOKENS, "file": str(file)})
        vectors[name] = unit = np.load(file)
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    for budget in _BUDGETS:
        for name, process in processes.items():
            if name != OURS:
                passes[name][budget] = [_rate(process.ask({"pass": budget}))]
    best = {
        name: max(swept, key=lambda budget: swept[budget][0]) if swept else CPU_BATCH_TOKENS
        for name, swept in passes.items()
    }
    measured: dict[str, list[float]] = {name: [] for name in processes}
    peaks = {}
    for turn in range(rounds):
        for name, process in processes.items():
            taken = process.ask({"pass": best[name]})
            measured[name].append(_rate(taken))
            peaks[name] = taken["peak"]
        rates = [f"{name} {rates[-1]:.0f}" for name, rates in measured.items()]
        print(f"round {turn + 1} of {rounds}: {', '.join(rates)}", flush=True)
    for process in processes.values():
        process.close()
    figures = {name: measure.Figure.of(rates) for name, rates in measured.items()}
    results: dict[str, dict[str, object]] = {
        name: {
            "batch_tokens": best[name],
            "tokens_per_cpu_second": round(figure.median, 1),
            "spread": round(figure.spread, 3),
            "ours_is": round(figures[OURS].median / figure.median, 3),
            "cosine_min": round(float((vectors[name] * vectors[OURS]).sum(axis=1).min()), 6),
            "peak_mib": round(peaks[name] / 2**20),
            "by_budget": {str(budget): round(rates[0]) for budget, rates in passes[name].items()},
        }
        for name, figure in figures.items()
    }
    return results | {name: {"failed": reason} for name, reason in failed.items()}


def _rate(taken: dict[str, float]) -> float:
    return taken["tokens"] / taken["cpu"]


def _row(engine: str, result: dict) -> list[str]:
    if "failed" in result:
        return [engine, "", "does not have it", *[""] * (len(_HEADER) - 4)]
    return [
        engine,
        f"{result['batch_tokens']}",
        f"{result['tokens_per_cpu_second']:.0f}",
        f"{result['spread']:.2f}",
        f"{result['ours_is']:.2f} x",
        f"{result['cosine_min']:.5f}",
        f"{result['peak_mib']}",
        " ".join(str(rate) for rate in result["by_budget"].values()),
    ]


def _report_memory(texts: int, rounds: int) -> None:
    """Prints what processes with the largest word table hold, by precision and their number."""
    folder = exported(_MOST_WORDS)
    rows = random_rows(folder, _MOST_WORDS, texts)
    with np.load(rows) as saved:
        tokens = len(saved["input_ids"])
    sides = [(precision, count) for precision in ("float32", "int8") for count in (1, 2)]
    held: dict[tuple[str, int], list[list[dict[str, int]]]] = {side: [] for side in sides}
    for turn in range(rounds):
        for precision, count in sides:
            held[precision, count].append(together(folder, rows, precision, count))
        print(f"round {turn + 1} of {rounds}", flush=True)
    results, table = {}, []
    for (precision, count), every in held.items():
        total = measure.Figure.of([sum(one["pss"] for one in together) for together in every])
        each = {
            name: measure.Figure.of([max(one[name] for one in together) for together in every])
            for name in ("pss", "files", "rss", "peak")
        }
        mib = {name: round(figure.median / 2**20) for name, figure in each.items()}
        result = {
            "pss_of_all": round(total.median / 2**20),
            "spread": round(total.spread, 3),
            **mib,
        }
        results[f"{precision}, {count}"] = result
        table.append([precision, str(count), str(result["pss_of_all"]), f"{total.spread:.2f}"])
        table[-1] += [str(size) for size in mib.values()]
    record = {
        "benchmark": "families_memory",
        "data": f"{_MOST_WORDS}, {tokens} tokens, random ids and weights, one thread a process",
        "rounds": rounds,
        "results": results,
    }
    measure.report(record, _MEMORY_HEADER, table)


def together(folder: Path, rows: Path, precision: str, count: int) -> Sequence[dict[str, int]]:
    """Returns what each of some processes holds while all live, each after a pass."""
    engine = Engine(OURS, _OURS.file, precision)
    processes = [engine.start(folder, rows) for _ in range(count)]
    for process in processes:
        process.ask({"pass": CPU_BATCH_TOKENS})
    held = [process.ask({"memory": []}) for process in processes]
    for process in processes:
        process.close()
    return held


if __name__ == "__main__":
    main()
