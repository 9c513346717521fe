"""What all benchmarks share: measured processes, sides in turn, a table and a JSON line."""

import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bert_embed.base import environment as processor

_VERSIONS = ("apache-beam", "tensorflow", "tensorflow-text", "numpy", "pyarrow")
# Those of the flags in /proc/cpuinfo that decide how fast products are, by precision.
_INSTRUCTIONS = ("avx2", "avx512f", "avx_vnni", "avx512_vnni", "avx512_bf16")
_INSTRUCTIONS += ("amx_int8", "amx_bf16", "asimd", "i8mm", "bf16")

# Containers often have Python keep no bytecode: each process would compile its modules first.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parents[1] / "build" / "bytecode")


@dataclass(frozen=True)
class Spent:
    """What a process took.

    Attributes:
        wall: Seconds from its start to its end.
        cpu: Seconds of processor time, user and system, of it and the processes it waited for.
        peak: Bytes of memory it held at most.
    """

    wall: float
    cpu: float
    peak: int

    def __sub__(self, other: "Spent") -> "Spent":
        return Spent(self.wall - other.wall, self.cpu - other.cpu, self.peak - other.peak)


@dataclass(frozen=True)
class Figure:
    """A median and its spread, the largest over the smallest."""

    median: float
    spread: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Figure":
        values = list(values)
        return cls(statistics.median(values), max(values) / min(values))


def summary(runs: Sequence[Spent]) -> dict[str, float]:
    """Returns the medians of some runs of one command, and the spread of their seconds."""
    wall, cpu, peak = (
        Figure.of(getattr(one, name) for one in runs) for name in ("wall", "cpu", "peak")
    )
    return {
        "wall_s": round(wall.median, 3),
        "cpu_s": round(cpu.median, 3),
        "peak_mib": round(peak.median / 2**20, 1),
        "spread": round(wall.spread, 2),
    }


def run(command: Sequence[object], environment: Mapping[str, str] | None = None) -> Spent:
    """Runs a command to its end and returns what it took.

    Raises:
        RuntimeError: It failed; the message ends with what it had printed last.
    """
    with tempfile.TemporaryFile() as printed:
        start = time.perf_counter()
        process = subprocess.Popen(
            [str(word) for word in command],
            env=None if environment is None else dict(environment),
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            printed.seek(0)
            tail = printed.read()[-4000:].decode("utf-8", "replace")
            raise RuntimeError(f"exit code {process.returncode}: {command}\n{tail}")
    return Spent(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024)


class Child:
    """A process that answers each JSON line on its standard input with one on its standard output.

    Args:
        module: What of `benchmarks.sides` runs.
        *flags: Its command line.
        python: The interpreter of its environment.
        environment: Its variables; None for those of this process.
    """

    def __init__(
        self,
        module: str,
        *flags: object,
        python: Path | str = sys.executable,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._process = subprocess.Popen(
            [str(python), "-m", f"benchmarks.sides.{module}", *map(str, flags)],
            env=None if environment is None else dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, question: object) -> None:
        """Sends a question."""
        assert self._process.stdin is not None
        print(json.dumps(question), file=self._process.stdin, flush=True)

    def answer(self) -> Any:
        """Waits for the answer to the last question.

        Raises:
            RuntimeError: The process ended; standard error has its reason.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args} ended with {self._process.wait()}")
        return json.loads(line)

    def ask(self, question: object) -> Any:
        """Sends a question and waits for its answer."""
        self.tell(question)
        return self.answer()

    def close(self) -> None:
        """Ends the process."""
        self._process.communicate()


def answer_lines(answer: Callable[[Any], object]) -> None:
    """Is the other end of `Child`: answers until the input ends; other prints go to stderr."""
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)


def apart(function: Callable[..., Any], *args: object) -> Any:
    """Calls in another process: what one holds as it starts another counts as the other's peak."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def one_core() -> None:
    """Keeps this process, and those that it starts, on one core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def in_turn(sides: Mapping[str, Callable[[], Spent]], rounds: int) -> dict[str, list[Spent]]:
    """Runs every side once a round, so that a change of the machine's mood meets them all."""
    spent: dict[str, list[Spent]] = {name: [] for name in sides}
    for turn in range(rounds):
        for name, work in sides.items():
            spent[name].append(work())
            print(f"round {turn + 1} of {rounds}: {name} {spent[name][-1].wall:.1f} s", flush=True)
    return spent


def machine() -> dict[str, object]:
    """Returns what the figures depend on beside the code: processor, device, cores, date, Python.

    "instructions" are what the processor has for products of matrices; the model's number
    tells processors apart whose name a virtual machine hides.
    """
    from bert_embed.backends.choose import find_backend  # peers' environments lack what it needs

    about, flags = processor.facts(), processor.flags()
    name, numbers = about.get("model name", platform.processor()), ("cpu family", "model")
    if set(numbers) <= set(about):
        name += f" ({', '.join(f'{key} {about[key]}' for key in numbers)})"
    return {
        "processor": name,
        "instructions": [flag for flag in _INSTRUCTIONS if flag in flags],
        "cores": len(os.sched_getaffinity(0)),
        "device": find_backend("float32", "auto")[1],
        "date": datetime.date.today().isoformat(),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str]:
    """Returns the versions of the libraries that the product stands on."""
    return {name: importlib.metadata.version(name) for name in _VERSIONS}


def commit() -> str:
    """Returns the commit of the code that is measured, with a plus sign if files were changed.

    Files that runs of benchmarks write do not count.
    """
    git = ["git", "-C", str(Path(__file__).parents[1])]
    name = subprocess.check_output([*git, "rev-parse", "--short=10", "HEAD"], text=True).strip()
    written = [":!benchmarks/results", ":!benchmarks/tables.md", ":!docs"]
    status = [*git, "status", "--porcelain", "--untracked-files=no", "--", ".", *written]
    changed = subprocess.check_output(status)
    return f"{name}+" if changed else name


def report(
    record: Mapping[str, object],
    columns: Mapping[str, str],
    results: Mapping[str, Mapping[str, Any]],
) -> None:
    """Prints a table for people, then a JSON line with it, the machine, versions and the commit.

    Args:
        record: What is kept beside the results; its "benchmark" is the name.
        columns: By title, a format for the values of a result, whose own name is `name`. A cell
            whose value the result lacks stays empty.
        results: By name, one a row.
    """
    rows = [{"name": name, **result} for name, result in results.items()]
    table = [[*columns], *([_cell(form, row) for form in columns.values()] for row in rows)]
    where = machine()
    at = f"{where['processor']}, {where['cores']} cores, {where['date']}, commit {commit()}"
    print(f"\n{record['benchmark']}: {at}")
    print("\n".join(table_lines(table)))
    whole = {"results": results, **record, "table": table, "machine": where}
    print(json.dumps(whole | {"versions": versions(), "commit": commit()}), flush=True)


def _cell(form: str, row: Mapping[str, Any]) -> str:
    try:
        return form.format_map(row)
    except KeyError:
        return ""


def table_lines(table: Sequence[Sequence[str]]) -> list[str]:
    """Returns a table of Markdown, from its rows; the first is the header."""
    header, *rows = table
    return ["| " + " | ".join(row) + " |" for row in (header, ["---"] * len(header), *rows)]
