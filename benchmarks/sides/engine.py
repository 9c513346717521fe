"""One engine with one thread, as a `benchmarks.measure.Child`: it loads a model and rows.

`{"pass": BUDGET}` embeds all rows in batches of that many padded tokens and answers with what that
took; `{"vectors": BUDGET, "file": PATH}` writes their vectors, too; `{"limit": []}` answers with
the tokens a CPU second that large float32 products alone would allow, `{"memory": []}` with the
bytes that the process holds. Imports of engines stand in their functions, for a process measures
one and holds no other.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.measure import answer_lines
from bert_embed.backends.runner import RowSpec, pad_rows

OURS, TENSORFLOW = "ours", "our graph in TensorFlow"
_ROWS, _HIDDEN, _INNER, _PRODUCTS = 1024, 384, 1536, 40

_LEAST_FILL, _FULL_ENOUGH = 0.9, 512  # of a row in its batch; tokens, for fast matrix products
_ACTIVATIONS = 128  # that share a scale: the fastest of 32, 64, 128, 192, 256, 384, and a whole row

# padded ids and mask, int32 `[batch, length]`, to float32 `[batch, hidden]` of unit length
Call = Callable[[np.ndarray, np.ndarray], np.ndarray]
# (input_ids, row_splits, budget) to float32 `[rows, hidden]` and the number of padded tokens
Embed = Callable[[np.ndarray, np.ndarray, int], tuple[np.ndarray, int]]


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
    embed = loaded(args.engine, args.model, args.precision)
    answer_lines(partial(answer, embed, ids, splits))


def answer(
    embed: Embed, ids: np.ndarray, splits: np.ndarray, asked: dict[str, object]
) -> dict[str, object]:
    """Returns what was asked for."""
    if "limit" in asked:
        return {"tokens_per_cpu_second": limit()}
    if "memory" in asked:
        return {**held(), "peak": peak_bytes()}
    wall, cpu = time.perf_counter(), time.process_time()
    vectors, padded = embed(ids, splits, int(str(asked.get("pass") or asked["vectors"])))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if "file" in asked:
        np.save(str(asked["file"]), vectors)
    return {"wall": wall, "cpu": cpu, "tokens": len(ids), "padded": padded, "peak": peak_bytes()}


def loaded(engine: str, model: Path, precision: str) -> Embed:
    """Returns an engine with its model in memory."""
    if engine in (OURS, TENSORFLOW):
        return _ours(engine, model, precision)
    return batched(_CALLS[engine](model, precision))


def similar_rows(lengths: np.ndarray, budget: int) -> list[np.ndarray]:
    """The row numbers of batches of at most `budget` tokens, padding included, longest first.

    Once a batch holds 512 tokens it ends before the first row that is shorter than 0.9 of its
    longest.
    """
    order = np.argsort(-lengths, kind="stable")
    ordered = -lengths[order]  # ascending, so that searchsorted finds the first short row
    batches, start = [], 0
    while start < len(order):
        longest = int(-ordered[start])
        enough = start - (-_FULL_ENOUGH // max(longest, 1))
        short = int(np.searchsorted(ordered, -_LEAST_FILL * longest, side="right"))
        stop = min(start + max(budget // max(longest, 1), 1), max(short, enough), len(order))
        batches.append(order[start:stop])
        start = stop
    return batches


def batched(call: Call) -> Embed:
    """Gives an engine rows in batches of similar length, which it pads."""

    def embed(ids: np.ndarray, splits: np.ndarray, budget: int) -> tuple[np.ndarray, int]:
        parts, padded = [], 0
        batches = similar_rows(np.diff(splits), budget)
        for rows in batches:
            batch, mask = pad_rows(ids, splits, rows)
            parts.append(call(batch, mask))
            padded += batch.size
        vectors = np.empty((len(splits) - 1, parts[0].shape[1]), np.float32)
        for rows, part in zip(batches, parts, strict=True):
            vectors[rows] = part
        return vectors, padded

    return embed


def _ours(engine: str, model: Path, precision: str) -> Embed:
    from bert_embed.backends.choose import load_engine
    from bert_embed.bundle.find import resolve_model
    from bert_embed.model import Embedder
    from bert_embed.text.documents import TokenRows
    from tests.support.engines import load_tensorflow

    load = load_engine if engine == OURS else load_tensorflow
    bundle = resolve_model(str(model))
    embedder = Embedder(bundle, threads=1, precision=precision, load_engine=load)

    def embed(ids: np.ndarray, splits: np.ndarray, budget: int) -> tuple[np.ndarray, int]:
        wanted = RowSpec(embedder.spec, batch_tokens=budget)
        done = embedder.runner.run(TokenRows(ids, splits), wanted)
        assert done.vectors is not None
        return done.vectors, done.padded_tokens

    return embed


def _onnxruntime(path: Path, precision: str) -> Call:
    """An ONNX model in ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def call(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        inputs = {"input_ids": ids.astype(np.int64), "attention_mask": mask.astype(np.int64)}
        return session.run(None, inputs)[0]

    return call


def _openvino(path: Path, precision: str) -> Call:
    """An OpenVINO model; without the hint it may compute in bfloat16."""
    import openvino

    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": 1,
        "NUM_STREAMS": 1,
        "ENABLE_CPU_PINNING": False,
    }
    if path.stem == "weights":
        settings["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = _ACTIVATIONS
    request = openvino.Core().compile_model(path, "CPU", settings).create_infer_request()

    def call(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        inputs = {"input_ids": ids.astype(np.int64), "attention_mask": mask.astype(np.int64)}
        return request.infer(inputs, share_inputs=True)[0].copy()

    return call


def _ctranslate2(path: Path, precision: str) -> Call:
    """A CTranslate2 encoder, which gives hidden states: pooling is numpy's."""
    import ctranslate2

    encoder = ctranslate2.Encoder(
        str(path), "cpu", compute_type=precision, inter_threads=1, intra_threads=1
    )

    def call(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        lengths = ctranslate2.StorageView.from_array(mask.sum(1, dtype=np.int32))
        given = ctranslate2.StorageView.from_array(np.ascontiguousarray(ids))
        hidden = np.asarray(encoder.forward_batch(given, lengths).last_hidden_state)
        weights = mask[:, None, :].astype(np.float32)
        mean = (weights @ hidden)[:, 0] / weights.sum(-1)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)

    return call


def _torch(folder: Path, precision: str) -> Call:
    """sentence-transformers' modules in torch, as `encode` calls them."""
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    model = SentenceTransformer(str(folder), device="cpu")

    def call(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        inputs = {
            "input_ids": torch.from_numpy(ids).long(),
            "attention_mask": torch.from_numpy(mask),
        }
        with torch.inference_mode():
            return model(inputs)["sentence_embedding"].numpy()

    return call


def _transformers(folder: Path, precision: str) -> Call:
    """transformers' own modules in torch, pooled."""
    import torch

    from benchmarks.sides.pooled_model import PooledModel

    torch.set_num_threads(1)
    model = PooledModel(folder, "sdpa")

    def call(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return model(torch.from_numpy(ids).long(), torch.from_numpy(mask)).numpy()

    return call


_CALLS = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
    "ctranslate2": _ctranslate2,
    "torch": _torch,
    "transformers": _transformers,
}


def limit() -> float:
    """Returns the tokens a CPU second if nothing but the weight products took time, best of 5."""
    import tensorflow as tf

    from bert_embed.bundle.find import resolve_model

    config = resolve_model("minilm").config
    layer = 4 * config.hidden_size**2 + 2 * config.hidden_size * config.intermediate_size
    x, inner = tf.random.normal([_ROWS, _HIDDEN]), tf.random.normal([_ROWS, _INNER])
    up, down = tf.random.normal([_HIDDEN, _INNER]), tf.random.normal([_INNER, _HIDDEN])

    def flops() -> float:
        start = time.process_time()
        for _ in range(_PRODUCTS):
            last = tf.matmul(x, up), tf.matmul(inner, down)
        np.asarray(last[0]), np.asarray(last[1])
        return 2 * _PRODUCTS * 2 * _ROWS * _HIDDEN * _INNER / (time.process_time() - start)

    return max(flops() for _ in range(5)) / (2.0 * layer * config.num_hidden_layers)


def peak_bytes() -> int:
    """Returns the most memory that this process held so far.

    The system's `ru_maxrss` would begin with that of the process that started this one.
    """
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def held() -> dict[str, int]:
    """Returns the bytes of PSS, those of it that are of files, and of RSS of this process."""
    lines = Path("/proc/self/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    sizes = {line.split(":")[0]: 1024 * int(line.split()[1]) for line in lines}
    return {"pss": sizes["Pss"], "files": sizes["Pss_File"], "rss": sizes["Rss"]}


if __name__ == "__main__":
    main()
