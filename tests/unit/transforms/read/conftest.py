"""The fixture by which tests of a format read a file, as the workers of a run do."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bert_embed.transforms.blocks import DocumentBlock
from bert_embed.transforms.read.columns import Columns
from tests.support.blocks import ids_of, read_input, rejected_of

Found = tuple[list[str], list[str], list[DocumentBlock]]


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Found]:
    """Reads what a file holds: the ids, the reasons of rejected records, and the blocks.

    Arguments are the content, the file's name, fields of `Columns`, and those of `read_input`.
    """

    def of(content: str | bytes, name: str, **how: Any) -> Found:
        data = content.encode() if isinstance(content, str) else content
        (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        sizes = {key: how.pop(key) for key in ("block_bytes", "limit", "part_docs") if key in how}
        found = read_input(tmp_path / name, Columns(**{"id": "id"} | how), **sizes)
        return ids_of(found), [reason for _, reason in rejected_of(found)], found

    return of
