"""Small random models of each architecture but BERT's own, and what transformers makes of them.

`python -m tests.support.models.architectures` writes tests/data/architectures.npz; it needs
transformers, torch and sentence-transformers (5.23.0, 2.15.0 and 6.2.0 made the file that lies
there: benchmarks/requirements.txt) beside NumPy and safetensors. `multilingual` is a BERT encoder
with XLM-R's tokenizer, as multilingual-e5-small is; `word_piece` (not in the file) is one with a
WordPiece that is not BERT's. Those of `jina`, which transformers has not, are computed there.
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import processors

from tests.support.models import gated, jina
from tests.support.models.folder import drawn, write, write_kinds
from tests.support.models.tiny import WORDS, encoder_shapes, small_vocabulary, word_piece

GOLDEN = Path(__file__).parents[2] / "data" / "architectures.npz"
# Longer than the distance from which on MPNet knows no differences.
LONG = " ".join(np.random.default_rng(1).choice(WORDS, 140))
SCRIPTS = "  Straße  北京大学, привет мир! 🎉 école… naïve"
TEXTS = ("the bank of the river", "a", "people could find, two 北 banks!", "", LONG, SCRIPTS)
# For the kinds of `gated`: of these lengths with special tokens, about a window's edges.
LENGTHS = (127, 128, 129, 600)
EDGES = tuple(
    " ".join(np.random.default_rng(length).choice(WORDS, length - 2)) for length in LENGTHS
)
PAIRS = (("the bank of the river", "money in the vault"), ("a", "b"))
ROBERTAS = ("roberta", "xlm-roberta", "camembert")
KINDS = ("distilbert", "electra", "mpnet", *ROBERTAS, "multilingual", *gated.GATED)
POOLED = ("mpnet", *ROBERTAS, "multilingual")  # with the dense layer over [CLS]
_OFFSET = ("mpnet", *ROBERTAS)  # positions are counted from 2
_GENERIC = "PreTrainedTokenizerFast"  # reads tokenizer.json as it is; others bring a normalizer
# Of the kinds whose tokenizer.json is not WordPiece's; json_tokenizers.py made these files.
_TOKENIZERS = {
    "roberta": ("byte_level", "RobertaTokenizer"),
    "xlm-roberta": ("unigram", "XLMRobertaTokenizer"),
    "camembert": ("unigram", "CamembertTokenizer"),
    "multilingual": ("unigram", _GENERIC),
    "word_piece": ("word_piece", _GENERIC),
}
_OURS = dict.fromkeys(gated.GATED, gated) | dict.fromkeys(jina.JINA, jina)
_ON_BERT = ("multilingual", "word_piece")  # a BERT encoder, with another tokenizer than BERT's
_HIDDEN, _INNER, _HEADS, _LAYERS, _POSITIONS, _EMBEDDING = 32, 64, 4, 2, 160, 16
_MANY_POSITIONS = 512  # their small vocabularies split LONG into more tokens
_MPNET = {"[PAD]": "<pad>", "[CLS]": "<s>", "[SEP]": "</s>", "[MASK]": "<mask>"}
_CLASSES = {
    "distilbert": "DistilBertTokenizer",
    "electra": "ElectraTokenizer",
    "mpnet": "MPNetTokenizer",
    **dict.fromkeys(("nomic_bert", "gte", "new", *jina.JINA), "BertTokenizer"),
}


def write_architecture(
    folder: Path, kind: str, prefix: str = "", hub: bool | None = None, **changes: Any
) -> None:
    """Writes a sentence-transformers folder over a small random encoder, with both tokenizers.

    Args:
        folder: Made if it is not there.
        kind: One of `KINDS`, of `jina.JINA`, or "word_piece".
        prefix: Put before every tensor's name, such as "mpnet.".
        hub: Whether "nomic_bert" and "new" are as the hub's own code has them; None: "new" is.
        changes: Of config.json.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if kind in _TOKENIZERS:
        entries = _copy_tokenizer(folder, kind)
    else:
        entries = len(vocabulary := _vocabulary(kind))
        _write_tokenizer(folder, kind, vocabulary)
    model_type = "bert" if kind in _ON_BERT else kind
    config = {"model_type": model_type, "vocab_size": entries, **_config(kind)}
    tensors = _tensors(kind, entries)
    if hub or (hub is None and kind == "new"):
        config, tensors = gated.as_hub(kind, config, tensors)
    named = {prefix + name: array for name, array in tensors.items()}
    save_file(named, folder / "model.safetensors")
    write_kinds(folder, ["Transformer", "Pooling", "Normalize"])
    width = config.get("hidden_size", _HIDDEN)
    pooling = {"word_embedding_dimension": width, "pooling_mode_mean_tokens": True}
    length = {"max_seq_length": _positions(kind) - 2 * (kind in _OFFSET)}
    files = {"config.json": config | changes, "1_Pooling/config.json": pooling}
    write(folder, files | {"sentence_bert_config.json": length})


