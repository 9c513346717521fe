"""Small random SPLADE folders of BERT, and their vectors in float64, a text at a time."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.support.models.plain_bert import PlainBert, gelu
from tests.support.models.tiny import small_vocabulary, write_tiny_huggingface

# More entries than the decoder computes at a time.
VOCABULARY = [*small_vocabulary(), *(f"[unused{number}]" for number in range(4200))]
_HIDDEN = 32
_CLS = "cls.predictions"


def write_splade(
    folder: Path,
    *,
    own_decoder: bool = False,
    changes: Mapping[str, Any] | None = None,
    **pooling: Any,
) -> dict[str, np.ndarray]:
    """Writes a SparseEncoder's folder, and returns its tensors by the names in the file."""
    random = np.random.default_rng(5)
    shapes: dict[str, tuple[int, ...]] = {
        f"{_CLS}.transform.dense.weight": (_HIDDEN, _HIDDEN),
        f"{_CLS}.transform.dense.bias": (_HIDDEN,),
        f"{_CLS}.transform.LayerNorm.weight": (_HIDDEN,),
        f"{_CLS}.transform.LayerNorm.bias": (_HIDDEN,),
        f"{_CLS}.bias": (len(VOCABULARY),),
    }
    if own_decoder:
        shapes[f"{_CLS}.decoder.weight"] = (len(VOCABULARY), _HIDDEN)
    head = {
        name: (random.normal(size=shape) * 0.3 + ("Norm.weight" in name)).astype(np.float32)
        for name, shape in shapes.items()
    }
    # Most logits are below 0, as a trained model's are.
    head[f"{_CLS}.bias"] -= np.float32(3)
    tensors = write_tiny_huggingface(
        folder, vocab=VOCABULARY, pooling={}, changes={**head, **(changes or {})}
    )
    kinds = ["MLMTransformer", "SpladePooling"]
    modules = [
        {
            "idx": number,
            "name": str(number),
            "path": f"{number}_{kind}" if number else "",
            "type": f"sentence_transformers.sparse_encoder.models.{kind}",
        }
        for number, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_SpladePooling").mkdir()
    (folder / "1_SpladePooling" / "config.json").write_text(json.dumps(pooling))
    return tensors


class PlainSplade:
    """SPLADE in float64."""

    def __init__(
        self,
        tensors: Mapping[str, np.ndarray],
        pooling_strategy: str = "max",
        activation_function: str = "relu",
    ) -> None:
        self.model = PlainBert(tensors, 4, gelu)
        self.pooling, self.activation = pooling_strategy, activation_function

    def vector(self, ids: np.ndarray) -> np.ndarray:
        """float64 `[vocabulary]`, of one row of ids."""
        model = self.model
        last = model.hidden_states(ids, ids * 0)[-1]
        x = gelu(model.dense(f"{_CLS}.transform.dense", last))
        x = model.norm(f"{_CLS}.transform.LayerNorm", x)
        words = model.tensors["embeddings.word_embeddings.weight"]
        table = model.tensors.get(f"{_CLS}.decoder.weight", words)
        weights = np.log1p(np.maximum(x @ table.T + model.tensors[f"{_CLS}.bias"], 0))
        weights = np.log1p(weights) if self.activation == "log1p_relu" else weights
        return weights.max(0) if self.pooling == "max" else weights.sum(0)


def as_router(folder: Path, **weights: Any) -> None:
    """Makes a SPLADE folder one whose queries have constant weights."""
    kinds = {
        "query_0_SparseStaticEmbedding": "SparseStaticEmbedding",
        "": "MLMTransformer",
        "1_SpladePooling": "SpladePooling",
    }
    package = "sentence_transformers.sparse_encoder.models"
    router = {
        "types": {path: f"{package}.{kind}" for path, kind in kinds.items()},
        "structure": {
            "query": ["query_0_SparseStaticEmbedding"],
            "document": ["", "1_SpladePooling"],
        },
        "parameters": {
            "default_route": "document",
            "allow_empty_key": True,
            "route_mappings": {},
        },
    }
    module = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Router"}
    (folder / "modules.json").write_text(json.dumps([module]))
    (folder / "router_config.json").write_text(json.dumps(router))
    query = folder / "query_0_SparseStaticEmbedding"
    query.mkdir()
    if "idf" in weights:
        (query / "config.json").write_text(json.dumps({"frozen": True, "path": "idf.json"}))
        (folder / "idf.json").write_text(json.dumps(weights["idf"]))
    else:
        (query / "config.json").write_text(json.dumps({"frozen": True}))
        save_file(weights, query / "model.safetensors")
