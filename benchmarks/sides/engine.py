"""One engine with one thread: it loads a model and rows, then answers a line with a JSON line.

`{"pass": BUDGET}` embeds all rows in batches of that many padded tokens and answers with what that
took; `{"vectors": BUDGET, "file": PATH}` writes their vectors; `{"neighbours": []}` answers in
which company vectors change, `{"limit": []}` (ours only) with the tokens a CPU second that large
float32 products alone would allow.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.sides.neighbours import Embed, company
from benchmarks.sides.our_encoder import load_ours
from bert.batching import pad_rows, plan_batches

OURS = "ours"


def main() -> None:
    """Answers until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--rows", required=True)
    args = parser.parse_args()
    with np.load(args.rows) as saved:
        ids, splits = saved["input_ids"], saved["row_splits"]
    answers = sys.stdout
    sys.stdout = sys.stderr  # what an engine prints is no answer
    embed = loaded(args.engine, args.model, args.precision)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(answer(embed, asked, ids, splits)), file=answers, flush=True)


def answer(
    embed: Embed, asked: dict[str, object], ids: np.ndarray, splits: np.ndarray
) -> dict[str, object]:
    """Returns what was asked for."""
    if "neighbours" in asked:
        return company(embed, ids, splits)
    if "limit" in asked:
        return {"tokens_per_cpu_second": limit()}
    wall, cpu = time.perf_counter(), time.process_time()
    vectors, padded = embed(ids, splits, int(str(asked.get("pass") or asked["vectors"])))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if "file" in asked:
        np.save(str(asked["file"]), vectors)
    return {"wall": wall, "cpu": cpu, "tokens": len(ids), "padded": padded, "peak": peak_bytes()}


def loaded(engine: str, model: Path, precision: str) -> Embed:
    """Returns an engine with its model in memory."""
    if engine == OURS:
        return _ours(precision)
    from benchmarks.sides import engine_calls

    make = {
        "onnxruntime": engine_calls.onnxruntime_call,
        "openvino": engine_calls.openvino_call,
        "ctranslate2": partial(engine_calls.ctranslate2_call, precision=precision),
        "litert": engine_calls.litert_call,
        "torch": engine_calls.torch_call,
    }
    return batched(make[engine](model))


def batched(call: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Embed:
    """Gives an engine the batches that ours makes of rows."""

    def embed(ids: np.ndarray, splits: np.ndarray, budget: int) -> tuple[np.ndarray, int]:
        parts, padded = [], 0
        batches = plan_batches(np.diff(splits), budget)
        for rows in batches:
            batch, mask = pad_rows(ids, splits, rows)
            parts.append(call(batch, mask))
            padded += batch.size
        vectors = np.empty((len(splits) - 1, parts[0].shape[1]), np.float32)
        for rows, part in zip(batches, parts, strict=True):
            vectors[rows] = part
        return vectors, padded

    return embed


def _ours(precision: str) -> Embed:
    encoder = load_ours(precision, threads=1)

    def embed(ids: np.ndarray, splits: np.ndarray, budget: int) -> tuple[np.ndarray, int]:
        done = encoder.embed_rows(ids, splits, batch_tokens=budget)
        assert done.vectors is not None
        return done.vectors, done.padded_tokens

    return embed


def limit() -> float:
    """Returns the tokens a CPU second if nothing but the weight products took time."""
    from benchmarks.encoder import product_flops, token_flops
    from bert.resolve import resolve_model

    return product_flops() / token_flops(resolve_model("minilm").config)


def peak_bytes() -> int:
    """Returns the most memory that this process held so far."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
