"""all-MiniLM-L6-v2 in the files of sentence-transformers' backends, made by its own functions.

`onnx/model_O3.onnx` is optimized, `onnx/model_qint8_*.onnx` quantized for the processors named;
`openvino/openvino_model.xml` is plain, `openvino/openvino_model_qint8_quantized.xml` quantized with
scales calibrated on texts of a folder.
"""

import argparse
import shutil

from sentence_transformers import SentenceTransformer
from sentence_transformers.backend import (
    export_dynamic_quantized_onnx_model,
    export_optimized_onnx_model,
    export_static_quantized_openvino_model,
)


def main() -> None:
    """Writes the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--calibration", required=True, help="folder with train.txt")
    parser.add_argument("--onnx", nargs="+", required=True, help="avx2, avx512_vnni, arm64")
    parser.add_argument("--output", required=True)
    args = parser.parse_args()
    shutil.copytree(args.model, args.output)
    for backend in ("onnx", "openvino"):
        SentenceTransformer(args.model, device="cpu", backend=backend).save_pretrained(args.output)
    onnx = SentenceTransformer(args.output, device="cpu", backend="onnx")
    export_optimized_onnx_model(onnx, "O3", args.output)
    for processor in args.onnx:
        export_dynamic_quantized_onnx_model(onnx, processor, args.output)
    export_static_quantized_openvino_model(
        SentenceTransformer(args.output, device="cpu", backend="openvino"),
        None,
        args.output,
        dataset_name=args.calibration,
        dataset_config_name="default",
        dataset_split="train",
        column_name="text",
    )


if __name__ == "__main__":
    main()
