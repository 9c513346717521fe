"""A model in the forms that the engines of the peers' environment read.

`python -m benchmarks.sides.export --model FOLDER --rows rows.npz --output FOLDER` writes
all-MiniLM-L6-v2 as `plain.onnx` (as torch exports it), `fused.onnx` (by ONNX Runtime's own
optimizer), `int8.onnx` (dynamic, per channel, of the plain one: quantized after fusing it is
slower), `rows.onnx` (each row of activations quantized by itself), the same for OpenVINO
(`plain.xml`; `weights.xml` with int8 weights, activations quantized
as they come; `int8.xml` calibrated on some rows) and `ctranslate2/`. Pooling and normalising are
part of all but the last. With `--config JSON` in the place of model and rows it first writes
`model/`, by the class of transformers for the `model_type` in the JSON, with a fixed seed and a
vocabulary of made-up words, and no form in int8; `ctranslate2.failed` has what CTranslate2 says of
a model that it does not know.
"""

import argparse
import json
from pathlib import Path

import nncf
import numpy as np
import onnx
import openvino
import torch
from ctranslate2.converters import TransformersConverter
from onnxruntime.quantization import quantize_dynamic
from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onnxruntime.transformers import optimizer
from transformers import AutoConfig, AutoModel

from benchmarks.sides.pooled_model import PooledModel

_CALIBRATION_ROWS = 300  # NNCF's default
_SEED = 7
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def main() -> None:
    """Writes every form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--rows", type=Path, help="npz with input_ids and row_splits")
    parser.add_argument("--config", type=json.loads)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    model = args.model
    if args.config:
        model = str(args.output / "model")
        write_model(args.config, Path(model))
    plain, target = args.output / "plain.onnx", args.output / "ctranslate2"
    write_plain(model, plain)
    write_fused(plain, model, strict=args.config is None)
    openvino.save_model(
        openvino.convert_model(plain), plain.with_suffix(".xml"), compress_to_fp16=False
    )
    if args.config is None:
        quantize_dynamic(str(plain), str(args.output / "int8.onnx"), per_channel=True)
        write_by_rows(plain)
        write_openvino_int8(plain, args.rows, args.output)
    try:
        TransformersConverter(model).convert(str(target), force=True)
    except ValueError as error:  # it knows no such model
        if args.config is None:
            raise
        target.with_name(f"{target.name}.failed").write_text(str(error), encoding="utf-8")


def write_model(values: dict[str, object], folder: Path) -> None:
    """Writes a random model, and a vocabulary that our import and CTranslate2's want."""
    torch.manual_seed(_SEED)
    config = AutoConfig.for_model(**values)
    AutoModel.from_config(config).save_pretrained(folder)
    words = [*_SPECIAL, *(f"w{number}" for number in range(len(_SPECIAL), config.vocab_size))]
    (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
    settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")


def write_plain(model: str, plain: Path) -> None:
    """Writes `plain.onnx`."""
    names, axes = ["input_ids", "attention_mask"], {0: "b", 1: "l"}
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


def write_fused(plain: Path, model: str, strict: bool) -> None:
    """Writes `fused.onnx` beside the plain one; if strict, every attention must be fused."""
    config = AutoConfig.from_pretrained(model)
    fused = optimizer.optimize_model(
        str(plain),
        model_type="bert",
        num_heads=config.num_attention_heads,
        hidden_size=config.hidden_size,
        opt_level=0,
    )
    fused.save_model_to_file(str(plain.with_name("fused.onnx")))
    layers, count = config.num_hidden_layers, fused.get_fused_operator_statistics()["Attention"]
    if strict and count != layers:
        raise RuntimeError(f"ONNX Runtime's optimizer fused {count} of {layers} attentions")


def write_by_rows(plain: Path) -> None:
    """Writes `rows.onnx` beside the plain one, which computes in int8 with 128 numbers a scale."""
    settings = {"bits": 8, "block_size": 128, "is_symmetric": True, "accuracy_level": 4}
    quantizer = MatMulNBitsQuantizer(onnx.load(plain), **settings)
    quantizer.process()
    quantizer.model.save_model_to_file(str(plain.with_name("rows.onnx")))


def write_openvino_int8(plain: Path, rows: Path, output: Path) -> None:
    """Writes the two int8 forms of an ONNX model for OpenVINO."""
    weights = nncf.compress_weights(
        openvino.convert_model(plain), mode=nncf.CompressWeightsMode.INT8_SYM
    )
    openvino.save_model(weights, output / "weights.xml", compress_to_fp16=False)
    int8 = nncf.quantize(
        openvino.convert_model(plain),
        nncf.Dataset(calibration_rows(rows)),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=_CALIBRATION_ROWS,
    )
    openvino.save_model(int8, output / "int8.xml", compress_to_fp16=False)


def calibration_rows(path: Path) -> list[dict[str, np.ndarray]]:
    """Returns some rows as the inputs of a model, one each."""
    with np.load(path) as saved:
        ids, splits = saved["input_ids"].astype(np.int64), saved["row_splits"]
    rows = np.split(ids, splits[1:-1])
    chosen = rows[:: max(len(rows) // _CALIBRATION_ROWS, 1)][:_CALIBRATION_ROWS]
    return [{"input_ids": row[None], "attention_mask": np.ones_like(row[None])} for row in chosen]


if __name__ == "__main__":
    main()
