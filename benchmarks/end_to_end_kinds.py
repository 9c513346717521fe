"""From a text file to sparse vectors, multi-vectors and scores.

`python -m benchmarks.end_to_end_kinds [--texts sentences,passages] [--kinds sparse,multi,scores]
[--rounds 3]`: as `benchmarks.end_to_end`, ours in float32 beside SparseEncoder and
MultiVectorEncoder of sentence-transformers and the text-classification pipeline of transformers.
Each runs with several sizes of batch, and the fastest counts. The models are all-MiniLM-L6-v2 with
random heads (`benchmarks.sides.kinds_models`). Ours then runs once with each other number type, for
the bytes on disk.
"""

import argparse
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks import measure
from benchmarks.corpus import FOLDER, TEXTS, write_lines
from benchmarks.end_to_end import OURS, embed, every_side, figures, output_of, startup
from benchmarks.peers import minilm_folder, peer_environment, peer_python, peer_versions

_PEERS = {
    "sparse": "SparseEncoder",
    "multi": "MultiVectorEncoder",
    "scores": "transformers pipeline",
}
_BATCHES = (8, 32, 128)
_COUNTS = {"sentences": (2000, 64), "passages": (300, 20)}  # and those of the start-up run
# Other ways to store the vectors, with their flags; float32 is how they are measured.
_STORED = {
    "sparse": {"float32, --top_k 128": "--top_k=128"},
    "multi": {"float16": "--output_dtype=float16", "int8": "--output_dtype=int8"},
    "scores": {},
}
_LISTS = {"sparse": "indices", "multi": "embedding"}  # the columns with lists
_OURS = OURS["float32"]
_HEADER = ("texts", "kind", "side", "texts/s", "spread", "CPU s per 1,000", "start-up s")


