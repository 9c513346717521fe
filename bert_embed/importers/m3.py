"""Reads the heads of bge-m3, which are in files of PyTorch beside the encoder."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bert_embed.architectures.encoder import EncoderConfig
from bert_embed.config import DenseModule
from bert_embed.heads.head import Head
from bert_embed.heads.multi import MultiHead
from bert_embed.heads.sparse import SparseHead
from bert_embed.importers.torch_files import read_torch
from bert_embed.importers.weights import check_shapes
from bert_embed.tokenization.protocol import TextTokenizer

HeadRead = tuple[Head, Mapping[str, np.ndarray]]  # and its tensors
_SPARSE, _MULTI = "sparse_linear.pt", "colbert_linear.pt"


def read_m3(root: Path, config: EncoderConfig, tokenizer: TextTokenizer) -> dict[str, HeadRead]:
    """Returns the heads whose files are there; the sparse one weighs a text's own tokens."""
    hidden, heads = config.hidden_size, dict[str, HeadRead]()
    if (path := root / _SPARSE).is_file():
        special = {tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.unk_id}
        skip_ids = tuple(sorted(number for number in special if number is not None))
        tensors = _read_linear(path, (1, hidden), "heads/sparse/tokens")
        heads["sparse"] = SparseHead(form="tokens", skip_ids=skip_ids), tensors
    if (path := root / _MULTI).is_file():
        layer = DenseModule(hidden, hidden, "identity")
        tensors = _read_linear(path, (hidden, hidden), "heads/multi/0")
        heads["multi"] = MultiHead(hidden, (layer,), drops_first=True), tensors
    return heads


def _read_linear(path: Path, shape: tuple[int, int], name: str) -> dict[str, np.ndarray]:
    """Returns the tensors of a linear layer, "weight" of which is `[out, in]`, below a name."""
    arrays = read_torch(path)
    shapes = {key: array.shape for key, array in arrays.items()}
    check_shapes(path, shapes, {"weight": shape, "bias": shape[:1]}, "a linear layer")
    return {f"{name}/kernel": arrays["weight"].T, f"{name}/bias": arrays["bias"]}
