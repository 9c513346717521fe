"""all-MiniLM-L6-v2 in the forms that the engines of the peers' environment read.

`python -m benchmarks.sides.export_engines --model FOLDER --rows rows.npz --output FOLDER` writes
`plain.onnx` (as torch exports it), `fused.onnx` (by ONNX Runtime's own optimizer), `int8.onnx`
(dynamic, per channel, of the plain one: quantized after fusing it is slower), the same for OpenVINO
(`plain.xml`; `weights.xml` with int8 weights, activations quantized as they come; `int8.xml`
calibrated on some rows) and `ctranslate2/`. Pooling and normalising are part of all but the last.
"""

import argparse
from pathlib import Path

import nncf
import numpy as np
import openvino
import torch
from ctranslate2.converters import TransformersConverter
from onnxruntime.quantization import quantize_dynamic
from onnxruntime.transformers import optimizer
from transformers import AutoConfig

from benchmarks.sides.pooled_model import PooledModel

_CALIBRATION_ROWS = 300  # NNCF's default


def main() -> None:
    """Writes every form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", required=True, help="npz with input_ids and row_splits")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    plain = write_onnx(args.model, args.output)
    write_openvino(plain, Path(args.rows), args.output)
    TransformersConverter(args.model).convert(str(args.output / "ctranslate2"), force=True)


def write_onnx(model: str, output: Path) -> Path:
    """Writes the three ONNX forms and returns the plain one's path."""
    plain = write_plain(model, output)
    layers, fused = write_fused(plain, model)
    if fused != layers:
        raise RuntimeError(f"ONNX Runtime's optimizer fused {fused} of {layers} attentions")
    quantize_dynamic(str(plain), str(output / "int8.onnx"), per_channel=True)
    return plain


def write_plain(model: Path | str, output: Path) -> Path:
    """Writes `plain.onnx` and returns its path."""
    plain, names, axes = output / "plain.onnx", ["input_ids", "attention_mask"], {0: "b", 1: "l"}
    example = torch.ones(2, 7, dtype=torch.long)
    torch.onnx.export(
        PooledModel(model, "eager"),
        (example, example),
        str(plain),
        dynamo=False,  # the fusions are written for this exporter's graphs
        opset_version=17,
        input_names=names,
        output_names=["vectors"],
        dynamic_axes={**dict.fromkeys(names, axes), "vectors": {0: "b"}},
    )
    return plain


def write_fused(plain: Path, model: Path | str) -> tuple[int, int]:
    """Writes `fused.onnx` beside the plain one; returns how many layers, and attentions fused."""
    config = AutoConfig.from_pretrained(model)
    fused = optimizer.optimize_model(
        str(plain),
        model_type="bert",
        num_heads=config.num_attention_heads,
        hidden_size=config.hidden_size,
        opt_level=0,
    )
    fused.save_model_to_file(str(plain.with_name("fused.onnx")))
    return config.num_hidden_layers, fused.get_fused_operator_statistics()["Attention"]


def write_openvino(plain: Path, rows: Path, output: Path) -> None:
    """Writes the three OpenVINO forms of an ONNX model."""
    write_openvino_plain(plain)
    weights = nncf.compress_weights(
        openvino.convert_model(plain), mode=nncf.CompressWeightsMode.INT8_SYM
    )
    openvino.save_model(weights, output / "weights.xml", compress_to_fp16=False)
    calibration = nncf.Dataset(calibration_rows(rows))
    int8 = nncf.quantize(
        openvino.convert_model(plain),
        calibration,
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=_CALIBRATION_ROWS,
    )
    openvino.save_model(int8, output / "int8.xml", compress_to_fp16=False)


def write_openvino_plain(plain: Path) -> None:
    """Writes `plain.xml`, in float32, beside an ONNX model."""
    openvino.save_model(
        openvino.convert_model(plain), plain.with_suffix(".xml"), compress_to_fp16=False
    )


def calibration_rows(path: Path) -> list[dict[str, np.ndarray]]:
    """Returns some rows as the inputs of a model, one each."""
    with np.load(path) as saved:
        ids, splits = saved["input_ids"].astype(np.int64), saved["row_splits"]
    rows = np.split(ids, splits[1:-1])
    chosen = rows[:: max(len(rows) // _CALIBRATION_ROWS, 1)][:_CALIBRATION_ROWS]
    return [{"input_ids": row[None], "attention_mask": np.ones_like(row[None])} for row in chosen]


if __name__ == "__main__":
    main()
