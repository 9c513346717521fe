"""Growth: time and memory over ever more documents, and over inputs of odd shapes.

The largest case needs 10 GB of disk and some minutes. The whole pipeline runs with the model that
costs nothing, in one process on one core; vectors are short, so that the outputs stay small. Each
case runs `rounds` times, but an input of over 500 MB once. What a run over 1,000 documents takes is
start-up, taken off every other case. A finished run is continued: all its blocks have block
records, and files of no bytes.
"""

import gzip
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks import measure
from benchmarks.corpus import FOLDER, every_sentence, numbered_sentences, write_lines
from bert_embed.pipeline.options.embed import Options
from bert_embed.pipeline.run import state
from bert_embed.pipeline.run.prepare import prepare
from bert_embed.transforms.ledger import BlockRecord, block_record_bytes
from bert_embed.transforms.output_folder import OutputFile, part_name

WORK = FOLDER / "null_model"
_SMALL = "1000 documents"
_SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
_WORDS = 1_000_000
_TINY = 10_000
_LARGE = 500 << 20  # bytes of an input that runs once
_FINISHED, _LINE = 100_000, 80  # blocks of a finished run, and bytes of each
_RESUMED = f"a finished run of {_FINISHED} blocks"
_TWO = "two workers"


def growth(
    name: str,
    cases: Sequence[str] | None = None,
    dim: int = 64,
    rounds: int = 3,
    size: int = 5 << 30,
) -> None:
    """Runs the cases; large files have `size` bytes of text."""
    measure.one_core()
    every = {**all_cases(size), _RESUMED: resumed}
    found: dict[str, dict[str, Any]] = {}
    for title in dict.fromkeys([_SMALL, *(cases or every)]):
        flags = [f"--dim={dim}", *(["--workers=2"] if title.endswith(_TWO) else [])]
        found[title] = resumed() if title == _RESUMED else case(every[title](), flags, rounds)
    startup = found[_SMALL]["cpu_seconds"]
    for one in found.values():
        seconds = one["cpu_seconds"] - startup
        if seconds > 0:
            one["microseconds"] = seconds / one["documents"] * 1e6
            one["megabytes"] = one["bytes"] / seconds / 1e6
    columns = {
        "input": "{name}",
        **{title: f"{{{title}:,}}" for title in ("bytes", "documents", "blocks")},
        "CPU s": "{cpu_seconds:.2f}",
        "µs a document": "{microseconds:.2f}",
        "MB of input a CPU s": "{megabytes:.1f}",
        "s": "{wall_seconds:.2f}",
        "peak MiB": "{peak_mib:,.0f}",
        "runs": "{rounds}",
    }
    measure.report({"benchmark": name, "data": f"vectors of {dim} numbers"}, columns, found)


def line_file(count: int) -> Path:
    """Returns the file of the first `count` numbered sentences, one a line."""
    path = (WORK / f"{count}.txt").absolute()
    return path if path.exists() else write_lines(path, numbered_sentences(count))


def embed(text: Path) -> measure.Spent:
    """Runs the pipeline over a file of `line_file`, and returns what the process took.

    Raises:
        RuntimeError: It failed, or wrote another number of rows.
    """
    spent, rows, _ = run(text)
    if rows != int(text.stem):
        raise RuntimeError(f"{rows} rows were written, not {text.stem}")
    return spent


def run(text: Path, *flags: str) -> tuple[measure.Spent, int, dict[str, Any]]:
    """Runs the pipeline with a model that costs nothing over a file or folder.

    The output is removed at once: files that stay take memory that was never used before, which
    costs a virtual machine several times as much as pages that were just given back.

    Returns:
        What the process took, the rows that it wrote, and the run's record.

    Raises:
        RuntimeError: It failed.
    """
    output = (WORK / f"output-{text.stem}").absolute()
    shutil.rmtree(output, ignore_errors=True)
    command = (sys.executable, "-m", "benchmarks.sides.null_pipeline", *flags)
    spent = measure.run([*command, "--input", text, "--output", output])
    rows = sum(pq.read_metadata(path).num_rows for path in output.rglob("*.parquet"))
    record = json.loads((output / "run.json").read_text(encoding="utf-8"))
    shutil.rmtree(output)
    return spent, rows, record


