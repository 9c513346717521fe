"""Small random sentence-transformers folders, and what sentence-transformers makes of them.

`python -m tests.support.models.sentence_transformers` writes
tests/data/sentence_transformers.npz; it needs sentence-transformers (6.2.0 made the file that lies
there) beside NumPy and safetensors.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.support.models.folder import change, read_by, write, write_kinds
from tests.support.models.tiny import write_tiny_huggingface

TEXTS = ("the bank of the river", "money in the vault", "a", "people could find two banks", "")
QUERY = "find the river: "
PAIRS = (("the bank", "of the river"), ("a b " * 9, "my number " * 9), ("", "a"))
# Settings of tokenizer_config.json that decide how pairs are numbered.
PAIR_SETTINGS: dict[str, dict[str, Any]] = {
    "BERT's class": {"tokenizer_class": "BertTokenizer"},
    "another class": {"tokenizer_class": "DistilBertTokenizer"},
    "without types": {"model_input_names": ["input_ids", "attention_mask"]},
}
GOLDEN = Path(__file__).parents[2] / "data" / "sentence_transformers.npz"
_NN = "torch.nn.modules."


def dense(width: int, out: int, activation: str = "activation.Tanh", **more: Any) -> dict[str, Any]:
    """Returns the config.json of a Dense module."""
    function = _NN + activation
    return {"in_features": width, "out_features": out, "activation_function": function, **more}


def dense_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the tensors of a Dense module, by their names."""
    shape = config["out_features"], config["in_features"]
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": shape}
    if config.get("bias", True):
        shapes["linear.bias"] = shape[:1]
    if config.get("use_residual") and shape[0] != shape[1]:
        shapes["residual.weight"] = shape
    return shapes


def on_tokens(width: int, out: int, activation: str, **more: Any) -> dict[str, Any]:
    """Returns the config.json of a Dense module before the pooling."""
    return dense(width, out, activation, module_input_name="token_embeddings", **more)


# Modules behind the pooling, whose vectors truncate_dim of a file or of a call may cut.
_CHAINS = {"pooled": [], "dense": [dense(32, 24)], "norm": [{"dimension": 32}]}
CHAINS: dict[str, dict[str, Any]] = {
    f"{name}{suffix}": {"modules": modules, "normalize": bool(suffix)}
    for name, modules in _CHAINS.items()
    for suffix in ("", "_unit")
}
SAVED_DIMS, DIMS = (None, 8, 24), (None, 5, 16)  # of the file, of the call
CASES: dict[str, dict[str, Any]] = {
    "joined": {
        "pooling": {"pooling_mode": ["cls", "mean", "max"]},
        "modules": [dense(96, 48)],
        "normalize": True,
    },
    "switches": {
        "pooling": {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True},
        "modules": [dense(64, 24, "activation.ReLU", bias=False), dense(24, 20, "linear.Identity")],
    },
    "sums": {
        "pooling": {"pooling_mode": ["weightedmean", "mean_sqrt_len_tokens", "lasttoken"]},
        "modules": [dense(96, 20, "activation.GELU"), dense(20, 8, "activation.Sigmoid")],
    },
    "prompts": {
        "pooling": {"pooling_mode": ["mean", "weightedmean", "max"], "include_prompt": False},
        "modules": [dense(96, 16)],
        "normalize": True,
        "prompts": {"query": QUERY, "document": ""},
        "default_prompt": "query",
    },
    "norm": {
        "pooling": {"pooling_mode": "mean"},
        "modules": [
            {"dimension": 32},
            dense(32, 20, "activation.SiLU", use_residual=True),
            dense(20, 20, "activation.Tanh", use_residual=True),
            {"dimension": 20},
        ],
        "normalize": True,
    },
    "on_tokens": {
        "before": [on_tokens(32, 24, "activation.GELU"), on_tokens(24, 40, "activation.Tanh")],
        "pooling": {"pooling_mode": ["max", "mean"]},
        "modules": [dense(80, 12, "linear.Identity")],
    },
    "weighted": {
        "before": [
            {"embedding_dimension": 32, "layer_start": 1, "num_hidden_layers": 3},
            on_tokens(32, 16, "activation.ReLU", bias=False),
        ],
        "pooling": {"pooling_mode": "mean"},
        "layers": 3,
    },
}


