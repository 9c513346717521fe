"""Reads the heads of bge-m3, which are in files of PyTorch beside the encoder."""

from pathlib import Path

import numpy as np

from bert_embed.architectures.encoder import EncoderConfig
from bert_embed.config import DenseModule
from bert_embed.heads.multi import MultiHead
from bert_embed.heads.sparse import SparseHead
from bert_embed.importers.torch_files import read_torch
from bert_embed.importers.weights import check_shapes
from bert_embed.tokenization.protocol import TextTokenizer

_SPARSE, _MULTI = "sparse_linear.pt", "colbert_linear.pt"


def read_m3_sparse(
    root: Path, config: EncoderConfig, tokenizer: TextTokenizer
) -> tuple[SparseHead, dict[str, np.ndarray]] | None:
    """Returns the head that weighs a text's own tokens, and its tensors; None without its file."""
    path = root / _SPARSE
    if not path.is_file():
        return None
    arrays = _read_linear(path, (1, config.hidden_size), "the head of sparse vectors")
    special = (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.unk_id)
    head = SparseHead(
        form="tokens", skip_ids=tuple(sorted({number for number in special if number is not None}))
    )
    tokens = {"kernel": arrays["weight"].T, "bias": arrays["bias"]}
    return head, {f"heads/sparse/tokens/{part}": array for part, array in tokens.items()}


def read_m3_multi(
    root: Path, config: EncoderConfig
) -> tuple[MultiHead, dict[str, np.ndarray]] | None:
    """Returns the head of multi-vectors, and its tensors; None without its file."""
    path = root / _MULTI
    if not path.is_file():
        return None
    hidden = config.hidden_size
    arrays = _read_linear(path, (hidden, hidden), "the head of multi-vectors")
    layer = DenseModule(hidden, hidden, "identity")
    tensors = {"heads/multi/0/kernel": arrays["weight"].T, "heads/multi/0/bias": arrays["bias"]}
    return MultiHead(hidden, (layer,), drops_first=True), tensors


def _read_linear(path: Path, shape: tuple[int, int], whole: str) -> dict[str, np.ndarray]:
    """Returns "weight" `[out, in]` and "bias" `[out]` of a linear layer."""
    arrays = read_torch(path)
    shapes = {name: array.shape for name, array in arrays.items()}
    check_shapes(path, shapes, {"weight": shape, "bias": shape[:1]}, whole)
    return arrays
