"""Executes the notebooks of docs/notebooks and writes what they print into them.

`make notebooks`. With `--check` it writes nothing, and fails where a cell fails or prints more or
fewer lines. What they say may differ: Python's reference changes with Python, and clusters with the
rounding of a processor.
"""

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "notebooks"


def main() -> int:
    """Executes all notebooks; returns 1 if `--check` finds a difference."""
    check, changed = "--check" in sys.argv[1:], []
    # The kernel imports this repository, and leaves traces of the machine out of the outputs.
    os.environ |= {"PYTHONPATH": str(ROOT / "src"), "TF_CPP_MIN_LOG_LEVEL": "3"}
    for path in sorted(FOLDER.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        before = lines(notebook)
        NotebookClient(notebook, resources={"metadata": {"path": str(ROOT)}}).execute()
        for cell in notebook.cells:  # LiteRT's line about its kernels goes to stderr
            if outputs := cell.get("outputs"):
                cell.outputs = [one for one in outputs if one.get("name") != "stderr"]
        if check and lines(notebook) != before:
            changed.append(path.name)
            print(f"{path.name}: its cells printed {lines(notebook)} lines, not {before}")
        elif not check:
            for cell in notebook.cells:
                cell.metadata.pop("execution", None)  # times, which differ at each run
            nbformat.write(notebook, path)
    return 1 if changed else 0


def lines(notebook: nbformat.NotebookNode) -> list[int]:
    """Returns the number of lines of every output."""
    outputs = [each for cell in notebook.cells for each in cell.get("outputs", [])]
    texts = [each.get("text") or each.get("data", {}).get("text/plain", "") for each in outputs]
    return [len(text.splitlines()) for text in texts]


if __name__ == "__main__":
    sys.exit(main())
