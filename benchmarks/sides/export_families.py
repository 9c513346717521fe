"""A random model of a family in the forms that the engines read.

`python -m benchmarks.sides.export_families --config JSON --output FOLDER` writes `model/`, by the
class of transformers for the `model_type` in the JSON, with a fixed seed and a vocabulary of
made-up words, then `plain.onnx`, `fused.onnx` (what ONNX Runtime's optimizer knows of BERT),
`plain.xml` for OpenVINO, and `ctranslate2/`, or `ctranslate2.failed` with what CTranslate2 says of
a model that it does not know.
"""

import argparse
import json
from pathlib import Path

import torch
from ctranslate2.converters import TransformersConverter
from transformers import AutoConfig, AutoModel

from benchmarks.sides.export_engines import write_fused, write_openvino_plain, write_plain

_SEED = 7
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def main() -> None:
    """Writes the model and every form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=json.loads, required=True)
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    model, plain = args.output / "model", args.output / "plain.onnx"
    write_model(args.config, model)
    write_plain(model, args.output)
    write_fused(plain, model)
    write_openvino_plain(plain)
    target = args.output / "ctranslate2"
    try:
        TransformersConverter(str(model)).convert(str(target), force=True)
    except ValueError as error:  # it knows no such model
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


if __name__ == "__main__":
    main()