def _vocabulary(kind: str) -> list[str]:
    entries = small_vocabulary()
    if kind != "mpnet":
        return entries
    # Positions of MPNet count the tokens that are not number 1.
    return ["<s>", "<pad>", "</s>", "<unk>", *entries, "<mask>"]


def _config(kind: str) -> dict[str, Any]:
    if kind in _OURS:
        return _OURS[kind].config(kind)
    if kind == "distilbert":
        sizes = {"dim": _HIDDEN, "hidden_dim": _INNER, "n_heads": _HEADS, "n_layers": _LAYERS}
        positions = {"max_position_embeddings": _POSITIONS, "sinusoidal_pos_embds": False}
        return {**sizes, **positions, "activation": "gelu", "pad_token_id": 0}
    config = {
        "hidden_size": _HIDDEN,
        "intermediate_size": _INNER,
        "num_attention_heads": _HEADS,
        "num_hidden_layers": _LAYERS,
        "max_position_embeddings": _positions(kind),
        "hidden_act": "gelu",
    }
    if kind == "electra":
        return config | {"embedding_size": _EMBEDDING, "type_vocab_size": 2, "pad_token_id": 0}
    if kind in _ON_BERT:
        return config | {"type_vocab_size": 2, "pad_token_id": 0}
    tokens = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    config |= tokens | {"layer_norm_eps": 1e-05}
    other = {"relative_attention_num_buckets": 32} if kind == "mpnet" else {"type_vocab_size": 1}
    return config | other