def all_cases(size: int) -> dict[str, Callable[[], Path]]:
    """The cases by name: each makes its input and returns the file or folder."""
    sizes = (1000, *_SIZES)
    return {f"{count} documents": lambda count=count: line_file(count) for count in sizes} | {
        "one document of 1000000 words": long_document,
        "10000 files of one document": tiny_files,
        "one large file": lambda: large_file(WORK / "large.txt", size),
        "one large file, gzip": lambda: large_file(WORK / "large.txt.gz", size),
        f"one large file, gzip, {_TWO}": lambda: large_file(WORK / "large.txt.gz", size),
    }


def case(text: Path, flags: list[str], rounds: int) -> dict[str, Any]:
    """Runs one case."""
    size = sum(f.stat().st_size for f in text.glob("*")) if text.is_dir() else text.stat().st_size
    runs = [run(text, *flags) for _ in range(1 if size > _LARGE else rounds)]
    if text.name.startswith("large"):
        text.unlink()
    record = runs[0][2]
    return {
        "bytes": size,
        "documents": record["counts"]["embedded"],
        "tokens": record["tokens"],
        "blocks": record["plan"]["blocks"],
        **_spent([spent for spent, _, _ in runs]),
    }


def _spent(runs: Sequence[measure.Spent]) -> dict[str, Any]:
    of_all, seconds = measure.summary(runs), [spent.cpu for spent in runs]
    return {
        "rounds": len(runs),
        "cpu_seconds": of_all["cpu_s"],
        "spread": round(max(seconds) / min(seconds), 2),
        "wall_seconds": of_all["wall_s"],
        "peak_mib": of_all["peak_mib"],
    }


def resumed(finished: int = _FINISHED) -> dict[str, Any]:
    """Continues a run whose blocks are all finished."""
    text, output = (WORK / "finished.txt").absolute(), (WORK / "finished").absolute()
    text.write_text(("x" * (_LINE - 1) + "\n") * finished, encoding="utf-8")
    shutil.rmtree(output, ignore_errors=True)
    prepared = prepare(
        Options(input=(str(text),), output=str(output), model="minilm", block_bytes=_LINE)
    )
    with state.claimed(prepared):
        pass
    (output / "embeddings").mkdir()
    for number in range(finished):
        part = part_name(number, 0)
        name = f"embeddings/part-{part}.parquet"
        (output / name).touch()
        block_record = BlockRecord(
            block=number,
            part=0,
            last=True,
            records=1,
            covered={0: _LINE},
            end_of_file=None,
            embedded=1,
            tokens=9,
            length_bins=[1],
            files={name: OutputFile(0, "AAAAAA==", 1)},
        )
        data = block_record_bytes(block_record, prepared.fingerprint)
        (output / f"_state/blocks/{part}.json").write_bytes(data)
    command = (sys.executable, "-m", "benchmarks.sides.null_pipeline", f"--block_bytes={_LINE}")
    spent = measure.run([*command, "--input", text, "--output", output])
    shutil.rmtree(output)
    return {
        "bytes": _LINE * finished,
        "documents": finished,
        "blocks": finished,
        **_spent([spent]),
    }


def long_document() -> Path:
    """One line of a million words."""
    words = (word for sentence in numbered_sentences(_WORDS) for word in sentence.split())
    return write_lines(WORK / "words.txt", [" ".join(islice(words, _WORDS))]).absolute()


def tiny_files() -> Path:
    """A folder of files with one sentence each."""
    folder = (WORK / "tiny").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number, sentence in enumerate(numbered_sentences(_TINY)):
        (folder / f"{number:05d}.txt").write_text(f"{sentence}\n", encoding="utf-8")
    return folder


def large_file(path: Path, size: int) -> Path:
    """A file of lines of 25 sentences, compressed if its name says so."""
    sentences = every_sentence()
    lines = [" ".join(sentences[at : at + 25]) for at in range(0, len(sentences), 25)]
    written = turn = 0
    with gzip.open(path, "wb", 1) if path.suffix == ".gz" else path.open("wb") as file:
        while written < size:
            block = "".join(f"{turn}. {line}\n" for line in lines).encode()
            written, turn = written + len(block), turn + 1
            file.write(block)
    return path.absolute()
