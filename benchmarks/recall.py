"""What output types and fewer numbers cost a search: recall@10 and bytes of a vector.

`python -m benchmarks.recall [--sentences 20000] [--queries 500] [--model minilm]`. Real
sentences and other sentences as queries. For each query the ten nearest vectors by cosine, among
what was stored and restored, are compared with the ten nearest of full float32 vectors; the query
itself stays float32, as in `search`.
"""

import argparse
import itertools

import numpy as np

import bert_embed
from benchmarks import measure
from benchmarks.corpus import english_sentences
from bert_embed.results.names import OUTPUT_DTYPES, restored, stored

_K = 10
_SHARES = (1, 2, 4)  # all numbers of a vector, half of them, a quarter


def main() -> None:
    """Measures every type at every width, prints the table, and writes it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=20000)
    parser.add_argument("--queries", type=int, default=500)
    parser.add_argument("--model", default="minilm")
    args = parser.parse_args()
    vectors = bert_embed.load(args.model).encode(english_sentences(args.sentences + args.queries))
    results = measured(vectors[: args.sentences], vectors[args.sentences :])
    data = f"{args.sentences} docstring sentences, {args.queries} others as queries"
    record: dict[str, object] = {"benchmark": "recall", "data": data, "model": args.model, "k": _K}
    record["results"] = results
    header = ["`--output_dtype`", "`--dim`", "bytes a vector", "smaller", f"recall@{_K}"]
    measure.report(record, header, [_row(one, vectors.shape[1]) for one in results])


def measured(corpus: np.ndarray, queries: np.ndarray) -> list[dict[str, object]]:
    """Returns bytes and recall by type and width; vectors are float32 `[rows, width]`."""
    wanted = nearest(corpus, queries)
    width = corpus.shape[1]
    results: list[dict[str, object]] = []
    for dtype, share in itertools.product(OUTPUT_DTYPES, _SHARES):
        dim = width // share
        packed = stored(unit(corpus[:, :dim]), dtype)
        hits = nearest(restored(packed.values, packed.scale, dtype, dim), queries[:, :dim])
        size = packed.values[0].nbytes + (0 if packed.scale is None else packed.scale.itemsize)
        recall = round(recall_at(hits, wanted), 4)
        results.append({"output_dtype": dtype, "dim": dim, "bytes": size, "recall": recall})
    return results


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


def _row(result: dict[str, object], width: int) -> list[str]:
    smaller = f"{4 * width / float(str(result['bytes'])):.1f} x"
    recall = f"{float(str(result['recall'])):.4f}"
    return [str(result["output_dtype"]), str(result["dim"]), str(result["bytes"]), smaller, recall]


if __name__ == "__main__":
    main()
