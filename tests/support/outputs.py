"""Outputs without a model, exports of them, and reports: written and read as users see them."""

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bert_embed.base.arrays import splits_of
from bert_embed.models.heads.head import PIECES
from bert_embed.models.heads.kinds import KINDS
from bert_embed.models.heads.vectors import MultiVectors, SparseVectors
from bert_embed.pipeline.cli import main
from bert_embed.text.layout import KeptWindows
from bert_embed.transforms.blocks import EmbeddingBlock
from bert_embed.transforms.parts import Part
from bert_embed.transforms.write import write_vectors
from tests.support.command import ROOT, as_flags

TAGS = ("river", "bank", "stars")
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


def vectors_of(first: int, rows: int, width: int) -> np.ndarray:
    """float32 `[rows, width]` of unit length around a few centres; the same for the same rows."""
    centres = np.random.default_rng(7).normal(size=(16, width))
    noise = np.random.default_rng(first + 1).normal(size=(rows, width))
    found = centres[np.arange(first, first + rows) % 16] + 0.7 * noise
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


def extra_of(rows: np.ndarray) -> pa.Table:
    """Extra columns of every type that a target treats on its own."""
    return pa.table(
        {
            "lang": pa.array([TAGS[row % 3] if row % 5 else None for row in rows.tolist()]),
            "year": pa.array(rows, pa.int64()),
            "price": pa.array(rows / 4, pa.float64()),
            "new": pa.array(rows % 2 == 0),
            "tags": pa.array([[TAGS[row % 3], "all"] for row in rows.tolist()]),
            "day": pa.array(
                rows.astype("datetime64[D]").astype("datetime64[us]"), pa.timestamp("us", "UTC")
            ),
        }
    )


def block_of(number: int, first: int, rows: int, width: int, kept: bool) -> EmbeddingBlock:
    """A block of documents; `kept` with texts and extra columns."""
    numbers = np.arange(first, first + rows)
    return EmbeddingBlock(
        part=Part(number, 0, records=rows),
        ids=pa.array([f"d/{row}" for row in numbers.tolist()]),
        num_tokens=np.full(rows, 5, np.int32),
        truncated=np.zeros(rows, bool),
        full_lengths=np.full(rows, 5, np.int32),
        text_hash=numbers,
        vectors=vectors_of(first, rows, width),
        texts=pa.array([f"Text\t{row}\nwith ümlaut" for row in numbers.tolist()]) if kept else None,
        extra=extra_of(numbers) if kept else None,
    )


def in_chunks(block: EmbeddingBlock, width: int) -> EmbeddingBlock:
    """The block with two chunks a document."""
    rows = len(block.ids)
    windows = KeptWindows(
        splits=np.arange(0, 2 * rows + 1, 2),
        starts=np.tile(np.array([0, 4], np.int32), rows),
        stops=np.tile(np.array([4, 9], np.int32), rows),
        num_tokens=np.full(2 * rows, 4, np.int32),
        name="chunk",
    )
    return replace(block, vectors=vectors_of(block.part.number, 2 * rows, width), windows=windows)


def finished_run(
    folder: Path,
    rows: Sequence[int],
    width: int = 12,
    dtype: str = "float32",
    output_format: str = "parquet",
    kept: bool = True,
    chunks: bool = False,
    extra: bool = True,
    first_block: int = 0,
    settings: Mapping[str, Any] | None = None,
    changed: Callable[[EmbeddingBlock], EmbeddingBlock] | None = None,
    **record: Any,
) -> Path:
    """Writes a run with a block for each number of rows; returns its folder.

    Args:
        folder: Where to write it.
        rows: Documents of each block.
        width: Numbers of a vector.
        dtype: Output type.
        output_format: As `--output_format`.
        kept: Whether texts and extra columns are there.
        extra: Whether extra columns are there with the texts, which TFRecord files cannot hold.
        chunks: Whether each document has two chunks.
        first_block: Number of the first block.
        settings: Further settings of the vectors, or others in their place.
        changed: What is written in the place of a block.
        **record: Further keys of run.json, or others in their place.
    """
    folder.mkdir(parents=True, exist_ok=True)
    described = SETTINGS | {"output_dtype": dtype, "shape": [width], "token_shape": [width]}
    described |= settings or {}
    written: dict[str, dict[str, int]] = {}
    first = 0
    for number, count in enumerate(rows, first_block):
        block = block_of(number, first, count, width, kept)
        block = in_chunks(block, width) if chunks else block
        block = block if extra else replace(block, extra=None)
        block = block if changed is None else changed(block)
        report = write_vectors(str(folder), "run", output_format, described).write(block)
        for name, file in report.files.items():
            sums = written.setdefault(name.split("/")[0], {"files": 0, "bytes": 0, "rows": 0})
            sums["files"] += 1
            sums["bytes"] += file.bytes
            sums["rows"] += file.rows
        first += count
    assert set(written) <= {*(kind.folder for kind in KINDS.values()), *PIECES.values()}
    types = {field.name: str(field.type) for field in extra_of(np.arange(1)).schema}
    found = whole_record(described, first, written=written)
    found["input"]["extra_columns"] = types if kept and extra else None
    (folder / "run.json").write_text(json.dumps(found | record))
    return folder


