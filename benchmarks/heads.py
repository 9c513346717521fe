"""How far our vectors of heads are from those of sentence-transformers and transformers.

`python -m benchmarks.heads [FAMILY ...]`. The models are small, with random weights in which every
part matters (tests/support/models/heads.py): a SPLADE model and a classifier of each family, in the
forms that their heads have. Each is imported, and what it makes of texts of many lengths and
scripts, and of pairs, is compared with SparseEncoder, CrossEncoder and
AutoModelForSequenceClassification, in the peers' environment. Late-interaction models, in the ways
they are saved (tests/support/models/multi_vectors.py), are compared with MultiVectorEncoder, whose
documents also have their similar vectors merged by a factor of 2. "int8" is the least cosine of a
text's sparse vector, or of a token's, in int8 with its own in float32, of scores their largest
difference.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import measure
from benchmarks.exactness import TEXTS
from benchmarks.peers import peer, peer_versions
from bert_embed.bundle.bundle import Bundle
from bert_embed.encoder import Encoder
from bert_embed.importers import import_model
from bert_embed.models.heads.vectors import SparseVectors
from tests.support.models.heads import MLM, as_cross_encoder, write_classifier, write_mlm
from tests.support.models.multi_vectors import CASES, write_multi_vectors
from tests.support.models.splade import as_router

_Compare = Callable[[Path, str, measure.Child], dict[str, float]]

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


def main() -> None:
    """Compares the families and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    known = (*MLM, *CASES)
    parser.add_argument("families", nargs="*", help=f"of {', '.join(known)}; default: all")
    args = parser.parse_args()
    if unknown := sorted({*args.families} - {*known}):
        parser.error(f"no family is called {unknown[0]}")
    theirs = peer("head_vectors")
    table, results = [], {}
    for family in args.families or known:
        compared: dict[str, _Compare] = {
            "sparse": _compare_sparse,
            "scores": _compare_scores,
            "pairs": _compare_pairs,
        }
        if family in CASES:
            compared = {"multi": _compare_multi, "multi query": _compare_multi_queries}
            compared["multi, merged"] = _compare_merged
        if family == "multilingual":
            compared["query"] = _compare_queries
        for kind, compare in compared.items():
            with tempfile.TemporaryDirectory() as folder:
                numbers = compare(Path(folder), family, theirs)
            results[f"{family} {kind}"] = numbers
            row = [f"{numbers['difference']:.1e}", f"{numbers['largest_value']:.3g}"]
            table.append(
                [family, kind, *row, f"{numbers['int8']:.4f}" if "int8" in numbers else ""]
            )
            print(" ".join(table[-1]), flush=True)
    theirs.close()
    record = {
        "benchmark": "heads",
        "data": f"{len(TEXTS)} texts a family, and pairs of them",
        "results": results,
        "peers": peer_versions("sentence-transformers", "transformers", "torch"),
    }
    header = ["family", "compared", "largest difference", "of values up to", "int8"]
    measure.report(record, header, table)


def _compare_sparse(folder: Path, family: str, theirs: measure.Child) -> dict[str, float]:
    write_mlm(folder / "source", family, **_SPARSE.get(family, {}))
    bundle = import_model(str(folder / "source"), str(folder / "bundle"))
    texts = [text for text in TEXTS if text.strip()]
    reference = _asked(theirs, "sparse", folder, bundle, [[text] for text in texts])
    exact, near = (
        _whole(encoder.encode_sparse(texts, long_text="truncate"), bundle.config.vocab_size)
        for encoder in (Encoder(bundle, threads=1, precision=one) for one in ("float32", "int8"))
    )
    lengths = np.linalg.norm(exact, axis=1) * np.linalg.norm(near, axis=1)
    return _difference(exact, reference) | {"int8": float(((exact * near).sum(1) / lengths).min())}


