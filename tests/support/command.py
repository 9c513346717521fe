"""Runs the command line, in this process or in others, and reads what it wrote with other eyes."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from bert_embed.pipeline.cli import main
from bert_embed.pipeline.run import plan
from tests.support.forks import Command, python

ROOT = Path(__file__).resolve().parents[2]


def embed(
    output: Path, model: str, *inputs: Path | str, part_docs: int | None = None, **flags: Any
) -> int:
    """`embed` in this process, with at most so many documents a part; returns the exit code.

    Inputs of a few records hold a bad one on purpose: unless told otherwise, only a run that
    embeds next to nothing is refused.
    """
    flags = {"max_rejected": "99%"} | flags
    with parts_of(part_docs):
        return main(["embed", *flags_of(output, model, *inputs, **flags)])


@contextmanager
def parts_of(documents: int | None) -> Iterator[None]:
    """Makes runs of this process cut parts of so many documents at most."""
    with mock.patch.object(plan, "MOST_PART_DOCS", documents or plan.MOST_PART_DOCS):
        yield


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Has the kernel refuse this process' files over a size, as a full disk what does not fit."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    keeps_none = sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # Python takes what fits of a file for the whole
    try:
        yield
    finally:
        sys.dont_write_bytecode = keeps_none
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def flags_of(output: Path, model: str, *inputs: Path | str, **flags: Any) -> list[str]:
    words = [f"--input={each}" for each in inputs]
    return [*words, f"--output={output}", f"--model={model}", *as_flags(flags)]


def as_flags(values: Mapping[str, Any]) -> list[str]:
    return [f"--{name}" if value is True else f"--{name}={value}" for name, value in values.items()]


def start(*arguments: str, fresh: bool = False, **variables: str) -> subprocess.Popen[str]:
    """The command line in a process of its own, with these environment variables.

    It is forked from one that has imported what it needs, unless it is to be a `fresh` one.
    """
    kind = subprocess.Popen if fresh else Command
    return kind(
        [*([sys.executable] if fresh else python()), "-m", "bert_embed", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(job: subprocess.Popen[str]) -> str:
    """Waits for a command that must succeed; returns what it wrote to stderr."""
    _, errors = job.communicate(timeout=400)
    assert job.returncode == 0, errors
    return errors


def ran(
    words: Sequence[str], cwd: Path = ROOT, check: bool = False, **variables: str
) -> subprocess.CompletedProcess[str]:
    """A program that has ended, with what it printed; it has these environment variables, too."""
    env = os.environ | variables
    return subprocess.run(
        words, cwd=cwd, env=env, check=check, capture_output=True, text=True, timeout=600
    )


def peak_memory() -> int:
    """The most bytes that this process has held; `ru_maxrss` begins with those of its parent."""
    [peak] = re.findall(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text("utf-8"))
    return int(peak) << 10


def write_json(path: Path, *records: Any) -> Path:
    path.write_text("".join(f"{json.dumps(each)}\n" for each in records), "utf-8")
    return path


def write_table(path: Path, records: list[dict[str, Any]]) -> None:
    """Writes what the name says: a CSV file, a Parquet file or JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        write_json(path, *records)
    else:
        write = csv.write_csv if path.suffix == ".csv" else pq.write_table
        write(pa.Table.from_pylist(records), path)


def data_files(output: Path, kind: str = "embeddings") -> list[Path]:
    return sorted(output.glob(f"{kind}/part-*"))


def sentence_files(output: Path) -> list[Path]:
    """The vectors of texts, or of their windows or chunks; a run writes one of them."""
    kinds = ("embeddings", "windows", "chunks")
    return [path for kind in kinds for path in data_files(output, kind)]


def block_records(output: Path) -> list[Path]:
    """The reports of the parts that are finished; none that is being written."""
    return sorted(output.glob("_state/blocks/0*.json"))


def rows(output: Path) -> dict[str, list[Any]]:
    """The columns of all Parquet files, sorted by name."""
    tables = [pq.read_table(path).to_pydict() for path in sentence_files(output)]
    names = list(tables[0]) if tables else ["id", "embedding"]
    return {name: [value for table in tables for value in table[name]] for name in names}


def vectors(output: Path) -> np.ndarray:
    return np.array(rows(output)["embedding"], np.float32)


def rejected(output: Path) -> list[dict[str, Any]]:
    lines = [
        line
        for path in data_files(output, "rejected")
        for line in path.read_text("utf-8").splitlines()
    ]
    return [json.loads(line) for line in lines]


def record(output: Path) -> dict[str, Any]:
    return json.loads((output / "run.json").read_text("utf-8"))


def say_status(output: Path, status: str) -> None:
    (output / "run.json").write_text(json.dumps(record(output) | {"status": status}))


def files(output: Path) -> dict[str, bytes]:
    """Every file of vectors and rejected records, by name."""
    found = [*sentence_files(output), *data_files(output, "rejected")]
    return {str(path.relative_to(output)): path.read_bytes() for path in sorted(found)}


def flip(path: Path, at: int | None = None) -> None:
    """Changes a bit of a file: of the byte in its middle, or of another."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2 if at is None else at] ^= 1
    path.write_bytes(data)


def stray(output: Path) -> list[str]:
    """Temporary files that were left behind."""
    return [path.name for path in output.rglob(".*")]


REPORT = "bert_embed.transforms.output_folder|OutputFolder|write_block_record"  # a part is finished


@dataclass
class Hold:
    """Where a function is held, and after how many calls of it.

    Attributes:
        folder: Does not exist yet; processes signal each other by files in it.
        calls: So many pass.
        function: Its module, class and name; without a class, a function of a built-in module.
    """

    folder: Path
    calls: int
    function: str = REPORT

    def __post_init__(self) -> None:
        self.folder.mkdir()

    @property
    def environment(self) -> dict[str, str]:
        """What a process and its children need in their environment to be held."""
        path = [str(ROOT / "tests" / "support" / "held_site"), os.environ.get("PYTHONPATH", "")]
        words = f"{self.folder}|{self.calls}|{self.function}"
        return {"BERT_EMBED_HELD": words, "PYTHONPATH": os.pathsep.join(filter(None, path))}

    def start(self, *arguments: str, fresh: bool = False) -> subprocess.Popen[str]:
        """Starts a command and returns when it waits."""
        process = start(*arguments, fresh=fresh, **self.environment)
        self.wait(process)
        return process

    def kill(self, *arguments: str) -> None:
        process = self.start(*arguments)
        process.kill()
        process.communicate()

    def interrupt(self, *arguments: str) -> tuple[int, str, str]:
        """Starts a command, and sends it Ctrl-C when it waits; its exit code, and what it said."""
        process = self.start(*arguments)
        process.send_signal(signal.SIGINT)
        self.go()
        out, errors = process.communicate(timeout=120)
        return process.returncode, out, errors

    def wait(self, process: subprocess.Popen[str]) -> None:
        while not list(self.folder.glob("held-*")):
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)

    def go(self) -> None:
        (self.folder / "go").touch()


PRISM = ROOT / "build" / "prism"
PROCESSES = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
RUNNERS = {
    "processes": ("--runner=FnApiRunner", *PROCESSES),
    "prism": ("--runner=PrismRunner", f"--prism_location={PRISM}"),
}


def runner_flags(name: str) -> tuple[str, ...]:
    """The flags of one of `RUNNERS`; skips the test if it is not there."""
    if name == "prism" and not PRISM.exists():
        pytest.skip("build/prism is not there: `make build/prism` builds it where Go is installed")
    return RUNNERS[name]