def whole_record(vectors: dict[str, Any], documents: int = 0, **keys: Any) -> dict[str, Any]:
    """Returns the run.json of a complete run, of which that of a golden one gives the rest.

    Args:
        vectors: What the vectors are, as far as it matters.
        documents: How many there are.
        **keys: Further keys of run.json, or others in their place.
    """
    found = json.loads((ROOT / "tests/data/golden/parquet/run.json").read_text("utf-8"))
    counts = {"records": documents, "embedded": documents, "parts": 1}
    lengths = {"counts": [documents], "p50": 15, "p90": 15, "p99": 15, "max": 15}
    inputs = {"patterns": [], "paths": None, "id_column": None, "extra_columns": None}
    found |= {
        "run": "run",
        "model": {"name": "tests", "fingerprint": SETTINGS["model"], "source": "tests"},
        "vectors": SETTINGS | vectors,
        "input": found["input"] | inputs | {"listing": "", "files": 0, "bytes": 0},
        "plan": {"blocks": 1, "covers": None, "records": documents},
        "options": {"output": "out", "beam_args": []},
        "counts": dict.fromkeys(found["counts"], 0) | counts,
        "written": {},
        "lengths": found["lengths"] | lengths,
    }
    del found["norms"]
    tokens = ("tokens", "full_tokens", "computed_tokens", "padded_tokens")
    return found | dict.fromkeys(tokens, 5 * documents) | keys


ENTRIES, DIM = 300, 8


def sparse_rows(seed: int, rows: int, most: int = 40) -> SparseVectors:
    random = np.random.default_rng(seed)
    lengths = random.integers(0, most, rows)
    lengths[:1] = 0
    indices = [np.sort(random.choice(ENTRIES, length, replace=False)) for length in lengths]
    values = random.random(lengths.sum(), np.float32) + np.float32(0.01)
    return SparseVectors(
        splits_of(lengths), np.concatenate([*indices, []]).astype(np.int32), values
    )


def multi_rows(seed: int, rows: int, most: int = 6) -> MultiVectors:
    """Multi-vectors of up to `most` tokens of unit length; the first one is empty."""
    random = np.random.default_rng(seed)
    lengths = random.integers(0, most, rows)
    lengths[:1] = 0
    tokens = random.normal(size=(lengths.sum(), DIM))
    tokens /= np.linalg.norm(tokens, axis=1, keepdims=True)
    return MultiVectors(splits_of(lengths), tokens.astype(np.float32))


ROWS = {"sparse": sparse_rows, "multi": multi_rows}


def run_of_kinds(
    folder: Path,
    kinds: Sequence[str],
    rows: Sequence[int] = (30, 0, 12),
    chunks: bool = False,
    **settings: Any,
) -> Path:
    """Writes a run with a block for each number of rows; returns its folder."""
    heads = {
        "sparse": {"entries": ENTRIES, "similarity": "dot"},
        "multi": {"dim": DIM, "similarity": "maxsim"},
    }

    def of_kinds(block: EmbeddingBlock) -> EmbeddingBlock:
        number, vectors = block.part.block, len(block.vectors)
        return replace(
            block,
            vectors=block.vectors if "dense" in kinds else None,
            heads={kind: ROWS[kind](number, vectors) for kind in heads if kind in kinds},
        )

    settings |= {"vectors": list(kinds), "heads": heads}
    return finished_run(folder, rows, chunks=chunks, settings=settings, changed=of_kinds)


def write_output(
    folder: Path,
    vectors: np.ndarray,
    ids: list[Any] | None = None,
    files: int = 3,
    dtype: str = "float32",
    output_format: str = "parquet",
) -> Path:
    """Writes float32 `[rows, width]` as the complete output of a run; returns the folder."""
    ids = [f"doc-{row}" for row in range(len(vectors))] if ids is None else ids
    parts = np.array_split(np.arange(len(vectors)), files)

    def changed(block: EmbeddingBlock) -> EmbeddingBlock:
        rows = parts[block.part.block]
        return replace(block, ids=pa.array([str(ids[row]) for row in rows]), vectors=vectors[rows])

    kind = {"id_type": "string" if not ids or isinstance(ids[0], str) else "int64"}
    written = list(map(len, parts)), vectors.shape[1], dtype, output_format
    return finished_run(folder, *written, kept=False, settings=kind, changed=changed)


def export(source: Path | str, dest: Path | str, target: str, **flags: Any) -> int:
    return main(["export", str(source), str(dest), f"--to={target}", *as_flags(flags)])


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too, by name."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


_CONTENT = re.compile(r'<script type="application/json" id="content">(.*?)</script>', re.DOTALL)
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def content(output: Path) -> dict[str, Any]:
    return content_of((output / "report.html").read_text("utf-8"))


def content_of(page: str) -> dict[str, Any]:
    (found,) = _CONTENT.findall(page)
    return json.loads(found)


@contextmanager
def browser() -> Iterator[Any]:
    """A headless Chromium; the test is skipped where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="make install")
    program = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if program is None:
        pytest.skip("no Chromium here: apt-get install chromium")
    with sync_api.sync_playwright() as driver:
        # As root, in a container, Chromium has no sandbox; it opens files of tests alone.
        started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield started
        finally:
            started.close()
