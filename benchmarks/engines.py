"""Our encoder beside other engines: token rows in, pooled vectors of unit length out.

Every engine is a process of its own with one thread, and they take turns. `engines` has MiniLM and
rows of real texts: those of `count` sentences or passages, sorted by length and cut to groups of
4,096 tokens, of which every `every`th is taken. "limit" is the share of the tokens that large
float32 products alone would allow, filling not counted. `families` has the shapes of other models
with random weights and ids, in rows as long as sentences are: `texts` of them in three runs of
neighbours, at a sixth, a half and five sixths of 6,000 sentences sorted by length. Its first run
also writes the models for every engine (some minutes, 9 GB below build/).

Ours is shown with the batches that it has by default, each other engine at its own best number of
padded tokens a batch.

`families_memory` measures our memory with the model of the most words, in one process and in two
that live at once.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.corpus import FOLDER, TEXTS
from benchmarks.peers import minilm_folder, peer, peer_environment, peer_python, peer_versions
from benchmarks.sides.engine import OURS, TENSORFLOW
from bert_embed.backends.runner import CPU_BATCH_TOKENS
from bert_embed.importers import import_model
from bert_embed.text.tokenizer import load_tokenizer

BUDGETS, _FAMILY_BUDGETS = (256, 512, 1024, 2048, 4096), (256, 512, 1024)
_PACKAGES = ("onnxruntime", "openvino", "ctranslate2", "sentence-transformers", "transformers")
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_GROUP = 4096  # tokens
_CALIBRATION = 6000  # sentences that calibrated models choose from
_FOLDER = FOLDER / "engines"
_BASE = {"hidden_size": 768, "num_attention_heads": 12}
FAMILIES: dict[str, dict[str, object]] = {
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
_FIRST_WORD = 5  # behind the special tokens
_FIGURES = {
    "tokens a batch": "{batch_tokens}",
    "tokens/CPU s": "{tokens_per_cpu_second:.0f}",
    "spread": "{spread:.2f}",
    "ours is": "{ours_is:.2f} x",
    "tokens/s": "{tokens_per_second:.0f}",
    "padding": "{padding:.1%}",
}
_LAST = {"peak MiB": "{peak_mib}", "tokens/CPU s at": "{shown}"}


@dataclass(frozen=True)
class Engine:
    """What runs an engine, which of the exported files it reads, and its precision."""

    backend: str
    file: str
    precision: str = "float32"

    def start(self, models: Path, rows: Path) -> measure.Child:
        """Starts the engine's process over a file of rows."""
        own = self.backend in (OURS, TENSORFLOW)
        minilm = "minilm" if own else minilm_folder()
        flags = ["--engine", self.backend, "--precision", self.precision, "--rows", rows]
        flags += ["--model", models / self.file if self.file else minilm]
        if own:
            return measure.Child("engine", *flags, environment={**os.environ, **_ONE_THREAD})
        return peer("engine", *flags, **_ONE_THREAD)


_TENSORFLOW = Engine(TENSORFLOW, "")
ENGINES = {
    "float32": {
        OURS: Engine(OURS, ""),
        TENSORFLOW: _TENSORFLOW,
        "ONNX Runtime, fused": Engine("onnxruntime", "fused.onnx"),
        "OpenVINO": Engine("openvino", "plain.xml"),
        "CTranslate2": Engine("ctranslate2", "ctranslate2"),
        "sentence-transformers, torch": Engine("torch", ""),
    },
    "int8": {
        OURS: Engine(OURS, "", "int8"),
        "ONNX Runtime, dynamic": Engine("onnxruntime", "int8.onnx", "int8"),
        "ONNX Runtime, by rows": Engine("onnxruntime", "rows.onnx", "int8"),
        "OpenVINO, dynamic": Engine("openvino", "weights.xml", "int8"),
        "OpenVINO, calibrated": Engine("openvino", "int8.xml", "int8"),
        "CTranslate2": Engine("ctranslate2", "ctranslate2", "int8"),
    },
    "families": {
        OURS: Engine(OURS, "bundle"),
        "ONNX Runtime": Engine("onnxruntime", "fused.onnx"),
        "OpenVINO": Engine("openvino", "plain.xml"),
        "CTranslate2": Engine("ctranslate2", "ctranslate2"),
        "transformers, torch": Engine("transformers", "model"),
    },
}