def main() -> None:
    """Measures each kind in turn and prints the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", default=",".join(TEXTS))
    parser.add_argument("--kinds", default=",".join(_PEERS))
    parser.add_argument("--count", type=int, help="of texts, in the place of each number")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    results: dict[str, dict] = {}
    table = []
    for texts in args.texts.split(","):
        usual, small = _COUNTS[texts]
        count = args.count or usual
        models = _models(texts)
        for kind in args.kinds.split(","):
            result = _measured(texts, kind, (count, small), models / kind, args.rounds)
            results[f"{texts}, {kind}"] = result
            table += [[texts, kind, *row] for row in _rows(result)]
    record = {
        "benchmark": "end_to_end_kinds",
        "data": "texts of docstrings; all-MiniLM-L6-v2 with random heads",
        "rounds": args.rounds,
        "results": results,
        "peers": peer_versions("sentence-transformers", "transformers", "torch"),
    }
    header = [*_HEADER, "peak MiB", "tokens or entries", "bytes a text", "largest difference"]
    measure.report(record, [*header, "ours is", f"texts/s in batches of {_BATCHES}"], table)


def _models(texts: str) -> Path:
    """Writes the models, whose sparse one suits the length of these texts; returns the folder."""
    work = FOLDER / "end_to_end_kinds" / texts
    sample = write_lines(work / "sample.txt", TEXTS[texts](32)).absolute()
    folder = (work / "models").absolute()
    shutil.rmtree(folder, ignore_errors=True)
    command = [peer_python(), "-m", "benchmarks.sides.kinds_models", "--input", sample]
    command += ["--output", folder, "--model", minilm_folder()]
    measure.run(command, peer_environment())
    return folder


def _measured(
    texts: str, kind: str, counts: tuple[int, int], model: Path, rounds: int
) -> dict[str, Any]:
    """Returns the figures of each side with one model, and the bytes of each way to store."""
    count, few = counts
    work = FOLDER / "end_to_end_kinds" / texts / kind
    whole, small = (
        write_lines(work / f"{lines}.txt", TEXTS[texts](lines)).absolute()
        for lines in (count + few, few)
    )
    peers = {_side(kind, batch): ("encode_kinds", kind, f"--batch={batch}") for batch in _BATCHES}
    options = (f"--vectors={kind}",)
    run = partial(embed, folder=model, peers=peers, options=options)
    run(_OURS, small)  # imports the model
    spent = measure.in_turn(every_side(dict.fromkeys((_OURS, *peers), whole), small, run), rounds)
    sides = {side: figures(spent[side], spent[startup(side)], count) for side in (_OURS, *peers)}
    ours = pq.read_table(output_of(_OURS, whole) / kind)
    for side in peers:
        ratio = sides[_OURS]["sentences_per_second"] / sides[side]["sentences_per_second"]
        sides[side]["ours_is"] = round(ratio, 3)
        theirs = pq.read_table(output_of(side, whole) / "vectors.parquet")
        if theirs["id"].to_pylist() != whole.read_text(encoding="utf-8").splitlines():
            raise RuntimeError(f"{side} wrote {len(theirs)} of {count + few} texts")
        sides[side]["largest_difference"] = difference(kind, ours, theirs)
    stored = {"float32": _stored(kind, whole)}
    for name, flag in _STORED[kind].items():
        run(_OURS, whole, options=(*options, flag))
        stored[name] = _stored(kind, whole)
    return {"texts": count, "startup_texts": few, "sides": sides, "stored": stored}


def _side(kind: str, batch: int) -> str:
    return f"{_PEERS[kind]}, batches of {batch}"


def _rows(result: dict[str, Any]) -> list[list[str]]:
    """Returns rows for ours, for the peer at its best, and for each other way to store ours."""
    sides, stored = result["sides"], result["stored"]
    rates = {side: one["sentences_per_second"] for side, one in sides.items()}
    peers = [side for side in sides if side != _OURS]
    best = max(peers, key=rates.__getitem__)
    tried = " ".join(f"{rates[side]:.1f}" for side in peers)
    last = {
        _OURS: [*_sizes(stored["float32"]), "", "1.00 x", ""],
        best: [
            *("", "", f"{sides[best]['largest_difference']:.1e}"),
            *(f"{sides[best]['ours_is']:.2f} x", tried),
        ],
    }
    rows = []
    for side, cells in last.items():
        one = sides[side]
        row = [side, f"{rates[side]:.1f}", f"{one['spread']:.2f}"]
        row += [f"{one['cpu_seconds_per_1000']:.1f}", f"{one['startup_seconds']:.1f}"]
        rows.append([*row, str(one["peak_mib"]), *cells])
    for name, sizes in stored.items():
        if name != "float32":
            rows.append([f"{_OURS}, {name}", *[""] * 5, *_sizes(sizes), "", "", ""])
    return rows


def _sizes(stored: dict[str, float]) -> list[str]:
    return [f"{stored['tokens_or_entries']:g}", f"{stored['bytes']:,}"]


def _stored(kind: str, text: Path) -> dict[str, float]:
    """Returns the bytes of a text in the files of ours, and its tokens or entries, the median."""
    folder = output_of(_OURS, text) / kind
    size = sum(path.stat().st_size for path in folder.rglob("*.parquet"))
    table = pq.read_table(folder)
    numbers = 1.0
    if kind in _LISTS:
        numbers = float(np.median(pc.list_value_length(table[_LISTS[kind]]).to_numpy()))
    return {"bytes": round(size / len(table)), "tokens_or_entries": numbers}


def difference(kind: str, ours: pa.Table, theirs: pa.Table) -> float:
    """Returns the largest difference of a number of ours from theirs, over all texts.

    Raises:
        RuntimeError: A text has not the same number of multi-vectors on both sides.
    """
    return _DIFFERENCES[kind](ours, theirs)


def _sparse_difference(ours: pa.Table, theirs: pa.Table) -> float:
    """An entry that one side alone has counts with its whole weight."""
    apart = 0.0
    names = ("indices", "values")
    columns = (table[name].to_numpy() for table in (ours, theirs) for name in names)
    for indices, values, their_indices, their_values in zip(*columns, strict=True):
        weights = np.zeros(1 + max((0, *indices, *their_indices)), np.float32)
        weights[indices] = values
        weights[their_indices] -= their_values
        apart = max(apart, float(np.abs(weights).max()))
    return apart


def _multi_difference(ours: pa.Table, theirs: pa.Table) -> float:
    sides = [table["embedding"].combine_chunks() for table in (ours, theirs)]
    if len({tuple(side.value_lengths().to_pylist()) for side in sides}) > 1:
        raise RuntimeError("the sides have not the same number of vectors of each text")
    flat, their_flat = (side.flatten().flatten().to_numpy() for side in sides)
    return float(np.abs(flat - their_flat).max())


def _scores_difference(ours: pa.Table, theirs: pa.Table) -> float:
    labels = theirs.column_names[1:]
    return max(
        float(np.abs(ours[label].to_numpy() - theirs[label].to_numpy()).max()) for label in labels
    )


_DIFFERENCES = {
    "sparse": _sparse_difference,
    "multi": _multi_difference,
    "scores": _scores_difference,
}


if __name__ == "__main__":
    main()
