"""Runs `export` and looks at what it left."""

from pathlib import Path
from typing import Any

from bert_embed.pipeline.cli import main


def export(source: Path | str, dest: Path | str, target: str, **flags: Any) -> int:
    """`export` in this process; returns the exit code."""
    words = ["export", str(source), str(dest), f"--to={target}"]
    for name, value in flags.items():
        words.append(f"--{name}" if value is True else f"--{name}={value}")
    return main(words)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too, by name."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
