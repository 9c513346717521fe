"""sentence-transformers' own way to vectors: `encode`, text to Parquet."""

import argparse
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from sentence_transformers import SentenceTransformer


def main() -> None:
    """Embeds the lines of a file; rows of the output hold the line as `id`, and `embedding`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()
    lines = Path(args.input).read_text(encoding="utf-8").splitlines()
    vectors = SentenceTransformer(args.model, device="cpu").encode(lines, batch_size=args.batch)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])
    pq.write_table(pa.table({"id": lines, "embedding": column}), f"{args.output}.parquet")


if __name__ == "__main__":
    main()
