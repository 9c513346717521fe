"""A chain of runs, each of which continues all before it; a search of many small parts; many parts.

The files that the n-th increment opens, and the same command once it is done; processor time of a
search, start and model included; the memory of a run whose parts are all finished. `beside` is the
folder of another checkout, whose build takes the same turns.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.growth import WORK, line_file, resumed

_QUERY = "make an object callable"
_PART = 1000  # bytes of text in a part: some 12 sentences


def chain(
    name: str,
    days: int = 100,
    shown: Sequence[int] = (1, 10, 50, 100),
    parts: int = 2000,
    finished: int = 50_000,
    beside: str | None = None,
) -> None:
    """Runs each case on every side in turn."""
    sides = {"ours": Path.cwd()} | ({"beside": Path(beside).absolute()} if beside else {})
    results: dict[str, dict[str, Any]] = {}
    for side, checkout in sides.items():
        runs = _emptied(WORK / f"chain-{side}")
        text = runs / "in.jsonl"
        for day in range(days + 1):
            rows = [{"id": f"{number}", "text": f"sentence {number}"} for number in range(9 + day)]
            text.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
            earlier = [f"--skip_existing={runs}/runs/day*"] if day else []
            words = ["embed", f"--input={text}", f"--output={runs}/runs/day{day:03d}", *earlier]
            spent = _counted(checkout, runs / "runs", *words, "--report=false")
            if day in shown:
                again = _counted(checkout, runs / "runs", *words, "--report=false")
                record = runs / f"runs/day{day:03d}/run.json"
                results[f"{side}: increment {day}"] = spent | {
                    "again": again["opens"],
                    "record_bytes": record.stat().st_size,
                }
    null = Path(__file__).parent / "sides" / "null_pipeline.py"
    for side, checkout in sides.items():
        output = _emptied(WORK / "chain-search")
        flags = [f"--block_bytes={_PART}", "--input", line_file(parts * 12), "--output", output]
        environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
        measure.run([sys.executable, checkout / null.relative_to(Path.cwd()), *flags], environment)
        results[f"{side}: search of {parts} parts"] = _counted(
            checkout, output, "search", str(output), _QUERY
        )
        shutil.rmtree(output)
    whole = resumed(finished)
    results[f"ours: a finished run of {finished} parts"] = whole | {"cpu_s": whole["cpu_seconds"]}
    columns = {
        "case": "{name}",
        "files opened": "{opens:,}",
        "again, with nothing to do": "{again:,}",
        "bytes of run.json": "{record_bytes:,}",
        "CPU s": "{cpu_s:.2f}",
        "peak MiB": "{peak_mib:,.0f}",
    }
    measure.report({"benchmark": name, "data": "sentences"}, columns, results)


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder.absolute()


def _counted(checkout: Path, folder: Path, *words: str) -> dict[str, Any]:
    """What a command opens below a folder, and its processor time.

    Raises:
        RuntimeError: It failed.
    """
    command = [sys.executable, Path(__file__).parent / "sides" / "opens.py", folder, *words]
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}: {words}\n{done.stderr[-4000:]}")
    return json.loads(done.stderr.splitlines()[-1])
