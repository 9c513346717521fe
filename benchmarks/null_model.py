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
WORK = FOLDER / "null_model"


def line_file(count: int) -> Path:
    """Returns the file of the first `count` numbered sentences, one a line."""
    path = (WORK / f"{count}.txt").absolute()
    return path if path.exists() else write_lines(path, numbered_sentences(count))


def embed(name: str, text: Path) -> measure.Spent:
    """Runs one way over a file, and returns what the process took once every row is there.

    The output is removed at once: files that stay take memory that was never used before, which
    costs a virtual machine several times as much as pages that were just given back.

    Raises:
        RuntimeError: It failed, or wrote another number of rows.
    """
    output = (WORK / f"{_SIDES[name]}-{text.stem}").absolute()
    shutil.rmtree(output, ignore_errors=True)
    target = output if name == BLOCKS else output / "rows"
    command = (sys.executable, "-m", f"benchmarks.sides.{_SIDES[name]}")
    spent = measure.run([*command, "--input", text, "--output", target])
    rows = sum(pq.read_metadata(path).num_rows for path in output.glob("*.parquet"))
    shutil.rmtree(output)
    if rows != int(text.stem):
        raise RuntimeError(f"{name} wrote {rows} rows, not {text.stem}")
    return spent


def profile(text: Path, dim: int | None = None) -> dict[str, float]:
    """Runs our way over a file or folder, and returns what it took.

    Returns:
        Processor seconds of each room, of the `start-up` before the first, and of `everything`;
        the `peak` of memory in bytes; how many documents were `embedded`, in how many `blocks`.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    output = (WORK / f"profile-{text.stem}").absolute()
    command = [sys.executable, "-m", "benchmarks.sides.null_profile"]
    command += ["--input", str(text), "--output", str(output)]
    done = subprocess.run(
        command if dim is None else [*command, f"--dim={dim}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        check=True,
    )
    record = json.loads((output / "run.json").read_text(encoding="utf-8"))
    shutil.rmtree(output)
    found = Counter(json.loads(done.stdout.splitlines()[-1]))
    return found | {
        "embedded": record["counts"]["embedded"],
        "tokens": record["tokens"],
        "blocks": record["files"]["blocks"],
    }


def noise(rows: int, width: int) -> np.ndarray:
    """Returns float32 `[rows, width]`, made once and handed out again and again.

    Zeros would not do: Parquet packs them to nothing, where real vectors take all their bytes.
    """
    return np.random.default_rng(0).standard_normal((rows, width), np.float32)
