"""sentence-transformers' `encode` with a backend of its choice and one thread, text to Parquet.

With `--serve` it is a `benchmarks.measure.Child`: `{"embed": BATCH, "input": FILE}` encodes the
lines of a file in batches of that many texts and answers with the processor time of that.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sentence_transformers import SentenceTransformer


def main() -> None:
    """Encodes the lines of a file; rows of the output hold the line as `id`, and `embedding`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("backend", choices=["torch", "onnx", "openvino"])
    parser.add_argument("--model", required=True)
    parser.add_argument("--file", help="of the model, below its folder")
    parser.add_argument("--precision", help="of OpenVINO's products; default: what it chooses")
    parser.add_argument("--input", type=Path)
    parser.add_argument("--output")
    parser.add_argument("--batch", type=int, default=32, help="texts")
    parser.add_argument("--serve", action="store_true")
    args = parser.parse_args()
    settings: dict[str, Any] = {"file_name": args.file} if args.file else {}
    if args.backend == "torch":
        torch.set_num_threads(1)
    elif args.backend == "onnx":
        import onnxruntime

        settings["session_options"] = onnxruntime.SessionOptions()
        settings["session_options"].intra_op_num_threads = 1
    else:
        settings["ov_config"] = {"INFERENCE_NUM_THREADS": 1}
        if args.precision:
            settings["ov_config"]["INFERENCE_PRECISION_HINT"] = args.precision
    model = SentenceTransformer(
        args.model, device="cpu", backend=args.backend, model_kwargs=settings
    )

    def answer(asked: dict[str, Any]) -> dict[str, float]:
        lines = Path(asked["input"]).read_text(encoding="utf-8").splitlines()
        start = time.process_time()
        model.encode(lines, batch_size=asked["embed"])
        return {"cpu": time.process_time() - start}

    if args.serve:
        from benchmarks.measure import answer_lines  # nothing of ours is in the whole job

        answer_lines(answer)
        return
    lines = args.input.read_text(encoding="utf-8").splitlines()
    vectors = model.encode(lines, batch_size=args.batch)
    flat = pa.array(vectors.ravel())
    column = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
    pq.write_table(pa.table({"id": lines, "embedding": column}), f"{args.output}.parquet")


if __name__ == "__main__":
    main()
