"""Growth: time and memory over ever more documents, and over inputs of odd shapes.

`python -m benchmarks.growth [CASE ...] [--dim 64] [--rounds 3]`, all cases by default; the largest
needs 10 GB of disk and some minutes. The whole pipeline runs with the model that costs nothing, in
one process on one core; vectors are short, so that the outputs stay small. What is found is kept in
docs/growth.json, from which `benchmarks.growth_plots` draws docs/growth.md. Each case runs in turn,
`--rounds` times, but those of more than a million documents once.
"""

import argparse
import gzip
import json
import os
import shutil
import statistics
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from benchmarks import measure
from benchmarks.corpus import every_sentence, numbered_sentences, write_lines
from benchmarks.null_model import WORK, line_file, profile

RESULTS = Path("docs/growth.json")
_SMALL = 1000  # documents of the run that all others are compared with
_SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
_WORDS = 1_000_000
_TINY = 10_000
_BYTES = 5 << 30
_SENTENCES_A_LINE = 25


def main() -> None:
    """Runs the cases and adds what they took to the results."""
    cases = all_cases()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(cases)}")
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    unknown = sorted(set(args.cases) - set(cases))
    if unknown:
        parser.error(f"no case is called {unknown[0]}")
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # the processes inherit it
    found = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"cases": {}}
    for name in args.cases or cases:
        found["cases"][name] = case(name, cases[name], args.dim, args.rounds)
        print(name, json.dumps(found["cases"][name]), flush=True)
        found |= {"machine": measure.machine(), "versions": measure.versions()}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def all_cases() -> dict[str, Callable[[], Path]]:
    """The cases by name: each makes its input and returns the file or folder."""
    sizes = {f"{size} documents": lambda size=size: line_file(size) for size in (_SMALL, *_SIZES)}
    return sizes | {
        "one document of 1000000 words": long_document,
        "10000 files of one document": tiny_files,
        "one file of 5 GB": large_file,
        "one file of 5 GB, gzip": compressed_file,
    }


def case(name: str, make: Callable[[], Path], dim: int, rounds: int) -> dict[str, object]:
    """Runs one case; an input of gigabytes once, and removes it then."""
    text = make()
    size = sum(f.stat().st_size for f in text.glob("*")) if text.is_dir() else text.stat().st_size
    once = size > 500 << 20
    runs = [profile(text, dim) for _ in range(1 if once else rounds)]
    if once:
        text.unlink()
    seconds = [run["everything"] - run["start-up"] for run in runs]
    return {
        "date": measure.machine()["date"],
        "dim": dim,
        "bytes": size,
        "documents": runs[0]["embedded"],
        "tokens": runs[0]["tokens"],
        "blocks": runs[0]["blocks"],
        "rounds": len(runs),
        "cpu_seconds": round(statistics.median(seconds), 3),
        "spread": round(max(seconds) / min(seconds), 2),
        "startup_cpu_seconds": round(statistics.median(run["start-up"] for run in runs), 2),
        "peak_mib": round(statistics.median(run["peak"] for run in runs) / 2**20, 1),
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


def large_file() -> Path:
    """A file of long lines."""
    path = (WORK / "large.txt").absolute()
    with path.open("wb") as file:
        file.writelines(_long_lines())
    return path


def compressed_file() -> Path:
    """The same, compressed."""
    path = (WORK / "large.txt.gz").absolute()
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.writelines(_long_lines())
    return path


def _long_lines() -> Iterator[bytes]:
    sentences = every_sentence()
    starts = range(0, len(sentences), _SENTENCES_A_LINE)
    lines = [" ".join(sentences[at : at + _SENTENCES_A_LINE]) for at in starts]
    written = turn = 0
    while written < _BYTES:
        block = "".join(f"{turn}. {line}\n" for line in lines).encode()
        written, turn = written + len(block), turn + 1
        yield block


if __name__ == "__main__":
    main()
