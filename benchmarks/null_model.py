"""Both ways from a text file to Parquet with a model that costs nothing, as measured processes."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks import measure
from benchmarks.corpus import FOLDER, numbered_sentences, write_lines

BLOCKS, ROWS = "ours, blocks", "Beam, rows"
_SIDES = {BLOCKS: ("null_pipeline",), ROWS: ("beam_rows", "--model=null")}
WORK = FOLDER / "null_model"


def line_file(count: int) -> Path:
    """Returns the file of the first `count` numbered sentences, one a line."""
    path = (WORK / f"{count}.txt").absolute()
    return path if path.exists() else write_lines(path, numbered_sentences(count))


def embed(name: str, text: Path) -> measure.Spent:
    """Runs one way over a file, and returns what the process took once every row is there.

    Raises:
        RuntimeError: It failed, or wrote another number of rows.
    """
    spent, rows, _ = run(name, text)
    if rows != int(text.stem):
        raise RuntimeError(f"{name} wrote {rows} rows, not {text.stem}")
    return spent


def run(name: str, text: Path, *flags: str) -> tuple[measure.Spent, int, dict[str, Any]]:
    """Runs one way over a file or folder.

    The output is removed at once: files that stay take memory that was never used before, which
    costs a virtual machine several times as much as pages that were just given back.

    Returns:
        What the process took, the rows that it wrote, and the run's record, {} of Beam's way.

    Raises:
        RuntimeError: It failed.
    """
    module, *own = _SIDES[name]
    output = (WORK / f"{module}-{text.stem}").absolute()
    shutil.rmtree(output, ignore_errors=True)
    target = output if name == BLOCKS else output / "rows"
    command = (sys.executable, "-m", f"benchmarks.sides.{module}", *own, *flags)
    spent = measure.run([*command, "--input", text, "--output", target])
    rows = sum(pq.read_metadata(path).num_rows for path in output.rglob("*.parquet"))
    record = output / "run.json"
    found = json.loads(record.read_text(encoding="utf-8")) if record.exists() else {}
    shutil.rmtree(output)
    return spent, rows, found


def noise(rows: int, width: int) -> np.ndarray:
    """Returns float32 `[rows, width]`, made once and handed out again and again.

    Zeros would not do: Parquet packs them to nothing, where real vectors take all their bytes.
    """
    return np.random.default_rng(0).standard_normal((rows, width), np.float32)
