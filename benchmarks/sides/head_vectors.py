"""Vectors of heads of sentence-transformers and transformers, as a `measure.Child`.

A question has "sparse" or "query" (both of SparseEncoder), "multi", "multi_query" or "multi_merged"
(of MultiVectorEncoder, by its own lengths), "pairs" (of CrossEncoder) or "logits" (of
transformers), the folder of the model, texts or pairs of texts, the most tokens of a row, and a
file for the answer: `vectors`, float32 `[rows, width]`, of multi-vectors `[tokens, width]`.
"""

import numpy as np
import torch
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SparseEncoder
from sentence_transformers.multi_vector_encoder.modules import HierarchicalTokenPooling
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from benchmarks.measure import answer_lines


def _sparse(folder: str, rows: list[list[str]], most: int, query: bool) -> np.ndarray:
    model = SparseEncoder(folder, device="cpu", local_files_only=True)
    model.max_seq_length = most
    encode = model.encode_query if query else model.encode_document
    return encode([text for (text,) in rows], convert_to_sparse_tensor=False).float().numpy()


def _multi(folder: str, rows: list[list[str]], task: str) -> np.ndarray:
    model = MultiVectorEncoder(folder, device="cpu", local_files_only=True)
    texts = [text for (text,) in rows]
    if task == "multi_query":
        return np.concatenate(model.encode_query(texts))
    pooling = HierarchicalTokenPooling(2) if task == "multi_merged" else None
    return np.concatenate(model.encode_document(texts, token_pooling=pooling))


def _pairs(folder: str, rows: list[list[str]], most: int) -> np.ndarray:
    model = CrossEncoder(folder, device="cpu", max_length=most, local_files_only=True)
    return np.asarray(model.predict(rows)).reshape(len(rows), -1)


def _logits(folder: str, rows: list[list[str]], most: int) -> np.ndarray:
    model, loaded = AutoModelForSequenceClassification.from_pretrained(
        folder, output_loading_info=True
    )
    if loaded["missing_keys"] or loaded["mismatched_keys"]:
        raise RuntimeError(f"{folder}: weights are missing: {loaded}")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    logits = []
    for row in rows:
        encoded = tokenizer(*row, return_tensors="pt", truncation=True, max_length=most)
        with torch.no_grad():
            logits.append(model(**encoded).logits[0].float().numpy())
    return np.stack(logits)


def main() -> None:
    """Answers until the input ends."""

    def answer(asked: tuple[str, str, list[list[str]], int, str]) -> str:
        task, folder, rows, most, path = asked
        if task in ("sparse", "query"):
            vectors = _sparse(folder, rows, most, task == "query")
        elif task.startswith("multi"):
            vectors = _multi(folder, rows, task)
        else:
            vectors = {"pairs": _pairs, "logits": _logits}[task](folder, rows, most)
        np.savez(path, vectors=vectors.astype(np.float32))
        return path

    answer_lines(answer)


if __name__ == "__main__":
    main()