def write_sentence_transformers(
    folder: Path,
    *,
    before: Sequence[Mapping[str, Any]] = (),
    pooling: Mapping[str, Any] | None = None,
    modules: Sequence[Mapping[str, Any]] = (),
    normalize: bool = False,
    max_seq_length: int | None = None,
    prompts: Mapping[str, str] | None = None,
    default_prompt: str | None = None,
    **model: Any,
) -> tuple[dict[str, np.ndarray], list[dict[str, np.ndarray]]]:
    """Writes a folder with a tiny encoder, its pooling and Dense modules.

    Args:
        folder: Made if it is not there.
        before: The config.json of each module before the pooling, on tokens.
        pooling: That of the pooling.
        modules: Those of the modules behind it.
        normalize: Whether vectors have unit length.
        max_seq_length: That of the Transformer module; None names none.
        prompts: Those of the model.
        default_prompt: The name of the default one.
        **model: For `write_tiny_huggingface`.

    Returns:
        The encoder's tensors, and those of each module but the pooling.
    """
    said = {"word_embedding_dimension": 32, **(pooling or {})}
    tensors = write_tiny_huggingface(folder, **model)
    random = np.random.default_rng(3)
    names, weights = ["Transformer"], []
    for config in (*before, said, *modules):
        kind = "Pooling" if config is said else _kind(config)
        place = f"{len(names)}_{kind}"
        names.append(kind)
        write(folder, {f"{place}/config.json": config})
        if config is not said:
            arrays = {
                name: (random.normal(size=shape) * 0.2 + (kind != "Dense")).astype(np.float32)
                for name, shape in _SHAPES[kind](config).items()
            }
            save_file(arrays, folder / place / "model.safetensors")
            weights.append(arrays)
    if "WeightedLayerPooling" in names:
        change(folder, {"config.json": {"output_hidden_states": True}})
    write_kinds(folder, [*names, *(["Normalize"] if normalize else [])])
    length = {} if max_seq_length is None else {"max_seq_length": max_seq_length}
    config = {"prompts": prompts or {}, "default_prompt_name": default_prompt}
    files = {"sentence_bert_config.json": length, "config_sentence_transformers.json": config}
    write(folder, files)
    return tensors, weights


def write_case(folder: Path, name: str) -> None:
    """Writes a folder of one of `CASES`."""
    write_sentence_transformers(folder, **CASES[name])


def write_chain(folder: Path, name: str, saved: int | None) -> None:
    """Writes a folder with one of `CHAINS`, and a truncate_dim."""
    write_sentence_transformers(folder, **CHAINS[name])
    change(folder, {"config_sentence_transformers.json": {"truncate_dim": saved}})


def write_pairs_model(folder: Path, name: str) -> None:
    """Writes a folder with one of `PAIR_SETTINGS`, which cuts rows at 16 tokens."""
    write_sentence_transformers(folder, max_seq_length=16)
    change(folder, {"tokenizer_config.json": PAIR_SETTINGS[name]})


def _kind(config: Mapping[str, Any]) -> str:
    if "in_features" in config:
        return "Dense"
    return "LayerNorm" if "dimension" in config else "WeightedLayerPooling"


_SHAPES: dict[str, Callable[[Mapping[str, Any]], dict[str, tuple[int, ...]]]] = {
    "Dense": dense_shapes,
    "LayerNorm": lambda config: dict.fromkeys(("norm.weight", "norm.bias"), (config["dimension"],)),
    "WeightedLayerPooling": lambda config: {
        "layer_weights": (config["num_hidden_layers"] + 1 - config["layer_start"],)
    },
}


def main() -> None:
    from sentence_transformers import SentenceTransformer

    vectors = {}
    load = partial(read_by, partial(SentenceTransformer, device="cpu"))
    for name, settings in CASES.items():
        model = load(write_case, name)
        vectors[name] = model.encode(list(TEXTS))
        for prompt in settings.get("prompts", {}):
            vectors[f"{name}/{prompt}"] = model.encode(list(TEXTS), prompt_name=prompt)
    for name in PAIR_SETTINGS:
        vectors[name] = load(write_pairs_model, name).encode(list(PAIRS))
    for name, saved, dim in product(CHAINS, SAVED_DIMS, DIMS):
        cut = {} if dim is None else {"truncate_dim": dim}
        model = load(write_chain, name, saved, **cut)
        for normalize in (False, True):
            key = f"{name}/{saved}/{dim}/{normalize}"
            vectors[key] = model.encode(list(TEXTS[:2]), normalize_embeddings=normalize)
    np.savez_compressed(GOLDEN, **vectors)


if __name__ == "__main__":
    main()
