"""From a text file to vectors: ours, Beam's MLTransform, sentence-transformers' `encode`.

`python -m benchmarks.end_to_end [--sentences 20000] [--rounds 3]`. Same sentences, weights, length
and cores; every side is a process of its own, from the text file to Parquet. Start-up (imports, the
model, the first batches) is on no side: each runs on the first `--small` sentences too, and what
that took is taken off the seconds and the sentences.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks import measure
from benchmarks.corpus import FOLDER, english_sentences, write_lines
from benchmarks.peers import minilm_folder, peer_environment, peer_python

OURS, BEAM, ENCODE = "ours", "Beam MLTransform", "sentence-transformers encode"
_PEERS = {BEAM: "mltransform", ENCODE: "sentence_transformers_encode"}
_WORK = FOLDER / "end_to_end"


def main() -> None:
    """Measures all sides in turn and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=20_000)
    parser.add_argument("--small", type=int, default=256, help="sentences of the start-up run")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    whole, small = sentence_file(args.sentences), sentence_file(args.small)
    sides: dict[str, Callable[[], measure.Spent]] = {}
    for name in (OURS, *_PEERS):
        sides[name] = partial(embed, name, whole)
        sides[_startup(name)] = partial(embed, name, small)
    spent = measure.in_turn(sides, args.rounds)
    counted = args.sentences - args.small
    results = {
        name: figures(spent[name], spent[_startup(name)], counted) for name in (OURS, *_PEERS)
    }
    best = results[OURS]["sentences_per_second"]
    for result in results.values():
        result["ours_is"] = round(best / result["sentences_per_second"], 3)
    record = {
        "benchmark": "end_to_end",
        "data": f"{args.sentences} docstring sentences, {args.small} of them as start-up",
        "rounds": args.rounds,
        "smallest_cosine": agreement(whole),
        "our_padding": padding(whole),
        "results": results,
    }
    print(
        f"our padding: {record['our_padding']:.2%}; smallest cosine of a peer's vector with ours:"
    )
    print(record["smallest_cosine"])
    header = ["side", "sentences/s", "spread", "CPU s per 1,000", "start-up s", "ours is"]
    measure.report(record, header, [_row(name, result) for name, result in results.items()])


def _startup(name: str) -> str:
    return f"{name}, start-up"


def _row(name: str, result: dict[str, float]) -> list[str]:
    return [
        name,
        f"{result['sentences_per_second']:.0f}",
        f"{result['spread']:.2f}",
        f"{result['cpu_seconds_per_1000']:.2f}",
        f"{result['startup_seconds']:.1f}",
        f"{result['ours_is']:.2f} x",
    ]


def sentence_file(count: int) -> Path:
    """Returns the file of the first `count` sentences of the corpus, one a line."""
    return write_lines(_WORK / f"{count}.txt", english_sentences(count)).absolute()


def embed(name: str, text: Path) -> measure.Spent:
    """Embeds a file with one side into a fresh output and returns what the process took."""
    output = output_of(name, text)
    shutil.rmtree(output, ignore_errors=True)
    flags: list[object] = ["--input", text, "--output"]
    if name == OURS:
        command = [sys.executable, "-m", "pipeline", "embed", *flags, output]
        return measure.run([*command, "--model=minilm", "--runner=FnApiRunner"])
    output.mkdir(parents=True)
    command = [peer_python(), "-m", f"benchmarks.sides.{_PEERS[name]}", *flags, output / "vectors"]
    return measure.run([*command, "--model", minilm_folder()], peer_environment())


def output_of(name: str, text: Path) -> Path:
    """Returns the folder that a side writes to."""
    return (_WORK / f"{name.replace(' ', '_')}-{text.stem}").absolute()


def figures(
    spent: list[measure.Spent], startup: list[measure.Spent], sentences: int
) -> dict[str, float]:
    """Returns the medians of a side over its rounds, start-up taken off rate and CPU time."""
    pairs = [whole - start for whole, start in zip(spent, startup, strict=True)]
    rate = measure.Figure.of([sentences / pair.wall for pair in pairs])
    cpu = measure.Figure.of([1000 * pair.cpu / sentences for pair in pairs])
    return {
        "sentences_per_second": round(rate.median, 1),
        "spread": round(rate.spread, 3),
        "cpu_seconds_per_1000": round(cpu.median, 3),
        "startup_seconds": round(measure.Figure.of([start.wall for start in startup]).median, 2),
        "peak_mib": round(measure.Figure.of([whole.peak for whole in spent]).median / 2**20),
    }


def padding(text: Path) -> float:
    """Returns which share of the tokens that our run computed was filling."""
    record = json.loads((output_of(OURS, text) / "run.json").read_text(encoding="utf-8"))
    return record["padding_share"]


def agreement(text: Path) -> dict[str, float]:
    """Returns the smallest cosine of each peer's vectors with ours, sentence by sentence.

    Raises:
        RuntimeError: A side did not write every sentence.
    """
    import bert

    lines = text.read_text(encoding="utf-8").splitlines()
    _, ours = bert.read(output_of(OURS, text))
    smallest = {}
    for name in _PEERS:
        table = pq.read_table(output_of(name, text))
        place = {line: row for row, line in enumerate(table.column(0).to_pylist())}
        if place.keys() != set(lines) or len(ours) != len(lines):
            raise RuntimeError(f"{name} wrote {len(place)} of {len(lines)} sentences")
        flat = table.column(1).combine_chunks().flatten().to_numpy()
        theirs = flat.reshape(len(table), -1)[[place[line] for line in lines]]
        norms = np.linalg.norm(theirs, axis=1) * np.linalg.norm(ours, axis=1)
        smallest[name] = round(float((np.sum(theirs * ours, axis=1) / norms).min()), 6)
    return smallest


if __name__ == "__main__":
    main()
