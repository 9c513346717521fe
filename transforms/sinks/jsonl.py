"""JSON lines: an EmbeddingBlock to one object a document."""

from typing import Any, BinaryIO

import orjson

from transforms.vectors import EmbeddingBlock

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE


def write_jsonl(file: BinaryIO, block: EmbeddingBlock, metadata: dict[str, Any]) -> None:
    """Writes the block as lines; the shortest digits that read back as the same float32.

    JSON lines have no room for `metadata`; it stands in the run's `run.json`.
    """
    file.writelines(
        orjson.dumps(
            {
                "id": document,
                "embedding": vector,
                "num_tokens": int(tokens),
                "truncated": bool(truncated),
                "text_hash": int(text_hash),
            },
            option=_OPTIONS,
        )
        for document, vector, tokens, truncated, text_hash in zip(
            block.ids.to_pylist(),
            block.vectors,
            block.num_tokens,
            block.truncated,
            block.text_hash,
            strict=True,
        )
    )