def _compare_queries(folder: Path, family: str, theirs: measure.Child) -> dict[str, float]:
    write_mlm(folder / "source", family)
    entries = len(json.loads((folder / "source" / "tokenizer.json").read_text())["model"]["vocab"])
    weights = np.random.default_rng(2).random(entries).astype(np.float32)
    as_router(folder / "source", weight=weights)
    for name in ("tokenizer.json", "tokenizer_config.json"):  # where SparseEncoder looks for them
        shutil.copy(folder / "source" / name, folder / "source" / "query_0_SparseStaticEmbedding")
    bundle = import_model(str(folder / "source"), str(folder / "bundle"))
    texts = [text for text in TEXTS if text.strip()][:25]  # no longer than a row
    reference = _asked(theirs, "query", folder, bundle, [[text] for text in texts])
    ours = Encoder(bundle, threads=1).encode_sparse_query(texts)
    return _difference(_whole(ours, bundle.config.vocab_size), reference)


def _compare_scores(folder: Path, family: str, theirs: measure.Child) -> dict[str, float]:
    write_classifier(folder / "source", family, **{"labels": 3, **_CHANGES.get(family, {})})
    bundle = import_model(str(folder / "source"), str(folder / "bundle"))
    rows = [[text] for text in TEXTS]
    logits = _asked(theirs, "logits", folder, bundle, rows)
    reference = bundle.heads["scores"].activated(logits)  # type: ignore[attr-defined]
    exact, near = (
        Encoder(bundle, threads=1, precision=one).encode_scores(TEXTS, long_text="truncate")
        for one in ("float32", "int8")
    )
    return _difference(exact, reference) | {"int8": float(np.abs(exact - near).max())}


def _compare_pairs(folder: Path, family: str, theirs: measure.Child) -> dict[str, float]:
    write_classifier(folder / "source", family, 1)
    as_cross_encoder(folder / "source")
    bundle = import_model(str(folder / "source"), str(folder / "bundle"))
    rows = [[first, second] for first in TEXTS[:3] for second in TEXTS if second.strip()]
    reference = _asked(theirs, "pairs", folder, bundle, rows)
    ours = Encoder(bundle, threads=1).encode_scores(
        *map(list, zip(*rows, strict=True)), long_text="truncate"
    )
    return _difference(ours, reference)


def _compare_multi(folder: Path, case: str, theirs: measure.Child) -> dict[str, float]:
    bundle, reference = _multi_asked(folder, case, theirs, "multi")
    exact, near = (
        Encoder(bundle, threads=1, precision=one).encode_multi(TEXTS, long_text="truncate")
        for one in ("float32", "int8")
    )
    cosines = (exact.vectors * near.vectors).sum(axis=1)
    return _difference(exact.vectors, reference) | {"int8": float(cosines.min())}


def _compare_multi_queries(folder: Path, case: str, theirs: measure.Child) -> dict[str, float]:
    bundle, reference = _multi_asked(folder, case, theirs, "multi_query")
    ours = Encoder(bundle, threads=1).encode_multi_query(TEXTS, long_text="truncate")
    return _difference(ours.vectors, reference)


def _compare_merged(folder: Path, case: str, theirs: measure.Child) -> dict[str, float]:
    """Merged vectors are in another order, and equally near ones may be merged otherwise."""
    bundle, reference = _multi_asked(folder, case, theirs, "multi_merged")
    encoder = Encoder(bundle, threads=1)
    ours = encoder.encode_multi(TEXTS, long_text="truncate", pool_factor=2)
    if ours.vectors.shape != reference.shape:
        return {"difference": float("inf"), "largest_value": float(np.abs(reference).max())}
    apart = 0.0
    for part in map(slice, ours.splits[:-1], ours.splits[1:]):
        pairs = np.abs(ours.vectors[part, None] - reference[part])
        apart = max(apart, float(pairs.max(axis=2).min(axis=0).max()))
    return {"difference": apart, "largest_value": float(np.abs(reference).max())}


def _multi_asked(
    folder: Path, case: str, theirs: measure.Child, task: str
) -> tuple[Bundle, np.ndarray]:
    """Returns the model, and float32 `[tokens, dim]` of all texts end to end."""
    write_multi_vectors(folder / "source", case)
    bundle = import_model(str(folder / "source"), str(folder / "bundle"))
    return bundle, _asked(theirs, task, folder, bundle, [[text] for text in TEXTS])


def _asked(
    theirs: measure.Child, task: str, folder: Path, bundle: Bundle, rows: list[list[str]]
) -> np.ndarray:
    path = str(folder / "reference.npz")
    theirs.ask([task, str(folder / "source"), rows, bundle.max_seq_length, path])
    return np.load(path)["vectors"]


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


if __name__ == "__main__":
    main()
