"""Small random static models, and what sentence-transformers and model2vec make of them.

`python -m tests.support.models.static` writes tests/data/static.npz; it needs both libraries (6.2.0
and 0.10.0 made the file that lies there) beside NumPy and safetensors.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import processors

from tests.support.models.folder import read_by, write, write_kinds, write_modules
from tests.support.models.sentence_transformers import dense
from tests.support.models.tiny import WORDS, small_vocabulary, word_piece

GOLDEN = Path(__file__).parents[2] / "data" / "static.npz"
WIDTH = 24
# model2vec cuts texts at 512 times the characters of the median entry: long ones keep it away.
ENTRIES = [*small_vocabulary(), *(f"longentry{number}" for number in range(400))]
TEXTS = (
    "the bank of the river",
    "a",
    "",
    "two banks, 北 people",  # 北 is an unknown token
    "北",
    " ".join(np.random.default_rng(1).choice(WORDS, 600)),
    "  Straße  école… naïve 🎉",
)
LONG = " ".join(np.random.default_rng(2).choice(WORDS, 5_000))
# Modules of sentence-transformers' kinds, and settings of model2vec's config.json.
MODULES: dict[str, list[str]] = {"plain": [], "dense": ["Dense", "Normalize"], "unigram": []}
MODEL2VEC: dict[str, dict[str, Any]] = {
    "potion": {"normalize": True, "seq_length": 1000000},
    "weighted": {"normalize": False, "max_length": None},
    "shared": {"normalize": True, "max_length": 100},
}


def write_static(folder: Path, kind: str) -> None:
    place = folder / "0_StaticEmbedding" if kind in MODULES else folder
    write(place, {"tokenizer.json": (tokenizer := _tokenizer(kind))})
    entries = len(tokenizer["model"]["vocab"])
    random = np.random.default_rng(5)

    def drawn(*shape: int) -> np.ndarray:
        return random.normal(size=shape).astype(np.float32)

    if kind in MODULES:
        save_file({"embedding.weight": drawn(entries, WIDTH)}, place / "model.safetensors")
        write_kinds(folder, ["StaticEmbedding", *MODULES[kind]])
        write(folder, {"config_sentence_transformers.json": {"prompts": {}}})
        if "Dense" in MODULES[kind]:
            write(folder, {"1_Dense/config.json": dense(WIDTH, 10)})
            layer = {"linear.weight": drawn(10, WIDTH), "linear.bias": drawn(10)}
            save_file(layer, folder / "1_Dense" / "model.safetensors")
        return
    config = {"model_type": "model2vec", "architectures": ["StaticModel"], "hidden_dim": WIDTH}
    package = "sentence_transformers.models"
    types = {".": f"{package}.StaticEmbedding"}
    types |= {"1_Normalize": f"{package}.Normalize"} if MODEL2VEC[kind]["normalize"] else {}
    write_modules(folder, types)
    write(folder, {"config.json": config | MODEL2VEC[kind]})
    tensors = {"embeddings": drawn(entries if kind != "shared" else 50, WIDTH)}
    if kind != "potion":
        tensors["weights"] = np.abs(drawn(entries))
    if kind == "shared":
        tensors["embeddings"] = (tensors["embeddings"] * 40).astype(np.int8)
        tensors["mapping"] = random.integers(50, size=entries)
    save_file(tensors, folder / "model.safetensors")


def _tokenizer(kind: str) -> dict[str, Any]:
    if kind == "unigram":
        return json.loads((GOLDEN.parent / "tokenizers" / "unigram.json").read_text("utf-8"))
    ends = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    processor = ends if kind == "plain" else None
    return word_piece(ENTRIES, ENTRIES[:5], processor)


def main() -> None:
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer

    vectors = {}
    for kind in (*MODULES, *MODEL2VEC):
        if kind in MODULES:
            model = read_by(SentenceTransformer, write_static, kind, device="cpu")
        else:
            model = read_by(StaticModel.from_pretrained, write_static, kind, force_download=False)
        vectors[kind] = model.encode([*TEXTS, LONG])
    np.savez_compressed(GOLDEN, **vectors)


if __name__ == "__main__":
    main()
