"""Writes a small bge-m3: heads of sparse and multi-vectors in files of PyTorch."""

import json

import numpy as np

from tests.support.models.architectures import write_architecture
from tests.support.models.torch_files import write_torch


def linear(dtype="<f4"):
    random = np.random.default_rng(6)
    return {"weight": random.normal(size=(1, 32)).astype(dtype), "bias": np.array([0.2], dtype)}


def colbert():
    random = np.random.default_rng(8)
    weight = random.normal(size=(32, 32)) * 0.3
    return {"weight": weight.astype("<f4"), "bias": random.normal(size=32).astype("<f4")}


def write_m3(folder, arrays=None, **torch_file):
    write_architecture(folder, "xlm-roberta")
    pooling = {"word_embedding_dimension": 32, "pooling_mode_cls_token": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    write_torch(folder / "sparse_linear.pt", arrays or linear(), **torch_file)
    write_torch(folder / "colbert_linear.pt", colbert())
