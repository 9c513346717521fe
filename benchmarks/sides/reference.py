"""What transformers and sentence-transformers compute of texts, as a `measure.Child`.

A question has a task, the folder of the model, texts or pairs of texts, the most tokens of a row,
and a file for the answer. "states" of transformers are `ids/N` int64 `[tokens]` and `states/N`
float32 `[tokens, layers + 1, hidden]`, "stretched states" come from the hub's own code of GTE. All
others are `vectors`, float32 `[rows, width]`, of multi-vectors `[tokens, width]`: "sparse" or
"query" (of SparseEncoder), "multi" or "multi_query" (of MultiVectorEncoder, by its own lengths),
"pairs" (of CrossEncoder), "logits" (of transformers).
"""

import inspect

import numpy as np
import torch
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SparseEncoder
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from benchmarks.measure import answer_lines
from tests.support.models.architectures import stretch


def _states(
    folder: str, rows: list[list[str]], most: int, stretched: bool
) -> dict[str, np.ndarray]:
    model, loaded = AutoModel.from_pretrained(folder, output_loading_info=True)
    if any(loaded.values()):
        raise RuntimeError(f"{folder}: weights are missing or left over: {loaded}")
    if stretched:
        stretch(model)
    known = inspect.signature(model.forward).parameters
    tokenizer = AutoTokenizer.from_pretrained(folder)
    arrays = {}
    for number, row in enumerate(rows):
        encoded = tokenizer(*row, return_tensors="pt", truncation=True, max_length=most)
        inputs = {name: values for name, values in encoded.items() if name in known}
        with torch.no_grad():
            outputs = model(**inputs, output_hidden_states=True)
        arrays[f"ids/{number}"] = encoded["input_ids"][0].numpy()
        states = torch.stack(outputs.hidden_states, dim=2)[0]
        arrays[f"states/{number}"] = states.float().numpy()
    return arrays


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
    return np.concatenate(model.encode_document(texts))


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


def _answer(asked: tuple[str, str, list[list[str]], int, str]) -> str:
    task, folder, rows, most, path = asked
    if task.endswith("states"):
        np.savez(path, **_states(folder, rows, most, task.startswith("stretched")))
        return path
    if task in ("sparse", "query"):
        vectors = _sparse(folder, rows, most, task == "query")
    elif task.startswith("multi"):
        vectors = _multi(folder, rows, task)
    else:
        vectors = {"pairs": _pairs, "logits": _logits}[task](folder, rows, most)
    np.savez(path, vectors=vectors.astype(np.float32))
    return path


if __name__ == "__main__":
    answer_lines(_answer)