def kept_tokens(length: int) -> np.ndarray:
    """Returns the places of the tokens whose states are kept, of a row of `EDGES`."""
    places = {0, 1, 8, 9, *range(62, 67), *range(126, 131), length // 2, length - 2, length - 1}
    return np.array(sorted(place for place in places if place < length))


def _positions(kind: str) -> int:
    if kind in _OURS:
        return gated.POSITIONS
    rows = _MANY_POSITIONS if kind in _TOKENIZERS else _POSITIONS
    return rows + 2 * (kind in _OFFSET)


def _tensors(kind: str, entries: int) -> dict[str, np.ndarray]:
    if kind in _OURS:
        return _OURS[kind].tensors(kind, entries)
    width = _EMBEDDING if kind == "electra" else _HIDDEN
    tables = {"word_embeddings": entries, "position_embeddings": _positions(kind)}
    if kind not in ("distilbert", "mpnet"):
        tables["token_type_embeddings"] = 1 if kind in ROBERTAS else 2
    shapes = {f"embeddings.{name}.weight": (rows, width) for name, rows in tables.items()}
    if kind == "mpnet":
        shapes["encoder.relative_attention_bias.weight"] = (32, _HEADS)
    denses = {"embeddings_project": (_HIDDEN, width)} if kind == "electra" else {}
    denses |= {"pooler.dense": (_HIDDEN, _HIDDEN)} if kind in (*POOLED, *_ON_BERT) else {}
    shapes |= encoder_shapes(kind, denses, (width,), _LAYERS, _HIDDEN, _INNER)
    return drawn(shapes, 7)


def _write_tokenizer(folder: Path, kind: str, vocabulary: list[str]) -> None:
    named = _MPNET if kind == "mpnet" else {name: name for name in _MPNET}
    special = {f"{name[1:-1].lower()}_token": token for name, token in named.items()}
    name = _CLASSES.get(kind, _GENERIC)
    settings = {"tokenizer_class": name, "do_lower_case": True, "unk_token": "[UNK]"}
    ends = [(named[token], vocabulary.index(named[token])) for token in ("[SEP]", "[CLS]")]
    processor = processors.BertProcessing(*ends)
    if kind == "mpnet":
        processor = processors.RobertaProcessing(*ends, add_prefix_space=False)
    tokenizer = word_piece(vocabulary, [*special.values(), "[UNK]"], processor)
    files = {"vocab.txt": "".join(f"{entry}\n" for entry in vocabulary)}
    files |= {"tokenizer_config.json": special | settings, "tokenizer.json": tokenizer}
    write(folder, files)


def _copy_tokenizer(folder: Path, kind: str) -> int:
    """Writes the tokenizer of a kind, and returns how many entries it has."""
    name, tokenizer_class = _TOKENIZERS[kind]
    tokenizer = json.loads((GOLDEN.parent / "tokenizers" / f"{name}.json").read_text("utf-8"))
    if tokenizer_class != _GENERIC:
        tokenizer["normalizer"] = None
    special: dict[str, Any] = {"pad_token": "<pad>", "cls_token": "<s>", "sep_token": "</s>"}
    if kind == "word_piece":
        special = {name: f"[{name[:3].upper()}]" for name in special}
        # transformers 5 leaves out the types of a generic class
        special["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    settings = {"tokenizer_class": tokenizer_class, **special}
    write(folder, {"tokenizer.json": tokenizer, "tokenizer_config.json": settings})
    return len(tokenizer["model"]["vocab"]) + (kind == "word_piece")  # and its added token


def with_jina(golden: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Returns golden rows with those of `jina`, for the ids of "nomic_bert", which are theirs."""
    rows = dict(golden)
    for kind in jina.JINA:
        weights = jina.tensors(kind, len(_vocabulary(kind)))
        for number in range(len(TEXTS) + len(PAIRS) + len(EDGES)):
            rows[f"{kind}/ids/{number}"] = ids = golden[f"nomic_bert/ids/{number}"]
            ends = np.flatnonzero(ids == ids[-1])  # of a pair, the second text is of type 1
            types = np.arange(len(ids)) > ends[0]
            states = jina.hidden_states(kind, weights, ids, types.astype(int))
            is_edge = number >= len(TEXTS) + len(PAIRS)
            kept = kept_tokens(len(states)) if is_edge else slice(None)
            rows[f"{kind}/states/{number}"] = states[kept]
        means = [rows[f"{kind}/states/{number}"][:, -1].mean(0) for number in range(len(TEXTS))]
        rows[f"{kind}/vectors"] = np.stack([mean / np.linalg.norm(mean) for mean in means])
    return rows


def main() -> None:
    """Writes the golden ids, hidden states and pooler's outputs, of float64, and vectors."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers import AutoModel, AutoTokenizer

    golden: dict[str, np.ndarray] = {}
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            write_architecture(Path(folder), kind, hub=False)
            model, loaded = AutoModel.from_pretrained(folder, output_loading_info=True)
            assert not any(loaded.values()), loaded
            model.double()  # float32 would add an error of its own to that of ours
            if kind == "new":
                stretch(model)
            tokenizer = AutoTokenizer.from_pretrained(folder)
            rows = [(text,) for text in TEXTS] + list(PAIRS)
            rows += [(text,) for text in EDGES] if kind in gated.GATED else []
            for number, texts in enumerate(rows):
                encoded = tokenizer(*texts, return_tensors="pt")
                if kind.startswith("modernbert"):
                    encoded.pop("token_type_ids", None)
                with torch.no_grad():
                    outputs = model(**encoded, output_hidden_states=True)
                golden[f"{kind}/ids/{number}"] = encoded["input_ids"][0].numpy().astype(np.int32)
                states = torch.stack(outputs.hidden_states, dim=2)[0]  # [tokens, layers, hidden]
                assert torch.equal(states[:, -1], outputs.last_hidden_state[0])
                is_edge = number >= len(TEXTS) + len(PAIRS)
                kept = kept_tokens(len(states)) if is_edge else slice(None)
                golden[f"{kind}/states/{number}"] = states.float().numpy()[kept]
                if kind in POOLED:
                    golden[f"{kind}/pooler/{number}"] = outputs.pooler_output[0].float().numpy()
            reference = SentenceTransformer(folder, device="cpu")
            if kind == "new":
                stretch(reference[0].auto_model)
            golden[f"{kind}/vectors"] = reference.encode(list(TEXTS))
    np.savez_compressed(GOLDEN, **golden)


def stretch(model: Any) -> None:
    """Scales the rotary positions of a GteModel as the hub's own code does by "ntk"."""
    import torch

    factor, width = gated.NTK["factor"], gated.HIDDEN // gated.HEADS
    places = torch.arange(0, width, 2).float()
    theta = gated.config("gte")["rope_parameters"]["rope_theta"]
    scaled = 1.0 / ((theta * factor) ** (places / width)) / factor ** (2 / width)
    model.rotary_emb.inv_freq.copy_(scaled)


if __name__ == "__main__":
    main()
