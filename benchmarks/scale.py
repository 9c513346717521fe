"""Scale-out: do twice the workers do twice?

The same text on one and on two worker processes of one thread each, in turn. The model sleeps for
each token, so that cores that are shared or too few do not stand in the way; all else is the real
pipeline. The clock runs from when every worker has its model and has begun its first block to the
end of the last block: start-up is left out, the wait of a worker that got less to do is not. If
`real`, the model computes, and what counts are processor seconds a token, which a second worker
must not raise.

Load: the same on one huge file beside many small ones. Beam's local runner deals the blocks out
beforehand; a service hands a block to whoever is free, which is computed here from the blocks'
bytes for more workers than one machine has.
"""

import heapq
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks import measure
from benchmarks.corpus import FOLDER, numbered_sentences, write_lines
from benchmarks.scale_plan import listed
from benchmarks.sides.null_pipeline import NAME
from bert_embed.transforms.parts import default_block_bytes, plan_blocks

WORK = FOLDER / "scale"
_SMALL_FILES = 400
_WORKERS = (10, 100, 1000)


def scale(
    name: str,
    sentences: int = 20_000,
    tokens_a_second: float = 20_000.0,
    real: bool = False,
    rounds: int = 3,
) -> None:
    """Runs both inputs on one and on two workers, and computes the load of more."""
    speed = None if real else tokens_a_second
    inputs = {"one file": text_file(sentences), "one huge, many small": mixed(sentences)}
    rounds_of: dict[str, list[dict[str, Any]]] = {}
    for turn in range(rounds):
        for title, text in inputs.items():
            for workers in (1, 2):
                done = worked(text, workers, speed)
                rounds_of.setdefault(f"{title}, {workers}", []).append(done)
                print(f"round {turn + 1} of {rounds}: {title}, {workers}: {done}", flush=True)
    results = {title: _result(title, rounds_of) for title in rounds_of}
    planned = {
        title: {"blocks": f"{len(blocks):,}"}
        | {f"idle_{workers}": idle_share(blocks, workers) for workers in _WORKERS}
        for title, blocks in simulated_inputs().items()
    }
    columns = {
        "input, workers": "{name}",
        "blocks per worker": "{blocks}",
        "tokens/s": "{tokens_a_second:,.0f}",
        "speed-up": "{speed_up:.2f} (spread {spread:.2f})",
        "idle": "{idle:.1%}",
        "processor s a million tokens": "{cpu:.1f}",
        **{f"idle with {workers} workers": f"{{idle_{workers}:.2%}}" for workers in _WORKERS},
    }
    record = {"benchmark": name, "model": "real" if real else "sleeps", "rounds": rounds_of}
    measure.report(record, columns, results | planned)


def worked(text: Path, workers: int, speed: float | None) -> dict[str, Any]:
    """Runs the pipeline on so many workers; what they did from the first block to the last.

    Returns:
        `tokens_a_second` by the clock, `blocks` of each worker, the `idle` share of the workers'
        time, `cpu`, the model's processor seconds a million tokens.
    """
    with tempfile.TemporaryDirectory(dir=WORK) as folder:
        command = [sys.executable, "-m", "benchmarks.sides.null_pipeline", "--input", str(text)]
        command += ["--output", f"{folder}/out", "--workers", str(workers), "--notes"]
        command += ["--block_bytes=32768"]
        command.append("--real" if speed is None else f"--tokens_a_second={speed}")
        measure.run(command)
        lines = (Path(folder) / "out" / NAME).read_text(encoding="utf-8").splitlines()
    return summary([json.loads(line) for line in lines], workers)


def summary(notes: list[Mapping[str, Any]], workers: int) -> dict[str, Any]:
    """What the notes of all blocks come to, from when every worker had begun.

    >>> notes = [{"process": p, "start": 0, "stop": 1 + p, "cpu": 1, "tokens": 6} for p in (0, 1)]
    >>> summary(notes, 2)
    {'tokens_a_second': 6.0, 'blocks': [1, 1], 'idle': 0.25, 'cpu': 166666.7}
    """
    begun: dict[int, float] = {}
    for note in sorted(notes, key=lambda note: note["start"]):
        begun.setdefault(note["process"], note["start"])
    start, stop = max(begun.values()), max(note["stop"] for note in notes)
    busy = [max(0.0, note["stop"] - max(note["start"], start)) for note in notes]
    spent = [note["stop"] - note["start"] for note in notes]
    shares = zip(notes, busy, spent, strict=True)
    tokens = sum(note["tokens"] * here / whole for note, here, whole in shares)
    cpu = sum(note["cpu"] for note in notes) / sum(note["tokens"] for note in notes)
    return {
        "tokens_a_second": round(tokens / (stop - start), 1),
        "blocks": sorted(Counter(note["process"] for note in notes).values()),
        "idle": round(1 - sum(busy) / (workers * (stop - start)), 4),
        "cpu": round(1e6 * cpu, 1),
    }


def _result(name: str, rounds_of: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    alone, rounds = rounds_of[name[:-1] + "1"], rounds_of[name]
    rates = [done["tokens_a_second"] for done in rounds]
    times = measure.Figure.of(
        rate / one["tokens_a_second"] for one, rate in zip(alone, rates, strict=True)
    )
    return {
        "blocks": " and ".join(map(str, rounds[0]["blocks"])),
        "tokens_a_second": measure.Figure.of(rates).median,
        "speed_up": times.median,
        "spread": times.spread,
        "idle": max(done["idle"] for done in rounds),
        "cpu": measure.Figure.of(done["cpu"] for done in rounds).median,
    }


def text_file(sentences: int) -> Path:
    """One file of so many sentences."""
    return write_lines(WORK / "one.txt", numbered_sentences(sentences)).absolute()


def mixed(sentences: int) -> Path:
    """A folder with half of the sentences in one file and half in many small ones."""
    folder = WORK / "mixed"
    shutil.rmtree(folder, ignore_errors=True)
    lines = list(numbered_sentences(sentences))
    half = sentences // 2
    write_lines(folder / "huge.txt", lines[:half])
    for number in range(_SMALL_FILES):
        write_lines(folder / f"small-{number:04d}.txt", lines[half + number :: _SMALL_FILES])
    return folder.absolute()


def simulated_inputs() -> dict[str, list[int]]:
    """Bytes of the blocks of inputs that are not there, as the plan would cut them."""
    huge, many = [100 << 30], [200_000] * 500_000
    return {
        "100 GiB in one file": _block_bytes(listed(huge)),
        "100 GB in 500,000 files": _block_bytes(listed(many)),
        "one of 50 GiB, 250,000 small": _block_bytes(listed([50 << 30, *many[::2]])),
    }


def _block_bytes(files: list[Any]) -> list[int]:
    block_bytes = default_block_bytes(sum(file.text_bytes for file in files))
    plan = plan_blocks(files, block_bytes)
    return [sum(piece.stop - piece.start for piece in spec.slices) for spec in plan]


def idle_share(blocks: Iterable[int], workers: int) -> float:
    """The share of all workers' time that none has a block, if whoever is free takes the next one.

    >>> idle_share([2, 2, 2], 2)
    0.25
    """
    busy = [0] * workers
    for block in blocks:
        heapq.heapreplace(busy, busy[0] + block)
    return 1 - sum(busy) / (workers * max(busy))
