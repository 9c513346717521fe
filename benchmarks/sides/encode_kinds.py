"""The peers' own ways to vectors and scores, text to Parquet.

`encode` of SentenceTransformer, `encode_document` of SparseEncoder and MultiVectorEncoder, and the
pipeline of transformers. Rows of the output hold the line as `id` and the columns that ours have.
"""

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def main() -> None:
    """Encodes the lines of a file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=[*_KINDS])
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()
    lines = Path(args.input).read_text(encoding="utf-8").splitlines()
    columns = _KINDS[args.kind](args.model, lines, args.batch)
    pq.write_table(pa.table({"id": lines, **columns}), f"{args.output}.parquet")


def _dense(folder: str, lines: list[str], batch: int) -> dict[str, pa.Array]:
    from sentence_transformers import SentenceTransformer

    vectors = SentenceTransformer(folder, device="cpu").encode(lines, batch_size=batch)
    flat = pa.array(vectors.ravel())
    return {"embedding": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])}


def _sparse(folder: str, lines: list[str], batch: int) -> dict[str, pa.Array]:
    from sentence_transformers import SparseEncoder

    model = SparseEncoder(folder, device="cpu", local_files_only=True)
    vectors = model.encode_document(lines, batch_size=batch).coalesce()
    rows, indices = vectors.indices().numpy()
    splits = _splits(np.bincount(rows, minlength=len(lines)))
    return {
        "indices": pa.ListArray.from_arrays(splits, pa.array(indices.astype(np.int32))),
        "values": pa.ListArray.from_arrays(splits, pa.array(vectors.values().numpy())),
    }


def _multi(folder: str, lines: list[str], batch: int) -> dict[str, pa.Array]:
    from sentence_transformers import MultiVectorEncoder

    model = MultiVectorEncoder(folder, device="cpu", local_files_only=True)
    vectors = model.encode_document(lines, batch_size=batch)
    flat = np.concatenate(vectors)
    tokens = pa.FixedSizeListArray.from_arrays(pa.array(flat.ravel()), flat.shape[1])
    return {"embedding": pa.ListArray.from_arrays(_splits([*map(len, vectors)]), tokens)}


def _scores(folder: str, lines: list[str], batch: int) -> dict[str, pa.Array]:
    """Gives the pipeline the longest lines first, as the encoders sort them by themselves."""
    from transformers import pipeline

    classify = pipeline("text-classification", model=folder, device="cpu", top_k=None)
    longest = sorted(range(len(lines)), key=lambda row: -len(lines[row]))
    found = classify([lines[row] for row in longest], batch_size=batch, truncation=True)
    labels = [*classify.model.config.id2label.values()]
    scores = np.empty((len(lines), len(labels)), np.float32)
    for row, pairs in zip(longest, found, strict=True):
        by_label = {pair["label"]: pair["score"] for pair in pairs}
        scores[row] = [by_label[label] for label in labels]
    return dict(zip(labels, map(pa.array, scores.T), strict=True))


def _splits(lengths: np.ndarray | list[int]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


_KINDS = {"dense": _dense, "sparse": _sparse, "multi": _multi, "scores": _scores}


if __name__ == "__main__":
    main()
