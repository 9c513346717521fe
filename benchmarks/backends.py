"""The whole job beside sentence-transformers with its backends, as fast as a user can have it.

A text file to vectors on the disk with all-MiniLM-L6-v2, on one core, in processor time, so that a
busy machine tells the same. Ours has its defaults. The others are sentence-transformers in torch,
ONNX Runtime (optimized, "O3") and OpenVINO, and what its own functions quantize: for ONNX Runtime
dynamically, for the instructions of the processor, for OpenVINO with scales calibrated on other
texts of the same kinds. OpenVINO computes in bfloat16 where the processor can, if nothing is said:
that is a side of its own.

First each side is a process that has its model and encodes half of the texts again and again, once
in batches of every size, twice more in those that were the fastest, in which it then does the whole
job: a process from its start to its end.
"""

import hashlib
import shutil
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.corpus import FOLDER, TEXTS, write_lines
from benchmarks.end_to_end import OURS, Sides, apart, embed
from benchmarks.peers import (
    BACKENDS_LIST,
    CALIBRATION_LIST,
    backends_python,
    calibration_python,
    minilm_folder,
    peer_environment,
    pinned_versions,
)
from bert_embed.base import environment as processor

SIZES = {"sentences": (8, 16, 32, 64), "passages": (2, 4, 8, 16)}  # texts a batch
INT8, BFLOAT16 = ", int8", ", bfloat16"  # what the names of such sides end with
_PACKAGES = ("sentence-transformers", "transformers", "torch", "onnxruntime", "openvino", "nncf")
_WORK = FOLDER / "backends"
# Behind those that are measured, which are the first.
_CALIBRATION = {"sentences": slice(11_000, 11_200), "passages": slice(1400, 1500)}

# By side and texts a batch (ours: 0), texts a second of processor time.
Rates = dict[str, dict[int, list[float]]]


def sides(flags: Collection[str]) -> Sides:
    """Returns the sides of sentence-transformers for a processor with these flags, by name.

    >>> sides({"avx2"})["ONNX Runtime, int8"]
    ('backends', 'onnx', '--file=onnx/model_quint8_avx2.onnx')
    """
    plain = ("backends", "openvino", "--file=openvino/openvino_model.xml")
    quantized = {"avx2": "quint8_avx2", "arm64": "qint8_arm64", "avx512_vnni": "qint8_avx512_vnni"}
    onnx, openvino = quantized[_instructions(flags)], "openvino_model_qint8_quantized"
    bfloat16 = {"bf16", "avx512_bf16", "amx_bf16"} & set(flags)
    return {
        "torch": ("backends", "torch"),
        "ONNX Runtime": ("backends", "onnx", "--file=onnx/model_O3.onnx"),
        "OpenVINO": (*plain, "--precision=f32"),
        **({f"OpenVINO{BFLOAT16}": plain} if bfloat16 else {}),
        f"ONNX Runtime{INT8}": ("backends", "onnx", f"--file=onnx/model_{onnx}.onnx"),
        f"OpenVINO{INT8}": ("backends", "openvino", f"--file=openvino/{openvino}.xml"),
    }


def _instructions(flags: Collection[str]) -> str:
    """Returns the name of sentence-transformers' configuration of int8 for a processor."""
    if "asimd" in flags:
        return "arm64"
    return "avx512_vnni" if "avx512_vnni" in flags else "avx2"


def backends(name: str, sentences: int = 1000, passages: int = 96, rounds: int = 2) -> None:
    """Measures every side with sentences and with passages."""
    measure.one_core()
    models, peers = _models(), sides(processor.flags())
    counts = {"sentences": sentences, "passages": passages}
    files = {
        texts: write_lines(_WORK / texts / f"{count}.txt", TEXTS[texts](count)).absolute()
        for texts, count in counts.items()
    }
    halves = {
        texts: write_lines(_WORK / texts / "half.txt", TEXTS[texts](count)[::2]).absolute()
        for texts, count in counts.items()
    }
    rates = _rates(peers, models, halves)
    results: dict[str, dict[str, Any]] = {}
    for texts, file in files.items():
        found = whole_jobs(peers, models, file, rates[texts], counts[texts], rounds)
        results |= {f"{texts}, {side}": result for side, result in found.items()}
    record = {
        "benchmark": name,
        "data": f"{sentences} sentences and {passages} passages of docstrings",
        "rounds": rounds,
        "counts": counts,
        "peers": pinned_versions(BACKENDS_LIST, *_PACKAGES),
    }
    columns = {
        "texts, side": "{name}",
        "texts a batch": "{batch}",
        "whole job, CPU s": "{cpu_s:.1f}",
        "spread": "{spread:.2f}",
        "peak MiB": "{peak_mib:.0f}",
        "steady texts/CPU s": "{texts_per_second:.0f}",
        "smallest cosine": "{cosine:.4f}",
        "ours is: whole, steady": "{whole[ours]:.2f} x, {steady[ours]:.2f} x",
        "ours, int8 is": "{whole[ours, int8]:.2f} x, {steady[ours, int8]:.2f} x",
        "ours, bfloat16 is": "{whole[ours, bfloat16]:.2f} x, {steady[ours, bfloat16]:.2f} x",
        "texts/CPU s in batches of": "{shown}",
    }
    measure.report(record, columns, results)


