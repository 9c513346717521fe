"""Small random late-interaction folders in the ways they are saved, and their vectors.

`python -m tests.support.models.multi_vectors` writes tests/data/multi_vectors.npz; it needs
sentence-transformers (6.2.0 made the file that lies there) beside NumPy and safetensors.
"""

import json
import string
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.support.models.architectures import write_architecture
from tests.support.models.folder import change, drawn, read_by, write, write_modules
from tests.support.models.sentence_transformers import dense, dense_shapes
from tests.support.models.tiny import WORDS, small_vocabulary, write_tiny_huggingface

TEXTS = (
    "the bank of the river, of money!",
    "a",
    "people could find [two] 北 banks; (were they his?)",
    "",
    " ".join(np.random.default_rng(2).choice(WORDS, 70)),
)
GOLDEN = Path(__file__).parents[2] / "data" / "multi_vectors.npz"
DIM = 16
_HIDDEN = 32
_MARKERS = ("[Q] ", "[D] ")
_UNUSED = ("[unused0]", "[unused1]")
_TRANSFORMER = "sentence_transformers.base.modules.transformer.Transformer"
_DENSE = "sentence_transformers.base.modules.dense.Dense"
_PYLATE_DENSE = "pylate.models.Dense.Dense"
_NORMALIZE = "sentence_transformers.base.modules.normalize.Normalize"
_MASK = "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask"
_ON_TOKENS = {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
# What the files of colbertv2.0 and of GTE-ModernColBERT-v1 say beside lengths.
_OF_COLBERT = {
    **{"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_token": "[Q]"},
    **{"doc_token": "[D]", "ncells": None, "bsize": 32, "dim": 128, "similarity": "cosine"},
    **{"attend_to_mask_tokens": False, "interaction": "colbert", "mask_punctuation": True},
    **{"checkpoint": "bert-base-uncased", "nbits": 1},
}
_OF_GTE = {
    **{"__version__": {"sentence_transformers": "4.0.2"}, "default_prompt_name": None},
    **{"attend_to_expansion_tokens": False, "do_query_expansion": True},
}
CASES: dict[str, dict[str, Any]] = {
    "stanford": {
        "way": "stanford",
        "metadata": _OF_COLBERT | {"query_maxlen": 16, "doc_maxlen": 24},
    },
    "stanford_attends": {
        "way": "stanford",
        "metadata": {
            **{"query_maxlen": 12, "doc_maxlen": 60, "attend_to_mask_tokens": True},
            **{"mask_punctuation": False, "query_token_id": "[unused1]"},
            "doc_token_id": "[unused0]",
        },
    },
    "pylate": {
        "way": "pylate",
        "encoder": "modernbert",
        "config": {
            **{"query_length": 16, "document_length": 40, "skiplist_words": [",", "!", "Ġof"]},
            **_OF_GTE,
        },
    },
    "pylate_bert": {
        "way": "pylate",
        "encoder": "bert",
        "config": {"attend_to_expansion_tokens": True, "document_length": 30},
    },
    "pylate_residual": {
        "way": "pylate",
        "encoder": "modernbert",
        "config": {"do_query_expansion": False, "query_length": 16, "document_length": 40},
        "layers": [
            dense(_HIDDEN, 48, "linear.Identity", bias=False, use_residual=True),
            dense(48, 48, "activation.SiLU", use_residual=True),
            dense(48, DIM, "linear.Identity", bias=False, use_residual=True),
        ],
    },
    "own": {
        "way": "own",
        "encoder": "modernbert",
        "transformer": {
            "document_length": 50,
            "query_expansion": {"strategy": "fixed", "attend": False, "token": None, "length": 16},
        },
        "mask": {"skiplist_words": list(string.punctuation)},
        "layers": [
            dense(_HIDDEN, 24, "activation.GELU", **_ON_TOKENS),
            dense(24, DIM, "linear.Identity", bias=False, **_ON_TOKENS),
        ],
    },
    "own_bert": {
        "way": "own",
        "encoder": "bert",
        "prompts": {"query": "find the river: ", "document": "of: "},
        "transformer": {
            "query_length": 20,
            "query_expansion": {"strategy": "min", "attend": True, "token": None, "length": 10},
        },
        "mask": {"skiplist_words": [",", "of"], "skiplist_tasks": ["query", "document"]},
    },
}


def write_multi_vectors(folder: Path, case: str, **changes: Any) -> None:
    """Writes the folder of one of `CASES`, with changes of what it says."""
    settings = CASES[case] | changes
    _WAYS[settings["way"]](folder, settings)


def _write_stanford(folder: Path, settings: Mapping[str, Any]) -> None:
    write_tiny_huggingface(
        folder,
        prefix="bert.",
        vocab=[*small_vocabulary(), *_UNUSED],
        changes=drawn({"linear.weight": (DIM, _HIDDEN)}, 1),
    )
    change(folder, {"config.json": {"architectures": ["HF_ColBERT"]}})
    write(folder, {"artifact.metadata": settings["metadata"]})


def _write_pylate(folder: Path, settings: Mapping[str, Any]) -> None:
    # These markers are entries that a text could contain, as PyLate adds them.
    _write_encoder(folder, settings["encoder"], special=False)
    _write_layers(folder, settings, _PYLATE_DENSE, {}, {})
    query, document = _MARKERS
    prefixes = {"query_prefix": query, "document_prefix": document, "model_type": "ColBERT"}
    config = {"prompts": {}, "similarity_fn_name": "MaxSim", **prefixes, **settings["config"]}
    write(folder, {"config_sentence_transformers.json": config})


def _write_own(folder: Path, settings: Mapping[str, Any]) -> None:
    _write_encoder(folder, settings["encoder"], special=True)
    after = {_MASK: settings["mask"], _NORMALIZE: _ON_TOKENS}
    _write_layers(folder, settings, _DENSE, _ON_TOKENS, after)
    query, document = _MARKERS
    prompts = settings.get("prompts", {"query": query, "document": document})
    config = {"model_type": "MultiVectorEncoder", "prompts": prompts}
    files = {"sentence_bert_config.json": settings["transformer"]}
    change(folder, files | {"config_sentence_transformers.json": config})


_WAYS = {"stanford": _write_stanford, "pylate": _write_pylate, "own": _write_own}


def _write_encoder(folder: Path, kind: str, special: bool) -> None:
    """Writes an encoder whose vocabulary ends with the two markers, and its tokenizer.json."""
    if kind == "bert":
        write_architecture(folder, "electra", embedding_size=_HIDDEN)
        tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
        write_tiny_huggingface(folder, vocab=[*small_vocabulary(), *_MARKERS])
        (folder / "vocab.txt").unlink()
        slow = _SPECIAL | {"tokenizer_class": "BertTokenizer"}
        entries = len(tokenizer["model"]["vocab"])
    else:
        write_architecture(folder, kind)
        tokenizer = json.loads((GOLDEN.parent / "tokenizers" / "byte_level.json").read_text())
        slow, entries = _BYTE_LEVEL, len(tokenizer["model"]["vocab"])
        table = drawn({"embeddings.tok_embeddings.weight": (entries + 2, _HIDDEN)}, 9)
        change(folder, {"model.safetensors": table, "config.json": {"vocab_size": entries + 2}})
    usual = {"lstrip": False, "rstrip": False, "single_word": False, "normalized": not special}
    tokenizer["added_tokens"] += [
        {"id": entries + number, "content": marker, "special": special, **usual}
        for number, marker in enumerate(_MARKERS)
    ]
    files = {"tokenizer.json": tokenizer, "tokenizer_config.json": slow}
    write(folder, files | {"sentence_bert_config.json": {}})


_SPECIAL = {
    **{"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"},
    **{"mask_token": "[MASK]", "do_lower_case": True, "model_max_length": 64},
}
_BYTE_LEVEL = {
    **{"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>", "mask_token": "<mask>"},
    **{"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 200},
}


def _write_layers(
    folder: Path,
    settings: Mapping[str, Any],
    kind: str,
    names: Mapping[str, str],
    after: Mapping[str, Any],
) -> None:
    """Writes the dense layers of a kind, and the configs of modules behind them by their kinds."""
    layers = settings.get("layers") or [dense(_HIDDEN, DIM, "linear.Identity", bias=False, **names)]
    modules = [*((kind, config) for config in layers), *after.items()]
    types = {str(number): one for number, (one, _) in enumerate(modules, 1)}
    write_modules(folder, {"": _TRANSFORMER} | types)
    for number, (one, config) in enumerate(modules, 1):
        write(folder, {f"{number}/config.json": config})
        if one == kind:
            arrays = drawn(dense_shapes(config), number)
            save_file(arrays, folder / str(number) / "model.safetensors")


def main() -> None:
    from sentence_transformers import MultiVectorEncoder

    vectors: dict[str, np.ndarray] = {}
    for case in CASES:
        model = read_by(MultiVectorEncoder, write_multi_vectors, case, device="cpu")
        for role in ("document", "query"):
            for number, rows in enumerate(getattr(model, f"encode_{role}")(list(TEXTS))):
                vectors[f"{case}/{role}/{number}"] = np.asarray(rows, np.float32)
    np.savez_compressed(GOLDEN, **vectors)


if __name__ == "__main__":
    main()