def engines(
    name: str,
    precision: str = "float32",
    texts: str = "sentences",
    count: int | None = None,
    every: int = 27,
    rounds: int = 3,
) -> None:
    """Measures the engines with MiniLM, beside the vectors of our graph in TensorFlow."""
    count = count or (20_000 if texts == "sentences" else 1500)
    rows, models = row_file(texts, count, every), exported_minilm()
    reference = _TENSORFLOW.start(models, rows)
    limits: list[float] = []

    def limit() -> None:
        limits.append(reference.ask({"limit": []})["tokens_per_cpu_second"])

    results = _swept(ENGINES[precision], models, rows, BUDGETS, rounds, limit)
    reference.close()
    vectors, _ = _examined(_TENSORFLOW, models, rows, 1024)
    for engine, result in results.items():
        found, peak = _examined(ENGINES[precision][engine], models, rows, result["batch_tokens"])
        cosine = (found * vectors).sum(axis=1)
        result["peak_mib"] = round(peak / 2**20)
        result["cosine_mean"] = round(float(cosine.mean()), 6)
        result["cosine_min"] = round(float(cosine.min()), 6)
        result["share_of_limit"] = round(
            result["tokens_per_cpu_second"] / float(np.median(limits)), 3
        )
    record = {
        "benchmark": name,
        "data": f"{count} {texts} of docstrings as token rows, every {every}th group",
        "rounds": rounds,
        "engines": peer_versions(*_PACKAGES, "torch"),
        "limit_tokens_per_cpu_second": round(float(np.median(limits))),
    }
    cosines = "{cosine_mean:.5f}, {cosine_min:.5f}"
    columns = {"engine": "{name}", **_FIGURES, "limit": "{share_of_limit:.0%}"}
    measure.report(record, {**columns, "cosine mean, min": cosines, **_LAST}, results)


def families(
    name: str, models: Sequence[str] = (*FAMILIES,), texts: int = 60, rounds: int = 3
) -> None:
    """Measures the engines with each family, beside our own vectors."""
    measure.one_core()
    results: dict[str, dict[str, Any]] = {}
    for family in models:
        folder = exported_family(family)
        rows = random_rows(folder, family, texts)
        made = {
            engine: one
            for engine, one in ENGINES["families"].items()
            if not (folder / f"{one.file}.failed").exists()
        }
        found = _swept(made, folder, rows, _FAMILY_BUDGETS, rounds)
        vectors = {}
        for engine, result in found.items():
            unit, peak = _examined(made[engine], folder, rows, result["batch_tokens"])
            vectors[engine] = unit / np.linalg.norm(unit, axis=1, keepdims=True)
            cosine = (vectors[engine] * vectors[OURS]).sum(axis=1)
            result |= {"peak_mib": round(peak / 2**20), "cosine_min": round(float(cosine.min()), 6)}
        for engine in ENGINES["families"]:
            missing = {"batch_tokens": "does not have it"}
            results[f"{family}, {engine}"] = found.get(engine, missing)
    record = {
        "benchmark": name,
        "data": f"{texts} rows as long as sentences, random ids, random weights",
        "rounds": rounds,
        "engines": peer_versions(*_PACKAGES, "torch"),
    }
    columns = {"model, engine": "{name}", **_FIGURES, "cosine min": "{cosine_min:.5f}", **_LAST}
    measure.report(record, columns, results)


def families_memory(name: str, texts: int = 60, rounds: int = 3) -> None:
    """Measures what processes with the largest word table hold, by precision and their number."""
    measure.one_core()
    folder = exported_family(_MOST_WORDS)
    rows = random_rows(folder, _MOST_WORDS, texts)
    sides = [(precision, count) for precision in ("float32", "int8") for count in (1, 2)]
    held: dict[tuple[str, int], list[list[dict[str, int]]]] = {side: [] for side in sides}
    for turn in range(rounds):
        for precision, count in sides:
            engine = Engine(OURS, "bundle", precision)
            processes = [engine.start(folder, rows) for _ in range(count)]
            for process in processes:
                process.ask({"pass": CPU_BATCH_TOKENS})
            held[precision, count].append([process.ask({"memory": []}) for process in processes])
            for process in processes:
                process.close()
        print(f"round {turn + 1} of {rounds}", flush=True)
    results = {}
    for (precision, count), every in held.items():
        total = measure.Figure.of(sum(one["pss"] for one in alive) for alive in every)
        each = {
            figure: measure.Figure.of(max(one[figure] for one in alive) for alive in every).median
            for figure in ("pss", "files", "rss", "peak")
        }
        mib = {figure: round(value / 2**20) for figure, value in each.items()}
        result = {"pss_of_all": round(total.median / 2**20), "spread": round(total.spread, 3)}
        results[f"{precision}, {count}"] = result | mib
    record = {
        "benchmark": name,
        "data": f"{_MOST_WORDS}, random ids and weights, one thread a process",
        "rounds": rounds,
    }
    columns = {
        "precision, processes": "{name}",
        "PSS MiB of all": "{pss_of_all}",
        "spread": "{spread:.2f}",
        "PSS MiB a process": "{pss}",
        "of it, mapped files": "{files}",
        "RSS MiB a process": "{rss}",
        "peak MiB a process": "{peak}",
    }
    measure.report(record, columns, results)


