"""The engines of the peers, each as a function: padded ids and mask in, vectors out, one thread.

Imports stand in the functions, for a process measures one engine and holds no other.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np

_ACTIVATIONS = 128  # that share a scale: the fastest of 32, 64, 128, 192, 256, 384, and a whole row

# int32 `[batch, length]` twice to float32 `[batch, hidden]` of unit length
Call = Callable[[np.ndarray, np.ndarray], np.ndarray]


def onnxruntime_call(path: Path) -> Call:
    """An ONNX model in ONNX Runtime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def call(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        inputs = {"input_ids": ids.astype(np.int64), "attention_mask": mask.astype(np.int64)}
        return session.run(None, inputs)[0]

    return call


def openvino_call(path: Path) -> Call:
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


def ctranslate2_call(path: Path, precision: str) -> Call:
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


def torch_call(folder: Path) -> Call:
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


def transformers_call(folder: Path) -> Call:
    """transformers' own modules in torch, pooled."""
    import torch

    from benchmarks.sides.pooled_model import PooledModel

    torch.set_num_threads(1)
    model = PooledModel(folder, "sdpa")

    def call(ids: np.ndarray, mask: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return model(torch.from_numpy(ids).long(), torch.from_numpy(mask)).numpy()

    return call
