"""Our programs on a GPU, beside sentence-transformers: `python -m benchmarks.gpu [--quick]`.

Tokens a second in bfloat16, MiniLM and BERT-base, rows of 32, 128 and 512 tokens without filling,
16,384 tokens a batch; their share of what large products reach there, and how many cores of the
host it takes to read, tokenize, pad and write at that rate. See README.md beside this file.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.corpus import FOLDER
from benchmarks.null_model import BLOCKS, embed, line_file
from benchmarks.peers import environment
from bert_embed.bundle.find import resolve_model
from bert_embed.engines.choose import has_nvidia_driver
from bert_embed.graph.load import load_tokenizer

_LIST = Path(__file__).parent / "requirements.txt"
_CUDA = "# CUDA's."  # what stands below this line in the list is for GPUs alone
_WANTED_ANYWAY = "nvidia-cuda-runtime"  # torch calls it when it is imported
_SIDES = ("ours", "torch")
_HOST_SENTENCES = 300_000
_SMALL = 1000  # sentences of the host's start-up run
_LEAST_COSINE = 0.99  # between two ways of computing in bfloat16, with random weights


def main() -> None:
    """Measures all sides in turn and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tiny model, to see that it works")
    args = parser.parse_args()
    if not has_gpu() and not args.quick:
        parser.error("this machine has no NVIDIA GPU; --quick shows that the benchmark works")
    folder, python = FOLDER / "gpu", gpu_python()
    exported = [sys.executable, "-m", "benchmarks.gpu.export", folder]
    measure.run([*exported, "--quick"] if args.quick else exported)
    seconds = ("--seconds", "0.5" if args.quick else "5")
    rounds = []
    for _ in range(1 if args.quick else args.rounds):
        peak = side(python, "peak", folder, *seconds, *(("--size", "512") if args.quick else ()))
        rounds.append({name: side(python, name, folder, *seconds) for name in _SIDES} | peak)
    host = statistics.median(host_tokens(_HOST_SENTENCES) for _ in rounds)
    record: dict[str, Any] = {
        "benchmark": "gpu",
        "data": "random ids, seeded random weights, bfloat16" + ", quick" * args.quick,
        "rounds": len(rounds),
        "device": rounds[0]["ours"]["device"],
        "packages": rounds[0]["ours"]["versions"] | rounds[0]["torch"]["versions"],
        "peak_tflops": round(statistics.median(one["tflops"] for one in rounds), 2),
        "host_tokens_per_cpu_second": round(host),
        "results": figures(rounds, folder, host),
    }
    header = ["model", "tokens a row", "ours tokens/s", "sentence-transformers", "ours is"]
    header += ["of the products", "theirs", "host cores"]
    print(
        f"{record['device']}: products {record['peak_tflops']} TFLOP/s, host {host:,.0f} tokens/s"
    )
    measure.report(record, header, [_row(name, one) for name, one in record["results"].items()])


def has_gpu() -> bool:
    """Returns whether an NVIDIA driver is at work here."""
    return shutil.which("nvidia-smi") is not None or has_nvidia_driver()


def gpu_python() -> Path:
    """Returns the Python with JAX, torch and sentence-transformers, made first if need be.

    With a GPU that is 8 GB; without one the CUDA packages stay away, and 2 GB are left.
    """
    packages = _LIST.read_text(encoding="utf-8")
    if has_gpu():
        return environment("gpu-venv", packages, cuda=True)
    above, below = packages.split(_CUDA)
    runtime = next(line for line in below.splitlines() if line.startswith(_WANTED_ANYWAY))
    return environment("gpu-venv", f"{above}{runtime}\n")


def side(python: Path, name: str, folder: Path, *flags: str) -> dict[str, Any]:
    """Runs a side in a process of its own and returns what it measured.

    Raises:
        RuntimeError: It failed; what it had said is shown.
    """
    command = [python, Path(__file__).parent / "measure.py", name, folder, *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name} failed:\n{done.stderr[-4000:]}")
    print(f"{name}: {done.stdout.splitlines()[-1]}", flush=True)
    return json.loads(done.stdout.splitlines()[-1])


def host_tokens(sentences: int) -> float:
    """Returns the tokens that our pipeline takes through one core a second, but for the model."""
    whole, start = (embed(BLOCKS, line_file(count)) for count in (sentences, _SMALL))
    tokenizer = load_tokenizer(resolve_model("minilm"))
    lines = line_file(sentences).read_text(encoding="utf-8").splitlines()[_SMALL:]
    tokens = len(tokenizer.encode_flat(lines)[0]) + 2 * len(lines)
    return tokens / (whole.cpu - start.cpu)


def figures(rounds: list[dict[str, Any]], folder: Path, host: float) -> dict[str, dict[str, float]]:
    """Returns the medians by model and length, and how near the vectors of both sides are.

    Raises:
        RuntimeError: They are not the same vectors.
    """
    results = {}
    for path in sorted(folder.glob("*/model.json")):
        for length, flops in json.loads(path.read_text(encoding="utf-8"))["flops"].items():
            name = f"{path.parent.name} {length}"
            one, other = (np.load(path.parent / f"{side}-{length}.npy") for side in _SIDES)
            cosine = float((one * other).sum(axis=1).min())
            if not cosine > _LEAST_COSINE:
                raise RuntimeError(f"{name}: the two sides give other vectors, cosine {cosine:.4f}")
            ours, theirs = (measure.Figure.of([r[side][name] for r in rounds]) for side in _SIDES)
            shares = [r["ours"][name] * flops / r["tflops"] / 1e12 for r in rounds]
            results[name] = {
                "tokens_per_second": round(ours.median),
                "spread": round(ours.spread, 3),
                "sentence_transformers": round(theirs.median),
                "their_spread": round(theirs.spread, 3),
                "ours_is": round(ours.median / theirs.median, 3),
                "share_of_products": round(statistics.median(shares), 4),
                "their_share": round(statistics.median(shares) * theirs.median / ours.median, 4),
                "host_cores": round(ours.median / host, 2),
                "smallest_cosine": round(cosine, 5),
            }
    return results


def _row(name: str, result: dict[str, float]) -> list[str]:
    model, length = name.split(" ")
    return [
        model,
        length,
        f"{result['tokens_per_second']:,}",
        f"{result['sentence_transformers']:,}",
        f"{result['ours_is']:.2f} x",
        f"{result['share_of_products']:.0%}",
        f"{result['their_share']:.0%}",
        f"{result['host_cores']:.1f}",
    ]


if __name__ == "__main__":
    main()
