"""From a text file to vectors: ours, Beam's two ways, sentence-transformers' `encode`.

`python -m benchmarks.end_to_end [--texts sentences|passages] [--count 8000] [--rounds 3]`. Same
texts, weights and cores; every side is a process of its own, from the text file to Parquet. Ours
has its defaults, the others also the batch sizes that suit them. Start-up (imports, the model, the
first batches) is on no side: each runs on the first `--small` texts too, and what that took is
taken off the seconds and the texts. The side that pads to 128 has a quarter of the sentences, and
no passages. Our pipeline runs with a model that costs nothing, too: what it takes beside the
encoder.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from benchmarks import growth, measure
from benchmarks.corpus import FOLDER, TEXTS, numbered, write_lines
from benchmarks.peers import minilm_folder, peer_environment, peer_python

OURS = {"float32": "ours", "int8": "ours, int8"}
BEAM, ENCODE = "Beam MLTransform", "sentence-transformers encode"
PADDED = "Beam RunInference, padded to 128"
_PEERS = {
    BEAM: ("mltransform",),
    f"{BEAM}, batches of 1,024": ("mltransform", "--batch=1024"),
    PADDED: ("beam_rows",),
    ENCODE: ("encode_kinds", "dense"),
    f"{ENCODE}, batches of 8": ("encode_kinds", "dense", "--batch=8"),
    f"{ENCODE}, batches of 128": ("encode_kinds", "dense", "--batch=128"),
}
_SLOW = 4  # so many times fewer sentences for the padded side: it is that much slower
_NULL_ROWS = {"sentences": (200_000, 1000), "passages": (20_000, 1000)}
_NULL = "ours, without a model"
_WORK = FOLDER / "end_to_end"

Side = Callable[[], measure.Spent]


def main() -> None:
    """Measures all sides in turn and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", choices=[*TEXTS], default="sentences")
    parser.add_argument("--count", type=int, default=8000)
    parser.add_argument("--small", type=int, default=256, help="texts of the start-up run")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    ours = [*OURS.values()]
    texts = {name: text_file(args.texts, args.count) for name in (*ours, *_PEERS)}
    texts[PADDED] = text_file(args.texts, args.count // _SLOW)
    if args.texts != "sentences":
        del texts[PADDED]  # it would cut them
    sides = every_side(texts, text_file(args.texts, args.small), embed)
    sides |= null_sides(args.texts, texts[ours[0]])
    spent = measure.in_turn(sides, args.rounds)
    results = {
        name: figures(spent[name], spent[startup(name)], int(text.stem) - args.small)
        for name, text in texts.items()
    }
    whole, small = _NULL_ROWS[args.texts]
    null = null_cpu(spent, whole - small)
    for name, result in results.items():
        result["ours_is"] = {
            each: round(results[each]["sentences_per_second"] / result["sentences_per_second"], 3)
            for each in ours
        }
        if name in ours:
            result["overhead"] = round(null / (result["cpu_seconds_per_1000"] - null), 4)
    run_json = output_of(ours[0], texts[ours[0]]) / "run.json"
    record = {
        "benchmark": "end_to_end" + ("_passages" if args.texts == "passages" else ""),
        "data": f"{args.count} {args.texts} of docstrings, {args.small} of them as start-up",
        "rounds": args.rounds,
        "smallest_cosine": agreement(texts, ours[0]),
        "our_padding": json.loads(run_json.read_text(encoding="utf-8"))["padding_share"],
        "null_model_cpu_seconds_per_1000": null,
        "results": results,
    }
    print(f"our padding: {record['our_padding']:.2%}; smallest cosine with {ours[0]}:")
    print(record["smallest_cosine"])
    header = ["side", f"{args.texts}/s", "spread", "CPU s per 1,000", "beside the encoder"]
    header += ["start-up s", "peak MiB", *(f"{name} is" for name in ours)]
    measure.report(record, header, [_row(name, result) for name, result in results.items()])


def every_side(
    texts: dict[str, Path], small: Path, run: Callable[[str, Path], measure.Spent]
) -> dict[str, Side]:
    """Returns what is run in a round: each side twice, on its texts and on few."""
    sides: dict[str, Side] = {}
    for name, text in texts.items():
        sides[name] = partial(run, name, text)
        sides[startup(name)] = partial(run, name, small)
    return sides


def null_sides(kind: str, text: Path) -> dict[str, Side]:
    """Returns our pipeline without a model, on many texts and on few.

    Args:
        kind: One of `TEXTS`.
        text: The file of what the other sides embed; its texts are repeated with a number.
    """
    texts = text.read_text(encoding="utf-8").splitlines()
    sides: dict[str, Side] = {}
    for name, count in zip((_NULL, startup(_NULL)), _NULL_ROWS[kind], strict=True):
        file = write_lines(text.parent / f"null/{count}.txt", numbered(texts, count))
        sides[name] = partial(growth.embed, file)
    return sides


def null_cpu(spent: dict[str, list[measure.Spent]], count: int) -> float:
    """Returns the CPU seconds of our pipeline for 1,000 of `count` texts, without a model."""
    pairs = zip(spent[_NULL], spent[startup(_NULL)], strict=True)
    seconds = measure.Figure.of([(whole - start).cpu for whole, start in pairs]).median
    return 1000 * seconds / count


def startup(name: str) -> str:
    """Returns the name of a side's run on few texts."""
    return f"{name}, start-up"


def _row(name: str, result: dict) -> list[str]:
    return [
        name,
        f"{result['sentences_per_second']:.0f}",
        f"{result['spread']:.2f}",
        f"{result['cpu_seconds_per_1000']:.2f}",
        f"{result['overhead']:.2%}" if "overhead" in result else "",
        f"{result['startup_seconds']:.1f}",
        f"{result['peak_mib']}",
        *(f"{ratio:.2f} x" for ratio in result["ours_is"].values()),
    ]


def text_file(texts: str, count: int) -> Path:
    """Returns the file of the first `count` texts of a corpus, one a line."""
    return write_lines(_WORK / texts / f"{count}.txt", TEXTS[texts](count)).absolute()


def embed(
    name: str,
    text: Path,
    folder: Path | None = None,
    peers: Mapping[str, tuple[str, ...]] = _PEERS,
    options: tuple[str, ...] = (),
) -> measure.Spent:
    """Embeds a file with one side into a fresh output and returns what the process took.

    Args:
        name: Of the side.
        text: The file.
        folder: Of the model; None is MiniLM, as each side has it.
        peers: The module of each side that is not ours, and its flags.
        options: More flags of ours.
    """
    output = output_of(name, text)
    shutil.rmtree(output, ignore_errors=True)
    flags: list[object] = ["--input", text, "--output"]
    for precision, ours in OURS.items():
        if name == ours:
            flags += [output, f"--model={folder or 'minilm'}", "--runner=FnApiRunner", *options]
            if precision != "float32":
                flags.append(f"--precision={precision}")
            return measure.run([sys.executable, "-m", "bert_embed", "embed", *flags])
    output.mkdir(parents=True)
    own = name == PADDED  # TensorFlow is not in the environment of the peers
    module, *more = peers[name]
    command = [sys.executable if own else peer_python(), "-m", f"benchmarks.sides.{module}", *more]
    flags.append(output / "vectors")
    if own:
        return measure.run([*command, *flags])
    return measure.run([*command, *flags, "--model", folder or minilm_folder()], peer_environment())


def output_of(name: str, text: Path) -> Path:
    """Returns the folder that a side writes to."""
    return (text.parent / f"{name.replace(' ', '_')}-{text.stem}").absolute()


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


def agreement(texts: dict[str, Path], reference: str) -> dict[str, float]:
    """Returns the smallest cosine of each side's vectors with the reference's, by sentence.

    Raises:
        RuntimeError: A side did not write every sentence.
    """
    expected = _vectors(reference, texts[reference])
    smallest = {}
    for name, text in texts.items():
        if name == reference:
            continue
        lines = text.read_text(encoding="utf-8").splitlines()
        theirs = _vectors(name, text)
        if theirs.keys() != set(lines):
            raise RuntimeError(f"{name} wrote {len(theirs)} of {len(lines)} sentences")
        cosines = [_cosine(theirs[line], expected[line]) for line in lines]
        smallest[name] = round(min(cosines), 6)
    return smallest


def _vectors(name: str, text: Path) -> dict[str, np.ndarray]:
    if name in OURS.values():
        import bert_embed

        lines = text.read_text(encoding="utf-8").splitlines()
        return dict(zip(lines, bert_embed.read(output_of(name, text))[1], strict=True))
    table = pq.read_table(output_of(name, text))
    flat = table.column(1).combine_chunks().flatten().to_numpy()
    return dict(zip(table.column(0).to_pylist(), flat.reshape(len(table), -1), strict=True))


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


if __name__ == "__main__":
    main()
