"""Search: seconds and memory by number type and by kind of vectors, and what number types cost it.

`search`: the whole command over a finished output whose files are in memory. The vectors are noise,
written by a run with a model of no cost; the query is embedded by the real model.

`search_kinds`: a process that finds the nearest of one query, or of more, start included, without a
model. Documents are noise: 200 entries of 30,522, as SPLADE gives them, drawn such that few entries
are common; 32 tokens of 128 numbers in float16. A query has 30 entries, or 32 tokens.

Both run once before they are measured, so that the system holds the files in memory.

`recall`: what output types and fewer numbers cost. Real sentences, and other sentences as queries.
For each query the ten nearest vectors by cosine, among what was stored and restored, are compared
with the ten nearest of full float32 vectors; the query itself stays float32, as in `search`.
"""

import itertools
import shutil
import sys
from collections.abc import Sequence
from functools import partial

import numpy as np

import bert_embed
from benchmarks import measure
from benchmarks.corpus import english_sentences
from benchmarks.growth import WORK, line_file
from benchmarks.sides.nearest import DIM, ENTRIES, TOKENS, VOCABULARY
from bert_embed.results.names import OUTPUT_DTYPES, restored, stored

_QUERY = "make an object callable"
_DTYPES = ("float32", "float16", "bfloat16", "int8", "ubinary")
_K = 10
_SHARES = (1, 2, 4)  # all numbers of a vector, half of them, a quarter
_NULL = (sys.executable, "-m", "benchmarks.sides.null_pipeline")
_NEAREST = (sys.executable, "-m", "benchmarks.sides.nearest")
_COLUMNS = {
    "seconds": "{wall_s:.2f}",
    "spread": "{spread:.2f}",
    "CPU seconds": "{cpu_s:.2f}",
    "peak MiB": "{peak_mib:,.0f}",
}


def search(
    name: str, vectors: int = 1_000_000, dtypes: Sequence[str] = _DTYPES, rounds: int = 5
) -> None:
    """Measures every number type in turn."""
    outputs = {dtype: (WORK / f"search-{vectors}-{dtype}").absolute() for dtype in dtypes}
    command = [sys.executable, "-m", "bert_embed", "search"]
    sides = {
        dtype: partial(measure.run, [*command, output, _QUERY, "--k", 3])
        for dtype, output in outputs.items()
    }
    try:
        for dtype, output in outputs.items():
            shutil.rmtree(output, ignore_errors=True)
            flags = [f"--output_dtype={dtype}", "--input", line_file(vectors), "--output", output]
            measure.run([*_NULL, *flags])
        measure.in_turn(sides, 1)
        spent = measure.in_turn(sides, rounds)
    finally:
        for output in outputs.values():
            shutil.rmtree(output, ignore_errors=True)
    record = {
        "benchmark": name,
        "data": f"{vectors:,} vectors of 384 numbers",
        "rounds": rounds,
    }
    results = {dtype: measure.summary(runs) for dtype, runs in spent.items()}
    measure.report(record, {"number type": "{name}", **_COLUMNS}, results)


def search_kinds(
    name: str,
    sparse: int = 1_000_000,
    multi: int = 100_000,
    queries: Sequence[int] = (1, 10),
    rounds: int = 3,
) -> None:
    """Measures each kind with each number of queries; `sparse` and `multi` are documents."""
    results: dict[str, dict[str, float]] = {}
    for kind, documents in {"sparse": sparse, "multi": multi}.items():
        output = (WORK / f"search-{kind}-{documents}").absolute()
        shutil.rmtree(output, ignore_errors=True)
        # A process of its own writes: a child counts its parent's memory, too.
        measure.run([*_NEAREST, "write", output, kind, documents])
        size = sum(path.stat().st_size for path in output.rglob("*.parquet")) / documents
        sides = {
            f"{kind}, {count}": partial(measure.run, [*_NEAREST, "find", output, kind, count])
            for count in queries
        }
        try:
            measure.in_turn(sides, 1)
            spent = measure.in_turn(sides, rounds)
        finally:
            shutil.rmtree(output)
        about = {"documents": documents, "bytes_a_document": round(size)}
        results |= {title: about | measure.summary(runs) for title, runs in spent.items()}
    record = {
        "benchmark": name,
        "data": f"sparse: {ENTRIES} of {VOCABULARY:,} entries; multi: {TOKENS} tokens of {DIM}",
        "rounds": rounds,
    }
    columns = {"documents": "{documents:,}", "bytes each": "{bytes_a_document:,}", **_COLUMNS}
    measure.report(record, {"kind, queries": "{name}", **columns}, results)


def recall(name: str, sentences: int = 20_000, queries: int = 500, model: str = "minilm") -> None:
    """Measures every type at every width."""
    vectors = bert_embed.load(model).encode(english_sentences(sentences + queries))
    corpus, asked = vectors[:sentences], vectors[sentences:]
    wanted, width = nearest(corpus, asked), corpus.shape[1]
    results: dict[str, dict[str, float]] = {}
    for dtype, share in itertools.product(OUTPUT_DTYPES, _SHARES):
        dim = width // share
        packed = stored(unit(corpus[:, :dim]), dtype)
        hits = nearest(restored(packed.values, packed.scale, dtype, dim), asked[:, :dim])
        size = packed.values[0].nbytes + (0 if packed.scale is None else packed.scale.itemsize)
        result = {"dim": dim, "bytes": size, "smaller": 4 * width / size}
        results[f"{dtype}, {dim}"] = result | {"recall": round(recall_at(hits, wanted), 4)}
    data = f"{sentences} docstring sentences, {queries} others as queries"
    columns = {
        "`--output_dtype`, `--dim`": "{name}",
        "bytes a vector": "{bytes}",
        "smaller": "{smaller:.1f} x",
        f"recall@{_K}": "{recall:.4f}",
    }
    measure.report({"benchmark": name, "data": data, "model": model, "k": _K}, columns, results)


def nearest(corpus: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Returns the rows of the ten largest cosines of each query, int64 `[queries, 10]`."""
    scores = unit(queries) @ unit(corpus).T
    return np.argpartition(-scores, _K - 1, axis=1)[:, :_K]


def recall_at(hits: np.ndarray, wanted: np.ndarray) -> float:
    """Returns the share of the wanted rows that were found, in whatever order.

    >>> recall_at(np.array([[1, 2], [3, 4]]), np.array([[2, 1], [4, 5]]))
    0.75
    """
    return float((hits[:, :, np.newaxis] == wanted[:, np.newaxis]).any(axis=1).mean())


def unit(vectors: np.ndarray) -> np.ndarray:
    """Returns vectors scaled to unit length, a fresh float32 `[rows, width]`; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, np.finfo(np.float32).tiny)
