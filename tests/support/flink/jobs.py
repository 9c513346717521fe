"""What tests ask of a job on the cluster: how far it is, who computed what, what came out."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.command import files, record, rejected, rows

# What a run tells that depends on the corpus alone, not on when and where it ran.
COUNTED = (
    "counts",
    "rejected",
    "tokens",
    "computed_tokens",
    "padded_tokens",
    "batches",
    "lengths",
)


def counted(output: Path, reused: bool = True) -> dict[str, Any]:
    """Every count of a run's record; `reused` is False where blocks may come from an attempt."""
    counts = {name: record(output)[name] for name in COUNTED}
    if not reused:
        counts["counts"] = {**counts["counts"], "parts_reused": 0}
    return counts


def same_output(output: Path, whole: Path) -> bool:
    """Whether a run wrote what the local runner did: every file, and nothing twice."""
    assert record(output)["status"] == "done"
    assert counted(output, reused=False) == counted(whole)
    return files(output) == files(whole)


def same_rows(output: Path, whole: Path) -> bool:
    """The same but for the last bits of vectors, which hang on where arrays lie in memory."""
    assert record(output)["status"] == "done"
    assert counted(output, reused=False) == counted(whole)
    assert rejected(output) == rejected(whole)
    assert rows(output)["id"] == rows(whole)["id"]
    return np.allclose(rows(output)["embedding"], rows(whole)["embedding"], rtol=0, atol=1e-5)


def reports(output: Path) -> dict[str, int]:
    """When each part was finished, by its name."""
    found = (output / "_state" / "blocks").glob("[0-9]*-*.json")
    return {path.name: path.stat().st_mtime_ns for path in found}


def events(trace: Path) -> list[dict[str, Any]]:
    """What the workers noted, in the order of time."""
    lines = [line for path in trace.glob("*.jsonl") for line in path.read_text().splitlines(True)]
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return sorted(rows, key=lambda row: row["time"])


def computing(trace: Path) -> Iterator[dict[str, Any]]:
    """The workers that are in the middle of a block."""
    last = {row["pid"]: row for row in events(trace)}
    return (row for row in last.values() if row["what"] == "begin")


def begun(trace: Path, parts: set[str], since: float) -> set[str]:
    """Those of the parts that some worker began after a moment."""
    names = {
        f"{row['block']:07d}-{row['part']:05d}.json"
        for row in events(trace)
        if row["what"] == "begin" and row["time"] > since
    }
    return names & parts
