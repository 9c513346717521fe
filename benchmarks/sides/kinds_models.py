"""MiniLM with random heads, a folder for each kind of vector that is not dense.

Its weights are the real ones. "sparse" is a SPLADE model, as SparseEncoder saves it, whose decoder
is tied to the word embeddings; its bias is such that half of the texts keep more than `_ENTRIES`
entries, as they do with real ones. "multi" is saved as Stanford's ColBERT is. "scores" has two
labels.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from sentence_transformers import SparseEncoder
from transformers import (
    AutoTokenizer,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    PreTrainedTokenizerBase,
)

_SEED = 31
_ENTRIES = 200
_SAMPLE = 32  # texts
_DIM = 128
_LONGEST = 300  # tokens of a document, so that none of ours is cut
_LABELS = {0: "negative", 1: "positive"}


def main() -> None:
    """Writes the folders `sparse`, `multi` and `scores`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", type=Path, required=True, help="the texts, one a line")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--model", required=True)
    args = parser.parse_args()
    torch.manual_seed(_SEED)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    for kind in ("sparse", "multi", "scores"):
        tokenizer.save_pretrained(args.output / kind)
    texts = args.input.read_text(encoding="utf-8").splitlines()[:_SAMPLE]
    _write_sparse(args.model, args.output / "sparse", tokenizer, texts)
    _write_multi(args.model, args.output / "multi")
    _write_scores(args.model, args.output / "scores")


def _write_sparse(
    model: str, folder: Path, tokenizer: PreTrainedTokenizerBase, texts: list[str]
) -> None:
    splade = BertForMaskedLM.from_pretrained(model).eval()
    least = []
    with torch.no_grad():
        for text in texts:
            rows = tokenizer(text, return_tensors="pt", truncation=True)
            logits = splade(**rows).logits[0].amax(dim=0)
            least.append(logits.topk(_ENTRIES).values[-1])
        splade.cls.predictions.bias -= torch.stack(least).median()
    splade.save_pretrained(folder)
    SparseEncoder(str(folder), device="cpu").save(str(folder))


def _write_multi(model: str, folder: Path) -> None:
    encoder = BertModel.from_pretrained(model, add_pooling_layer=False)
    tensors = {f"bert.{name}": values for name, values in encoder.state_dict().items()}
    tensors["linear.weight"] = torch.randn(_DIM, encoder.config.hidden_size) * 0.02
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    encoder.config.architectures = ["HF_ColBERT"]
    encoder.config.save_pretrained(folder)
    metadata = {"query_maxlen": 32, "doc_maxlen": _LONGEST, "mask_punctuation": True}
    (folder / "artifact.metadata").write_text(json.dumps(metadata), encoding="utf-8")


def _write_scores(model: str, folder: Path) -> None:
    classifier = BertForSequenceClassification.from_pretrained(model, num_labels=len(_LABELS))
    torch.nn.init.normal_(classifier.classifier.weight)  # else all scores are near a half
    classifier.config.id2label = _LABELS
    classifier.config.label2id = {label: number for number, label in _LABELS.items()}
    classifier.save_pretrained(folder)


if __name__ == "__main__":
    main()
