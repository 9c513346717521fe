"""A whole run.json, of which a test gives only the keys that it is about."""

from typing import Any

SETTINGS = {
    "model": "0123456789abcdef",
    "output_dtype": "float32",
    "shape": [4],
    "token_shape": None,
    "granularity": ["sentence"],
    "precision": "float32",
    "layers": [-1],
    "layer_combine": "last",
    "pooling": "mean",
    "normalize": True,
    "max_seq_length": 256,
    "long_text": "truncate",
    "prompt": "",
    "id_type": "string",
}


def whole_record(vectors: dict[str, Any], documents: int = 0, **keys: Any) -> dict[str, Any]:
    """Returns the run.json of a complete run.

    Args:
        vectors: What the vectors are, as far as it matters.
        documents: How many there are.
        **keys: Further keys of run.json, or others in their place.
    """
    counts = dict.fromkeys(("rejected", "skipped", "blank_lines", "truncated", "parts_reused"), 0)
    inputs = dict.fromkeys(("format", "paths", "id_column", "text_b_column", "span_columns"))
    inputs |= dict.fromkeys(("extra_columns", "limit", "skip_existing"))
    return {
        "format": 2,
        "status": "done",
        "run": "run",
        "started": "2026-11-22T00:00:00+00:00",
        "ended": "2026-11-22T00:00:01+00:00",
        "model": {"name": "tests", "fingerprint": SETTINGS["model"], "source": "tests"},
        "engine": "litert",
        "vectors": SETTINGS | vectors,
        "input": inputs
        | {"patterns": [], "listing": "", "files": 0, "skipped_files": {}, "document": "line"}
        | {"bytes": 0, "text_column": "text"},
        "files": {"format": "parquet", "block_bytes": 1, "part_docs": 1, "examples": None},
        "plan": {"blocks": 1, "covers": None, "records": documents},
        "query_rows": None,
        "table": None,
        "options": {"output": "out", "beam_args": []},
        "versions": {"apache-beam": "2.77.0"},
        "counts": counts | {"records": documents, "embedded": documents, "parts": 1},
        "written": {},
        "listing": "0" * 16,
        "rejected": {},
        "tokens": 5 * documents,
        "full_tokens": 5 * documents,
        "cut_share": 0.0,
        "unknown": {"tokens": 0, "share": 0.0, "files": [], "scripts": {}},
        "equal_texts": {"surplus": 0, "exact": True},
        "equal_ids": None,
        "computed_tokens": 5 * documents,
        "padded_tokens": 5 * documents,
        "padding_share": 0.0,
        "batches": 1,
        "compiled_shapes": 0,
        "lengths": {"bin_tokens": 16, "counts": [documents], "p50": 15, "p90": 15, "p99": 15}
        | {"max": 15},
        "stage_seconds": {},
        "elapsed_seconds": 1.0,
        "documents_per_second": 1.0,
        "tokens_per_second": 5.0,
        **keys,
    }
