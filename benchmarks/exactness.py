"""How far ours is from transformers and sentence-transformers, with a model of each family.

The models are small, with random weights in which every part matters. Each is imported, and what it
makes of texts of 1 token to its length, in twenty scripts, with emoji, empty ones, and of pairs is
compared with what the peers' environment computes from the same folder. "int8" is the least cosine
of a vector in int8 with its own in float32, of scores their largest difference.

`exactness` (tests/support/models/architectures.py): ids, and hidden states of all layers. `heads`
(tests/support/models/heads.py): a SPLADE model and a classifier of each family, in the forms that
their heads have, beside SparseEncoder, CrossEncoder and AutoModelForSequenceClassification; and
late-interaction models, in the ways they are saved (tests/support/models/multi_vectors.py), beside
MultiVectorEncoder.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.peers import peer, peer_versions
from bert_embed.bundle.bundle import Bundle
from bert_embed.encoder import Encoder
from bert_embed.importers import import_model
from bert_embed.models.heads.vectors import SparseVectors
from tests.support.models.architectures import KINDS, LONG, PAIRS, SCRIPTS, write_architecture
from tests.support.models.architectures import TEXTS as SHORT
from tests.support.models.heads import MLM, as_cross_encoder, as_router, write_classifier, write_mlm
from tests.support.models.multi_vectors import CASES, write_multi_vectors
from tests.support.models.tiny import write_tiny_huggingface

_GREETINGS = (
    *("Hello, world!", "Καλημέρα, κόσμε", "Привет, мир", "Բարեւ աշխարհ", "שלום עולם"),
    *("مرحبا بالعالم", "नमस्ते दुनिया", "ওহে বিশ্ব", "வணக்கம் உலகம்", "สวัสดีชาวโลก"),
    *("გამარჯობა სამყარო", "안녕하세요 세계", "こんにちは世界", "你好世界", "ሰላም ልዑል"),
    *("សួស្តី​ពិភពលោក", "ආයුබෝවන් ලෝකය", "નમસ્તે વિશ્વ", "హలో ప్రపంచం", "བཀྲ་ཤིས་བདེ་ལེགས"),
)
# With the tokens before and behind, on both sides of a sliding window of 128.
_COUNTED = tuple("a " * count for count in (1, 2, 125, 126, 127, 300))
TEXTS = (*SHORT, *_GREETINGS, *_COUNTED, " ".join([LONG] * 4), f"{SCRIPTS} \U0001f389" * 9)
_FULL = [text for text in TEXTS if text.strip()]
_FAMILIES = ("bert", "word_piece", *KINDS)
_POSITIONS = 512
# How the heads of each family differ; others are SPLADE's usual one, and three labels.
_SPARSE: dict[str, dict[str, Any]] = {
    "distilbert": {"activation_function": "log1p_relu"},
    "electra": {"pooling_strategy": "sum"},
    "xlm-roberta": {"own_decoder": True},
    "camembert": {"pooling_strategy": "sum", "activation_function": "log1p_relu"},
    "modernbert_biased": {"own_decoder": True},
}
_CHANGES: dict[str, dict[str, Any]] = {
    "distilbert": {"labels": 1, "problem_type": "regression"},
    "electra": {"labels": 4, "problem_type": "multi_label_classification"},
    "modernbert_biased": {"labels": 3, "classifier_pooling": "mean"},
}
_COLUMNS = {
    "largest difference": "{difference:.1e}",
    "of values up to": "{largest_value:.3g}",
    "ids equal": "{ids_equal}",
    "int8": "{int8:.4f}",
}

_Compare = Callable[[Path, str, measure.Child], dict[str, Any]]


def exactness(name: str, families: Sequence[str] = _FAMILIES) -> None:
    """Compares the hidden states of the families."""
    compared = {family: (family, _compare_states) for family in families}
    columns = {"layers": "{layers}", "tokenizer": "{tokenizer}", "longest row": "{longest}"}
    _report(name, f"{len(TEXTS)} texts and {len(PAIRS)} pairs a family", compared, columns)


def heads(name: str, families: Sequence[str] = (*MLM, *CASES)) -> None:
    """Compares what the heads of the families make."""
    compared: dict[str, tuple[str, _Compare]] = {}
    for family in families:
        kinds: dict[str, _Compare] = {
            "sparse": _compare_sparse,
            "scores": _compare_scores,
            "pairs": _compare_pairs,
        }
        if family in CASES:
            kinds = {
                "multi": partial(_compare_multi, "multi"),
                "multi query": partial(_compare_multi, "multi_query"),
            }
        if family == "multilingual":
            kinds["query"] = _compare_queries
        compared |= {f"{family} {kind}": (family, compare) for kind, compare in kinds.items()}
    _report(name, f"{len(TEXTS)} texts a family, and pairs of them", compared, {})


def _report(
    name: str, data: str, compared: dict[str, tuple[str, _Compare]], columns: dict[str, str]
) -> None:
    theirs, results = peer("reference"), {}
    for title, (family, compare) in compared.items():
        with tempfile.TemporaryDirectory() as folder:
            results[title] = compare(Path(folder), family, theirs)
        print(title, results[title], flush=True)
    theirs.close()
    versions = peer_versions("sentence-transformers", "transformers", "tokenizers", "torch")
    record = {"benchmark": name, "data": data, "peers": versions}
    measure.report(record, {"model": "{name}", **columns, **_COLUMNS}, results)


def _compare_states(folder: Path, family: str, theirs: measure.Child) -> dict[str, Any]:
    source = folder / "source"  # for transformers, which knows no names of the hub's own code
    if family == "bert":
        write_tiny_huggingface(source, positions=_POSITIONS)
    else:
        write_architecture(source, family, hub=False)
        write_architecture(folder / "ours", family)
    ours = folder / "ours" if family != "bert" else source
    bundle = import_model(str(ours), str(folder / "bundle"))
    rows = [[text] for text in TEXTS] + [list(pair) for pair in PAIRS]
    task = "stretched states" if family == "new" else "states"
    arrays = _asked(theirs, task, folder, bundle, rows)
    encoder = Encoder(bundle, threads=1)
    layers = list(range(bundle.config.num_hidden_layers + 1))
    settings = {"layers": layers, "layer_combine": "stack", "long_text": "truncate"}
    first, second = zip(*PAIRS, strict=True)
    vectors = encoder.units(TEXTS, **settings)
    vectors += encoder.units(first, texts_b=second, **settings)
    found, equal = {"difference": 0.0, "largest_value": 0.0}, True
    for number, tokens in enumerate(vectors):
        equal &= tokens.texts == encoder.tokenizer.tokens(arrays[f"ids/{number}"])
        apart = _difference(tokens.vectors, arrays[f"states/{number}"])
        found = {key: max(value, apart[key]) for key, value in found.items()}
    float32, int8 = (
        Encoder(bundle, threads=1, precision=one).encode(_FULL, long_text="truncate")
        for one in ("float32", "int8")
    )
    return found | {
        "layers": len(layers) - 1,
        "tokenizer": encoder.tokenizer.settings.get("kind", "BERT's WordPiece"),
        "longest": max(len(tokens.texts) for tokens in vectors),
        "ids_equal": "yes" if equal else "NO",
        "int8": float(np.diag(encoder.similarity(float32, int8)).min()),
    }


def _compare_sparse(folder: Path, family: str, theirs: measure.Child) -> dict[str, Any]:
    write_mlm(folder / "source", family, **_SPARSE.get(family, {}))
    bundle = import_model(str(folder / "source"), str(folder / "bundle"))
    reference = _asked(theirs, "sparse", folder, bundle, [[text] for text in _FULL])["vectors"]
    exact, near = (
        _whole(encoder.encode(_FULL, long_text="truncate", kind="sparse"), bundle.config.vocab_size)
        for encoder in (Encoder(bundle, threads=1, precision=one) for one in ("float32", "int8"))
    )
    lengths = np.linalg.norm(exact, axis=1) * np.linalg.norm(near, axis=1)
    return _difference(exact, reference) | {"int8": float(((exact * near).sum(1) / lengths).min())}


def _compare_queries(folder: Path, family: str, theirs: measure.Child) -> dict[str, Any]:
    source = folder / "source"
    write_mlm(source, family)
    entries = len(json.loads((source / "tokenizer.json").read_text())["model"]["vocab"])
    weights = np.random.default_rng(2).random(entries).astype(np.float32)
    as_router(source, weight=weights)
    for name in ("tokenizer.json", "tokenizer_config.json"):  # where SparseEncoder looks for them
        shutil.copy(source / name, source / "query_0_SparseStaticEmbedding")
    bundle = import_model(str(source), str(folder / "bundle"))
    texts = _FULL[:25]  # no longer than a row
    reference = _asked(theirs, "query", folder, bundle, [[text] for text in texts])["vectors"]
    ours = Encoder(bundle, threads=1).encode_query(texts, kind="sparse")
    return _difference(_whole(ours, bundle.config.vocab_size), reference)


def _compare_scores(folder: Path, family: str, theirs: measure.Child) -> dict[str, Any]:
    write_classifier(folder / "source", family, **{"labels": 3, **_CHANGES.get(family, {})})
    bundle = import_model(str(folder / "source"), str(folder / "bundle"))
    logits = _asked(theirs, "logits", folder, bundle, [[text] for text in TEXTS])["vectors"]
    reference = bundle.heads["scores"].activated(logits)  # type: ignore[attr-defined]
    exact, near = (
        Encoder(bundle, threads=1, precision=one).encode(TEXTS, long_text="truncate", kind="scores")
        for one in ("float32", "int8")
    )
    return _difference(exact, reference) | {"int8": float(np.abs(exact - near).max())}


def _compare_pairs(folder: Path, family: str, theirs: measure.Child) -> dict[str, Any]:
    write_classifier(folder / "source", family, 1)
    as_cross_encoder(folder / "source")
    bundle = import_model(str(folder / "source"), str(folder / "bundle"))
    rows = [[first, second] for first in TEXTS[:3] for second in _FULL]
    reference = _asked(theirs, "pairs", folder, bundle, rows)["vectors"]
    ours = Encoder(bundle, threads=1).encode(
        *map(list, zip(*rows, strict=True)), long_text="truncate", kind="scores"
    )
    return _difference(ours, reference)


def _compare_multi(task: str, folder: Path, case: str, theirs: measure.Child) -> dict[str, Any]:
    write_multi_vectors(folder / "source", case)
    bundle = import_model(str(folder / "source"), str(folder / "bundle"))
    reference = _asked(theirs, task, folder, bundle, [[text] for text in TEXTS])["vectors"]
    encoder = Encoder(bundle, threads=1)
    if task == "multi_query":
        queries = encoder.encode_query(TEXTS, long_text="truncate", kind="multi")
        return _difference(queries.vectors, reference)
    ours = encoder.encode(TEXTS, long_text="truncate", kind="multi")
    int8 = Encoder(bundle, threads=1, precision="int8").encode(
        TEXTS, long_text="truncate", kind="multi"
    )
    nearest = float((ours.vectors * int8.vectors).sum(axis=1).min())
    return _difference(ours.vectors, reference) | {"int8": nearest}


def _asked(
    theirs: measure.Child, task: str, folder: Path, bundle: Bundle, rows: list[list[str]]
) -> Any:
    path = str(folder / "reference.npz")
    theirs.ask([task, str(folder / "source"), rows, bundle.max_seq_length, path])
    return np.load(path)


def _difference(ours: np.ndarray, theirs: np.ndarray) -> dict[str, float]:
    largest = float(np.abs(theirs).max())
    if ours.shape != theirs.shape:
        return {"difference": float("inf"), "largest_value": largest}
    return {"difference": float(np.abs(ours - theirs).max()), "largest_value": largest}


def _whole(vectors: SparseVectors, width: int) -> np.ndarray:
    matrix = np.zeros((len(vectors), width), np.float32)
    rows = np.repeat(np.arange(len(vectors)), np.diff(vectors.splits))
    matrix[rows, vectors.indices] = vectors.values
    return matrix
