"""Our encoder beside other engines: `python -m benchmarks.engines [--precision float32|int8]`.

The encoder alone: token rows of real texts in, pooled vectors of unit length out. Every engine is
a process of its own with one thread; they take turns. Ours is shown with the batches that it has
by default, each other engine at its own best number of padded tokens a batch. The rows are those
of `--count` sentences or passages (`--texts`), sorted by length and cut to groups of 4,096 tokens,
of which every `--every`th is taken.
"limit" is the share of the tokens that large float32 products alone would allow, filling not
counted.
"""

import argparse
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks import measure
from benchmarks.corpus import FOLDER, TEXTS
from benchmarks.peers import minilm_folder, peer, peer_environment, peer_python, peer_versions
from benchmarks.sides.engine import OURS, TENSORFLOW
from bert_embed.backends.batches import CPU_BATCH_TOKENS
from bert_embed.text.tokenizer import load_tokenizer

_PACKAGES = ("onnxruntime", "openvino", "ctranslate2", "sentence-transformers", "torch")
BUDGETS = (256, 512, 1024, 2048, 4096)
_HEADER = (
    *("engine", "tokens a batch", "tokens/CPU s", "spread", "ours is", "tokens/s", "padding"),
    *("limit", "cosine mean, min", "peak MiB", f"tokens/CPU s at {BUDGETS}"),
)
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_GROUP = 4096  # tokens
_CALIBRATION = 6000  # sentences that calibrated models choose from
_FOLDER = FOLDER / "engines"


@dataclass(frozen=True)
class Engine:
    """What runs an engine, which of the exported files it reads, and its precision."""

    backend: str
    file: str
    precision: str

    def start(self, models: Path, rows: Path) -> measure.Child:
        """Starts the engine's process over a file of rows."""
        own = self.backend in (OURS, TENSORFLOW)
        minilm = "minilm" if own else minilm_folder()
        model = models / self.file if self.file else minilm
        flags = ["--engine", self.backend, "--precision", self.precision]
        flags += ["--model", str(model), "--rows", str(rows)]
        return (
            measure.Child("engine", *flags, environment={**os.environ, **_ONE_THREAD})
            if own
            else peer("engine", *flags, **_ONE_THREAD)
        )


ENGINES = {
    "float32": {
        OURS: Engine(OURS, "", "float32"),
        TENSORFLOW: Engine(TENSORFLOW, "", "float32"),
        "ONNX Runtime, fused": Engine("onnxruntime", "fused.onnx", "float32"),
        "OpenVINO": Engine("openvino", "plain.xml", "float32"),
        "CTranslate2": Engine("ctranslate2", "ctranslate2", "float32"),
        "sentence-transformers, torch": Engine("torch", "", "float32"),
    },
    "int8": {
        OURS: Engine(OURS, "", "int8"),
        "ONNX Runtime, dynamic": Engine("onnxruntime", "int8.onnx", "int8"),
        "OpenVINO, dynamic": Engine("openvino", "weights.xml", "int8"),
        "OpenVINO, calibrated": Engine("openvino", "int8.xml", "int8"),
        "CTranslate2": Engine("ctranslate2", "ctranslate2", "int8"),
    },
}

Passes = dict[int, list[dict[str, float]]]


