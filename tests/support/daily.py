"""Days of a corpus, the settings of the daily run, and the script itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "deploy" / "cron" / "embed_daily.sh"
DAYS = ("2024-02-28", "2024-02-29", "2024-03-01")


def write_day(folder: Path, day: str, texts: dict[str, str]) -> Path:
    """A file of JSON lines in a day's folder."""
    path = folder / day / "part.jsonl"
    path.parent.mkdir(parents=True)
    lines = [json.dumps({"id": name, "text": text}) for name, text in texts.items()]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def write_settings(folder: Path, model: str, *more: str, **changes: str) -> Path:
    """A file of settings for what lies in `folder`; `more` are flags of embed."""
    values = {
        "INPUT": f"{folder}/texts/{{day}}",
        "OUTPUT": f"{folder}/vectors",
        "STATE": f"{folder}/state",
        "PYTHON": sys.executable,
    } | changes
    lines = [f"{name}='{value}'" for name, value in values.items()]
    flags = " ".join(f"'{flag}'" for flag in (f"--model={model}", *more))
    path = folder / "settings.sh"
    path.write_text("\n".join([*lines, f"FLAGS=({flags})"]) + "\n", encoding="utf-8")
    return path


def start_daily(settings: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    """The daily run as a process of its own, in a session of its own as cron starts it."""
    return subprocess.Popen(
        [SCRIPT, settings, *words],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"} | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )


def daily(settings: Path, *words: str) -> tuple[int, str]:
    """Runs it to its end; returns its exit code and what it said, not the log."""
    process = start_daily(settings, *words)
    out, errors = process.communicate(timeout=300)
    return process.returncode, out + errors


def log(folder: Path) -> str:
    """What stands in the logs."""
    paths = sorted((folder / "state" / "logs").glob("*.log"))
    return "".join(path.read_text("utf-8") for path in paths)


def state_of(output: Path) -> dict[Path, tuple[int, bytes]]:
    """Time and bytes of everything in a folder."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for path in output.rglob("*")
        if path.is_file()
    }
