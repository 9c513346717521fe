"""Small random Hugging Face folders: a seed in, a folder that transformers would read out."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from safetensors.numpy import save_file
from tokenizers import models, normalizers, pre_tokenizers, processors

from tests.support.models.folder import Shapes, drawn, layers_of, write

_TEXT = """the a of and to in is it that for was on are as with his they at be this from have or
by one had not but what all were we when your can said there use an each which she do how their
if will up other about out many then them these so some her would make like him into time has
look two more write go see number no way could people my than first water been call who oil its
now find long down day did get come made may part bank river robber money vault"""
WORDS = _TEXT.split()
BERT_NORMALIZER = {
    **{"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True},
    **{"strip_accents": None, "lowercase": True},
}


def small_vocabulary(cased: bool = False) -> list[str]:
    """Returns some 350 entries: special tokens, words, and every printable ASCII character."""
    characters = [chr(code) for code in range(33, 127) if cased or not 65 <= code <= 90]
    words = [*WORDS, *(word.capitalize() for word in WORDS)] if cased else WORDS
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *words]
    pieces = [f"##{character}" for character in characters if character.isalnum()]
    return list(dict.fromkeys([*entries, *pieces, "##s", "##ing", "##ed"]))


def word_piece(
    entries: Sequence[str], special: Sequence[str], processor: processors.PostProcessor | None
) -> dict[str, Any]:
    """Returns a tokenizer.json as an uncased BERT model has it."""
    vocabulary = {entry: number for number, entry in enumerate(entries)}
    library = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer()
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.add_special_tokens(list(special))
    if processor is not None:
        library.post_processor = processor
    return json.loads(library.to_str())


def write_tiny_huggingface(
    folder: Path,
    *,
    layers: int = 2,
    hidden: int = 32,
    heads: int = 4,
    positions: int = 64,
    vocab: list[str] | None = None,
    prefix: str = "",
    gamma_beta: bool = False,
    dtype: Any = np.float32,
    cased: bool = False,
    hidden_act: str = "gelu",
    pooler: bool = True,
    changes: Mapping[str, np.ndarray | None] | None = None,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Writes config.json, model.safetensors, vocab.txt and tokenizer_config.json.

    Args:
        folder: Made if it is not there.
        prefix: Put before every tensor's name, such as "bert.".
        gamma_beta: Layer norms in the names of 2018.
        changes: Tensors set after all others, by their full name; None takes one away.

    Returns:
        The tensors by the names in the file, before `dtype` was applied.
    """
    vocab = vocab or small_vocabulary(cased)
    config = {
        "model_type": "bert",
        "vocab_size": len(vocab),
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 2 * hidden,
        "hidden_act": hidden_act,
        "max_position_embeddings": positions,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
    }
    slow, lines = {"do_lower_case": not cased}, "".join(f"{token}\n" for token in vocab)
    write(folder, {"config.json": config, "tokenizer_config.json": slow, "vocab.txt": lines})
    tensors = drawn(_shapes(config, pooler), seed)
    named = {}
    for name, array in tensors.items():
        if gamma_beta and "LayerNorm" in name:
            name = name.replace(".weight", ".gamma").replace(".bias", ".beta")
        named[prefix + name] = array
    for name, array in (changes or {}).items():
        named.pop(name, None)
        if array is not None:
            named[name] = array
    cast = {name: np.ascontiguousarray(array, dtype) for name, array in named.items()}
    save_file(cast, folder / "model.safetensors")
    return named


def _shapes(config: Mapping[str, Any], pooler: bool) -> Shapes:
    hidden = config["hidden_size"]
    shapes: Shapes = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], hidden),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], hidden),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], hidden),
    }
    before = {"pooler.dense": (hidden, hidden)} if pooler else {}
    layers, inner = config["num_hidden_layers"], config["intermediate_size"]
    return shapes | encoder_shapes("bert", before, (hidden,), layers, hidden, inner)


def encoder_shapes(
    kind: str, denses: Shapes, norm: tuple[int], layers: int, hidden: int, inner: int
) -> Shapes:
    """Returns the shapes of dense layers and norms: those of the embeddings, and of layers."""
    denses, norms = dict(denses), {"embeddings.LayerNorm": norm}
    for number in range(layers):
        layer, products, normed = _layer(kind, number)
        shapes = [*[(hidden, hidden)] * 4, (inner, hidden), (hidden, inner)]
        denses |= dict(zip((f"{layer}.{name}" for name in products), shapes, strict=True))
        norms |= {f"{layer}.{name}": (hidden,) for name in normed}
    return layers_of(denses | norms)


def _layer(kind: str, number: int) -> tuple[str, list[str], list[str]]:
    if kind == "distilbert":
        products = [f"attention.{name}_lin" for name in ("q", "k", "v", "out")]
        norms = ["sa_layer_norm", "output_layer_norm"]
        return f"transformer.layer.{number}", [*products, "ffn.lin1", "ffn.lin2"], norms
    rest = ["intermediate.dense", "output.dense"]
    if kind == "mpnet":
        products = [f"attention.attn.{name}" for name in "qkvo"]
        norms = ["attention.LayerNorm", "output.LayerNorm"]
        return f"encoder.layer.{number}", [*products, *rest], norms
    products = [f"attention.self.{name}" for name in ("query", "key", "value")]
    norms = ["attention.output.LayerNorm", "output.LayerNorm"]
    return f"encoder.layer.{number}", [*products, "attention.output.dense", *rest], norms