def main() -> None:
    """Measures all engines in turn and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--precision", choices=[*ENGINES], default="float32")
    parser.add_argument("--texts", choices=[*TEXTS], default="sentences")
    parser.add_argument("--count", type=int, help="default: 20,000 sentences, 1,500 passages")
    parser.add_argument("--every", type=int, default=27)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    count = args.count or (20_000 if args.texts == "sentences" else 1500)
    rows = row_file(args.texts, count, args.every)
    models = exported()
    engines = ENGINES[args.precision]
    swept, limit = sweep(engines, models, rows, args.rounds)
    results = {name: summary(name, passes, limit) for name, passes in swept.items()}
    reference, _ = examined(ENGINES["float32"][TENSORFLOW], models, rows, 1024)
    for name, result in results.items():
        vectors, peak = examined(engines[name], models, rows, int(result["batch_tokens"]))
        cosine = (vectors * reference).sum(axis=1)
        result["peak_mib"] = round(peak / 2**20)
        result["cosine_mean"] = round(float(cosine.mean()), 6)
        result["cosine_min"] = round(float(cosine.min()), 6)
        ours = results[OURS]["tokens_per_cpu_second"]
        result["ours_is"] = round(ours / result["tokens_per_cpu_second"], 3)
    record = {
        "benchmark": "engines"
        + ("_int8" if args.precision == "int8" else "")
        + ("_passages" if args.texts == "passages" else ""),
        "data": f"{count} {args.texts} of docstrings as token rows, every {args.every}th group",
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
    processes = {name: engine.start(models, rows) for name, engine in engines.items()}
    reference = ENGINES["float32"][TENSORFLOW].start(models, rows)
    every: dict[str, Passes] = {name: {} for name in engines}
    limits = []
    for budget in BUDGETS:
        for turn in range(rounds + 1):
            for name, process in processes.items():
                taken = process.ask({"pass": budget})
                if turn:  # the first pass meets every shape for the first time
                    every[name].setdefault(budget, []).append(taken)
            limits.append(reference.ask({"limit": []})["tokens_per_cpu_second"])
        rates = [f"{name} {_rate(passes[budget]):.0f}" for name, passes in every.items()]
        print(f"{budget} tokens a batch: {', '.join(rates)}; limit {limits[-1]:.0f}", flush=True)
    for process in (*processes.values(), reference):
        process.close()
    return every, float(np.median(limits))


def _rate(passes: list[dict[str, float]]) -> float:
    return float(np.median([one["tokens"] / one["cpu"] for one in passes]))


def summary(name: str, passes: Passes, limit: float) -> dict[str, object]:
    """Returns our figures at the default budget, or another engine's at its best."""
    rates = {budget: _rate(one) for budget, one in passes.items()}
    best = CPU_BATCH_TOKENS if name == OURS else max(rates, key=lambda budget: rates[budget])
    chosen = passes[best]
    return {
        "batch_tokens": best,
        "tokens_per_cpu_second": round(rates[best]),
        "spread": round(measure.Figure.of([one["cpu"] for one in chosen]).spread, 3),
        "tokens_per_second": round(np.median([one["tokens"] / one["wall"] for one in chosen])),
        "padding": round(1 - chosen[0]["tokens"] / chosen[0]["padded"], 4),
        "share_of_limit": round(rates[best] / limit, 3),
        "by_budget": {str(budget): round(rate) for budget, rate in rates.items()},
    }


def examined(engine: Engine, models: Path, rows: Path, budget: int) -> tuple[np.ndarray, int]:
    """Returns what a fresh process gives, float32 `[rows, hidden]`, and the bytes that it holds."""
    process = engine.start(models, rows)
    file = (_FOLDER / "vectors.npy").absolute()
    taken = process.ask({"vectors": budget, "file": str(file)})
    process.close()
    return np.load(file), taken["peak"]


def row_file(texts: str, count: int, every: int) -> Path:
    """Returns the file of token rows, sorted by length, of one in `every` groups of 4,096 tokens.

    The rows of each group stay together, so that padding is that of the whole.
    """
    path = (_FOLDER / f"rows-{texts}-{count}-{every}.npz").absolute()
    if path.exists():
        return path
    from bert_embed.bundle.find import resolve_model
    from bert_embed.text.documents import build_rows

    bundle = resolve_model("minilm")
    tokenizer = load_tokenizer(bundle)
    flat, splits = tokenizer.encode_flat(TEXTS[texts](count))
    rows = build_rows(flat, splits, bundle.max_seq_length, tokenizer.cls_id, tokenizer.sep_id)
    lengths = np.diff(rows.row_splits)
    order = np.argsort(-lengths, kind="stable")
    group = np.cumsum(lengths[order]) // _GROUP
    chosen = order[group % every == every // 2]
    ids = [rows.input_ids[rows.row_splits[row] : rows.row_splits[row + 1]] for row in chosen]
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, input_ids=np.concatenate(ids), row_splits=np.cumsum([0, *map(len, ids)]))
    return path


def exported() -> Path:
    """Returns the folder of the exported models, which is filled once (a minute)."""
    rows, here = row_file("sentences", _CALIBRATION, 1), Path(__file__).parent
    recipe = [*sorted((here / "sides").glob("export_*.py")), here / "requirements.txt"]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in recipe)).hexdigest()[:12]
    folder = (_FOLDER / f"models-{digest}").absolute()
    if not (folder / "ctranslate2").exists():
        print("exporting the model for every engine", flush=True)
        command = [peer_python(), "-m", "benchmarks.sides.export_engines", "--rows", rows]
        flags = ["--model", minilm_folder(), "--output", folder]
        measure.run([*command, *flags], peer_environment())
    return folder


def _row(name: str, result: dict) -> list[str]:
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
        f"{result['peak_mib']}",
        " ".join(str(rate) for rate in result["by_budget"].values()),
    ]


if __name__ == "__main__":
    main()