def whole_jobs(
    peers: Sides,
    models: Path,
    file: Path,
    rates: Mapping[str, Mapping[int, Sequence[float]]],
    count: int,
    rounds: int,
) -> dict[str, dict[str, Any]]:
    """Returns the figures of every side, each in batches of its best size."""
    best = {side: best_size(every) for side, every in rates.items()}
    flags = {side: (*peers[side], f"--batch={best[side]}") for side in peers}
    run = partial(embed, text=file, peers=flags, options=(), python=backends_python())
    jobs = {
        side: partial(run, side, folder=None if side in OURS else models)
        for side in (*OURS, *peers)
    }
    spent = measure.in_turn(jobs, rounds)
    results: dict[str, dict[str, Any]] = {}
    for side in jobs:
        rate = measure.Figure.of(rates[side][best[side]]).median
        spread = measure.Figure.of(one.cpu for one in spent[side]).spread
        results[side] = measure.summary(spent[side]) | {"spread": round(spread, 3)}
        results[side]["texts_per_second"] = round(rate, 1)
        if side in peers:
            shown = (f"{size}: {every[0]:.0f}" for size, every in rates[side].items())
            results[side] |= {"batch": best[side], "shown": " ".join(shown)}
        if side != "ours":
            results[side] |= apart("dense", side, dict.fromkeys(jobs, file))
    for result in results.values():
        result["whole"] = {
            ours: round(result["cpu_s"] / results[ours]["cpu_s"], 3) for ours in OURS
        }
        result["steady"] = {
            ours: round(results[ours]["texts_per_second"] / result["texts_per_second"], 3)
            for ours in OURS
        }
    return results


def best_size(rates: Mapping[int, Sequence[float]]) -> int:
    """Returns the size of the batches that were the fastest when each was tried once.

    >>> best_size({32: [90.0], 64: [110.0, 80.0], 128: [100.0]})
    64
    """
    return max(rates, key=lambda size: rates[size][0])


def _rates(peers: Sides, models: Path, files: Mapping[str, Path]) -> dict[str, Rates]:
    """Returns by kind of texts how many texts of its file each side encodes in a second."""
    served = {}
    for side, (module, *flags) in peers.items():
        words = [*flags, "--model", models, "--serve"]
        where = {"python": backends_python(), "environment": peer_environment()}
        served[side] = measure.Child(module, *words, **where)
    found = {}
    for texts, file in files.items():
        ours = {}
        for side, precision in OURS.items():
            words = ["--input", file, "--share", "0/1", "--precision", precision]
            ours[side] = measure.Child("worker", *words, "--threads", 1)
        found[texts] = _steady(ours, served, file, SIZES[texts])
        for child in ours.values():
            child.close()
    for child in served.values():
        child.close()
    return found


def _steady(
    ours: Mapping[str, measure.Child],
    peers: Mapping[str, measure.Child],
    file: Path,
    sizes: Sequence[int],
) -> Rates:
    count = len(file.read_text(encoding="utf-8").splitlines())
    rates: Rates = {side: {} for side in (*ours, *peers)}

    def encode(side: str, size: int) -> None:
        if side in ours:
            spent = ours[side].ask({"embed": "sentence"})
        else:
            spent = peers[side].ask({"embed": size, "input": str(file)})
        rates[side].setdefault(size, []).append(count / spent["cpu"])

    for side in rates:  # to warm up
        encode(side, 0 if side in ours else sizes[0])
        rates[side].clear()
    for size in sizes:
        for side in rates:
            encode(side, 0 if side in ours else size)
        shown = (f"{side} {[*every.values()][-1][-1]:.0f}" for side, every in rates.items())
        print(f"{file.parent.name}, batches of {size}: {', '.join(shown)}", flush=True)
    best = {side: best_size(every) for side, every in rates.items()}
    for _ in range(2):
        for side, size in best.items():
            encode(side, size)
    return rates


def _models() -> Path:
    """Returns the folder of MiniLM in the files of all backends, which is filled once."""
    here = Path(__file__).parent
    onnx = _instructions(processor.flags())
    recipe = [here / "sides/backends_model.py", BACKENDS_LIST, CALIBRATION_LIST]
    digest = hashlib.sha256(onnx.encode() + b"".join(path.read_bytes() for path in recipe))
    folder = (_WORK / f"model-{digest.hexdigest()[:12]}").absolute()
    if not folder.exists():
        print("exporting and quantizing for every backend", flush=True)
        half = folder.with_suffix(".half")
        shutil.rmtree(half, ignore_errors=True)
        texts = [
            text for kind, rows in _CALIBRATION.items() for text in TEXTS[kind](rows.stop)[rows]
        ]
        calibration = write_lines(_WORK / "calibration/train.txt", texts).absolute()
        flags = ["--onnx", onnx, "--calibration", calibration.parent, "--output", half]
        python = calibration_python()
        module, model = [python, "-m", "benchmarks.sides.backends_model"], minilm_folder(python)
        measure.run([*module, *flags, "--model", model], peer_environment())
        half.rename(folder)
    return folder
