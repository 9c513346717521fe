"""Both ways from a text file to Parquet with a model that costs nothing, as measured processes."""

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks import measure
from benchmarks.corpus import FOLDER, numbered_sentences, write_lines

BLOCKS, ROWS = "ours, blocks", "Beam, rows"
_SIDES = {BLOCKS: "null_blocks", ROWS: "null_rows"}
_WORK = FOLDER / "null_model"


def line_file(count: int) -> Path:
    """Returns the file of the first `count` numbered sentences, one a line."""
    path = (_WORK / f"{count}.txt").absolute()
    return path if path.exists() else write_lines(path, numbered_sentences(count))


def embed(name: str, text: Path) -> measure.Spent:
    """Runs one way over a file, and returns what the process took once every row is there.

    The output is removed at once: files that stay take memory that was never used before, which
    costs a virtual machine several times as much as pages that were just given back.

    Raises:
        RuntimeError: It failed, or wrote another number of rows.
    """
    output = (_WORK / f"{_SIDES[name]}-{text.stem}").absolute()
    shutil.rmtree(output, ignore_errors=True)
    target = output if name == BLOCKS else output / "rows"
    command = (sys.executable, "-m", f"benchmarks.sides.{_SIDES[name]}")
    spent = measure.run([*command, "--input", text, "--output", target])
    rows = sum(pq.read_metadata(path).num_rows for path in output.glob("*.parquet"))
    shutil.rmtree(output)
    if rows != int(text.stem):
        raise RuntimeError(f"{name} wrote {rows} rows, not {text.stem}")
    return spent


def profile(text: Path) -> dict[str, float]:
    """Runs our way over a file, and returns the processor seconds of each of its rooms.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    output = (_WORK / f"profile-{text.stem}").absolute()
    command = [sys.executable, "-m", "benchmarks.sides.null_profile"]
    done = subprocess.run(
        [*command, "--input", str(text), "--output", str(output)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    shutil.rmtree(output)
    return Counter(json.loads(done.stdout.splitlines()[-1]))


def noise(rows: int, width: int) -> np.ndarray:
    """Returns float32 `[rows, width]`, made once and handed out again and again.

    Zeros would not do: Parquet packs them to nothing, where real vectors take all their bytes.
    """
    return np.random.default_rng(0).standard_normal((rows, width), np.float32)