def _swept(
    made: Mapping[str, Engine],
    models: Path,
    rows: Path,
    budgets: Sequence[int],
    rounds: int,
    between: Any = lambda: None,
) -> dict[str, dict[str, Any]]:
    """Returns our figures at the default budget, and each other engine's at its best."""
    processes = {name: engine.start(models, rows) for name, engine in made.items()}
    every: dict[str, dict[int, list[dict[str, float]]]] = {name: {} for name in made}
    for budget in budgets:
        for turn in range(rounds + 1):
            for name, process in processes.items():
                taken = process.ask({"pass": budget})
                if turn:  # the first pass meets every shape for the first time
                    every[name].setdefault(budget, []).append(taken)
        between()
        rates = [f"{name} {_rate(passes[budget]):.0f}" for name, passes in every.items()]
        print(f"{budget} tokens a batch: {', '.join(rates)}", flush=True)
    for process in processes.values():
        process.close()
    results: dict[str, dict[str, Any]] = {}
    for name, passes in every.items():
        rates = {budget: _rate(one) for budget, one in passes.items()}
        best = CPU_BATCH_TOKENS if name == OURS else max(rates, key=rates.__getitem__)
        chosen = passes[best]
        results[name] = {
            "batch_tokens": best,
            "tokens_per_cpu_second": round(rates[best], 1),
            "spread": round(measure.Figure.of(one["cpu"] for one in chosen).spread, 3),
            "tokens_per_second": round(np.median([one["tokens"] / one["wall"] for one in chosen])),
            "padding": round(1 - chosen[0]["tokens"] / chosen[0]["padded"], 4),
            "by_budget": {str(budget): round(rate) for budget, rate in rates.items()},
            "shown": " ".join(f"{budget}: {rate:.0f}" for budget, rate in rates.items()),
        }
    ours = results[OURS]["tokens_per_cpu_second"]
    for result in results.values():
        result["ours_is"] = round(ours / result["tokens_per_cpu_second"], 3)
    return results


def _rate(passes: list[dict[str, float]]) -> float:
    return float(np.median([one["tokens"] / one["cpu"] for one in passes]))


def _examined(engine: Engine, models: Path, rows: Path, budget: int) -> tuple[np.ndarray, int]:
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


def random_rows(folder: Path, family: str, texts: int) -> Path:
    """Writes the file of token rows, of lengths that sentences have, and returns its path."""
    with np.load(row_file("sentences", _CALIBRATION, 1)) as saved:
        lengths = np.diff(saved["row_splits"])  # sorted
    runs = []
    for part in np.array_split(lengths, 3):
        start = (len(part) - texts // 3) // 2
        runs.append(part[start : start + texts // 3])
    splits = np.cumsum([0, *np.concatenate(runs)])
    words = np.random.default_rng(texts).integers(
        _FIRST_WORD, FAMILIES[family]["vocab_size"], splits[-1], np.int32
    )
    path = folder / f"rows-{texts}.npz"
    np.savez(path, input_ids=words, row_splits=splits)
    return path


def exported_minilm() -> Path:
    """Returns the folder of MiniLM in the forms of all engines, which is filled once (a minute)."""
    rows = row_file("sentences", _CALIBRATION, 1)
    return _exported("minilm", "", "--model", minilm_folder(), "--rows", rows)


def exported_family(name: str) -> Path:
    """Returns the folder of a family's model in the forms of all engines, which is filled once."""
    config = json.dumps(FAMILIES[name])
    folder = _exported(name, config, "--config", config)
    if not (folder / "bundle").exists():
        import_model(str(folder / "model"), str(folder / "bundle"))
    return folder


def _exported(name: str, config: str, *flags: object) -> Path:
    here = Path(__file__).parent
    recipe = [here / "sides/export.py", here / "requirements.txt"]
    digest = hashlib.sha256(config.encode() + b"".join(path.read_bytes() for path in recipe))
    folder = (_FOLDER / f"{name}-{digest.hexdigest()[:12]}").absolute()
    if not (folder / "done").exists():
        print(f"exporting {name} for every engine", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        command = [peer_python(), "-m", "benchmarks.sides.export", *flags, "--output", folder]
        measure.run(command, peer_environment())
        (folder / "done").touch()
    return folder
