"""Seeded models, and our encoder's graph of each as programs for XLA; with the product's Python.

`python -m benchmarks.gpu.export FOLDER [--quick]`. For each model a folder that transformers reads,
the weights as our programs take them, and a program (HLO) for each length, in bfloat16.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from safetensors.numpy import save_file

from bert_embed.bundle.bundle import Bundle
from bert_embed.graph.load import load_encoder, load_tokenizer
from bert_embed.graph.pooling import model_outputs
from bert_embed.importers.huggingface import import_huggingface
from bert_embed.specs import OutputSpec

BATCH_TOKENS, LENGTHS = 16384, (32, 128, 512)
# hidden size, layers, heads, inner size
MODELS = {"MiniLM-L6": (384, 6, 12, 1536), "BERT-base": (768, 12, 12, 3072)}
QUICK_TOKENS, QUICK_LENGTHS = 256, (16, 32)
QUICK_MODELS = {"tiny": (64, 2, 4, 128)}
_VOCABULARY, _POSITIONS = 30522, 512
_SPREAD = 0.05  # of the weights: wide enough that vectors of different rows differ
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def main() -> None:
    """Writes everything anew."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    models, lengths, budget = MODELS, LENGTHS, BATCH_TOKENS
    if args.quick:
        models, lengths, budget = QUICK_MODELS, QUICK_LENGTHS, QUICK_TOKENS
    shutil.rmtree(args.folder, ignore_errors=True)
    for name, sizes in models.items():
        folder = args.folder / name
        write_huggingface(folder / "huggingface", *sizes)
        bundle = import_huggingface(str(folder / "huggingface"), str(folder / "bundle"))
        write_programs(bundle, folder, {length: budget // length for length in lengths})


def write_programs(bundle: Bundle, folder: Path, rows: dict[int, int]) -> None:
    """Writes the weights and the programs of a model.

    Args:
        bundle: The model.
        folder: Gets `weights.npz`, arrays by their place among a program's parameters behind the
            three of a batch; `program-LENGTH.hlo`; and `model.json` about them.
        rows: How many rows the batches of each length have.
    """
    encoder = load_encoder(bundle)
    encoder.compute_in(tf.bfloat16)
    tokenizer = load_tokenizer(bundle)
    special = tokenizer.cls_id, tokenizer.sep_id
    variables = {id(one.handle): one for one in encoder.variables}
    arrays: list[np.ndarray] = []
    for length, count in rows.items():

        @tf.function(
            input_signature=[tf.TensorSpec([count, length], tf.int32)] * 3,
            autograph=False,
            jit_compile=True,
        )
        def run(ids: tf.Tensor, mask: tf.Tensor, types: tf.Tensor) -> Any:
            return model_outputs(encoder, bundle.defaults, OutputSpec(), ids, mask, types, special)

        compiler = run.experimental_get_compiler_ir(*run.input_signature)
        (folder / f"program-{length}.hlo").write_bytes(compiler(stage="hlo_serialized"))
        captured = run.get_concrete_function().captured_inputs
        arrays = [variables[id(handle)].numpy() for handle in captured]
    short = [array.dtype == tf.bfloat16.as_numpy_dtype for array in arrays]
    stored = [array.view(np.uint16) if short[at] else array for at, array in enumerate(arrays)]
    np.savez(folder / "weights.npz", *stored)
    config = bundle.config
    products = 4 * config.hidden_size**2 + 2 * config.hidden_size * config.intermediate_size
    about = {
        "bfloat16": short,
        "rows": rows,
        "vocabulary": config.vocab_size,
        # Of the weight products and of attention's two products, for a token of each length.
        "flops": {
            length: config.num_hidden_layers * (2 * products + 4 * length * config.hidden_size)
            for length in rows
        },
    }
    (folder / "model.json").write_text(json.dumps(about), encoding="utf-8")


def write_huggingface(folder: Path, hidden: int, layers: int, heads: int, inner: int) -> None:
    """Writes a sentence-transformers folder: mean pooling, unit length, seeded random weights."""
    (folder / "1_Pooling").mkdir(parents=True)
    config = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "vocab_size": _VOCABULARY,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "hidden_act": "gelu",
        "max_position_embeddings": _POSITIONS,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
    }
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (path, kind) in enumerate(kinds.items())
    ]
    pooling = {"word_embedding_dimension": hidden, "pooling_mode_mean_tokens": True}
    files: dict[str, Any] = {
        "config.json": config,
        "modules.json": modules,
        "1_Pooling/config.json": pooling,
        "tokenizer_config.json": {"do_lower_case": True, "tokenizer_class": "BertTokenizer"},
        "sentence_bert_config.json": {"max_seq_length": _POSITIONS},
    }
    for name, values in files.items():
        (folder / name).write_text(json.dumps(values), encoding="utf-8")
    words = [*_SPECIAL, *(f"word{at}" for at in range(_VOCABULARY - len(_SPECIAL)))]
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    save_file(random_tensors(hidden, layers, inner), folder / "model.safetensors")


def random_tensors(hidden: int, layers: int, inner: int) -> dict[str, np.ndarray]:
    """Returns the float32 tensors of a BERT in the names of Hugging Face."""
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (_VOCABULARY, hidden),
        "embeddings.position_embeddings.weight": (_POSITIONS, hidden),
        "embeddings.token_type_embeddings.weight": (2, hidden),
        "pooler.dense.weight": (hidden, hidden),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in (f"encoder.layer.{number}" for number in range(layers)):
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            shapes[f"{layer}.attention.{name}.weight"] = (hidden, hidden)
        shapes[f"{layer}.intermediate.dense.weight"] = (inner, hidden)
        shapes[f"{layer}.output.dense.weight"] = (hidden, inner)
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    random = np.random.default_rng(0)
    tensors = {}
    for name, shape in shapes.items():
        tensors[name] = random.standard_normal(shape, np.float32) * np.float32(_SPREAD)
        if "embeddings" not in name:
            tensors[name.replace("weight", "bias")] = np.zeros(shape[0], np.float32)
    for name in norms:
        tensors[f"{name}.weight"] = np.ones(hidden, np.float32)
        tensors[f"{name}.bias"] = np.zeros(hidden, np.float32)
    return tensors


if __name__ == "__main__":
    main()
