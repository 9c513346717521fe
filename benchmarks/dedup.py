"""Near-duplicates: our `dedup` against sentence-transformers and faiss, on the same vectors.

`python -m benchmarks.dedup [--vectors 100000] [--real] [--threshold 0.95] [--rounds 1]`. The
vectors are made by hand: 100 around each centre, a tenth of them nearly repeated. With `--real`
they are MiniLM's of docstring sentences, which then begin anew with numbers in front. Each side is
a process that ends with which rows it removes. A sample of the rows is then compared with all rows.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import bert
from benchmarks import measure
from benchmarks.corpus import FOLDER, numbered_sentences
from benchmarks.peers import faiss_python, peer_environment, peer_python

_WIDTH, _PER_CENTRE, _FILE_ROWS = 384, 100, 80_000
_MOST_COMMUNITIES = 200_000  # rows: community_detection, which compares all pairs, takes hours
_BLOCK = 500  # rows of the sample that are compared at a time
_OURS = (1, 2, 4)  # clusters in which a vector is compared, at most
_PROBES = 4  # the most of them


def main() -> None:
    """Measures the sides, prints the table, and the record as a JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--threshold", type=float, default=0.95)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--sample", type=int, default=10_000)
    parser.add_argument("--name", default="dedup", help="under which the result is kept")
    args = parser.parse_args()
    kind = "real" if args.real else "made"
    source = FOLDER / f"dedup-{kind}-{args.vectors}"
    if not (source / "run.json").exists():
        shutil.rmtree(source, ignore_errors=True)
        (_embed if args.real else _make)(source, args.vectors)
    results = FOLDER / f"{source.name}-results"
    results.mkdir(exist_ok=True)
    # Not held while the sides run: what a process holds when it starts another counts as its peak.
    np.save(results / "vectors.npy", _unit(bert.read(source)[1]))
    spent = measure.in_turn(_sides(source, results, args.threshold, args.vectors), args.rounds)
    near = _near(np.load(results / "vectors.npy"), args.sample, args.threshold)
    found, rows = {}, []
    for name, runs in spent.items():
        removed = np.load(results / f"{name}.npy")
        fact = _quality(removed, *near)
        fact["seconds"] = measure.Figure.of([each.wall for each in runs]).median
        fact["cpu_seconds"] = measure.Figure.of([each.cpu for each in runs]).median
        fact["peak_mib"] = max(each.peak for each in runs) / 2**20
        found[name] = {name: round(value, 6) for name, value in fact.items()}
        rows.append([name, *_shown(fact)])
    record = {
        "benchmark": args.name,
        "data": f"{args.vectors:,} vectors of {_WIDTH} numbers, {kind}; pairs of {args.sample:,} "
        "of them with all",
        "threshold": args.threshold,
        "pairs": len(near[0]),
        "results": found,
    }
    header = ["side", "s", "CPU s", "peak MiB", "removed", "pairs resolved", "removed in vain"]
    measure.report(record, header, rows)


def _shown(fact: dict[str, float]) -> list[str]:
    spent = [f"{fact[name]:.0f}" for name in ("seconds", "cpu_seconds", "peak_mib")]
    shares = [f"{fact[name]:.3%}" for name in ("resolved", "in_vain")]
    return [*spent, f"{fact['removed']:,.0f}", *shares]


def _embed(source: Path, count: int) -> None:
    texts = FOLDER / f"numbered-{count}.txt"
    texts.write_text("\n".join(numbered_sentences(count)), encoding="utf-8")
    command = [sys.executable, "-m", "pipeline", "embed", f"--input={texts}", f"--output={source}"]
    subprocess.run([*command, "--precision=int8"], check=True)


def _make(source: Path, count: int) -> None:
    """Writes vectors as the output of a run."""
    generator = np.random.default_rng(0)
    shape = (max(count // _PER_CENTRE, 1), _WIDTH)
    centres = generator.standard_normal(shape, dtype=np.float32)
    vectors = centres[generator.integers(0, len(centres), count)]
    vectors += 0.6 * generator.standard_normal(vectors.shape, dtype=np.float32)
    target, repeated = generator.integers(0, count, (2, count // 10))
    noise = generator.standard_normal((len(target), _WIDTH), dtype=np.float32)
    vectors[target] = vectors[repeated] + 0.05 * noise
    (source / "embeddings").mkdir(parents=True)
    size, files = 0, range(0, count, _FILE_ROWS)
    for number, at in enumerate(files):
        some = vectors[at : at + _FILE_ROWS]
        columns = {
            "id": pa.array([str(row) for row in range(at, at + len(some))]),
            "embedding": pa.FixedSizeListArray.from_arrays(some.ravel(), _WIDTH),
        }
        path = source / "embeddings" / f"part-{number:07d}-00000.parquet"
        pq.write_table(pa.table(columns), path, use_dictionary=False, write_page_checksum=True)
        size += path.stat().st_size
    record = {
        "run": source.name,
        "status": "done",
        "vectors": {"shape": [_WIDTH], "output_dtype": "float32", "granularity": ["sentence"]},
        "written": {"embeddings": {"files": len(files), "bytes": size, "rows": count}},
    }
    (source / "run.json").write_text(json.dumps(record), encoding="utf-8")


def _sides(
    source: Path, results: Path, threshold: float, count: int
) -> dict[str, Callable[[], measure.Spent]]:
    def ours(n_nearest: int) -> measure.Spent:
        output = results / "ours"
        shutil.rmtree(output, ignore_errors=True)
        command = [sys.executable, "-m", "pipeline", "dedup", source, output]
        spent = measure.run([*command, f"--threshold={threshold}", f"--n_nearest={n_nearest}"])
        np.save(results / f"ours, {n_nearest} nearest.npy", _removed(output))
        return spent

    def peer(name: str, module: str, python: Path, *flags: str) -> measure.Spent:
        words = [f"--vectors={results / 'vectors.npy'}", f"--output={results / name}.npy"]
        command = [python, "-m", f"benchmarks.sides.{module}", *words, f"--threshold={threshold}"]
        return measure.run([*command, *flags], peer_environment())

    sides: dict[str, Callable[[], measure.Spent]] = {
        f"ours, {each} nearest": lambda each=each: ours(each) for each in _OURS
    }
    probes = f"--probes={_PROBES}"
    name = f"faiss IVF, {_PROBES} probes"
    sides[name] = lambda: peer(name, "faiss_range", faiss_python(), probes)
    if count <= _MOST_COMMUNITIES:
        other = "community_detection"
        sides[other] = lambda: peer(other, other, peer_python())
    return sides


def _removed(output: Path) -> np.ndarray:
    """bool `[rows]`, in the input's order."""
    clusters = ds.dataset(sorted(output.glob("clusters/*.parquet"))).to_table(["id"])["id"]
    duplicates = ds.dataset(sorted(output.glob("duplicates/*.parquet"))).to_table(["id"])["id"]
    return np.isin(clusters.to_numpy(), duplicates.to_numpy())


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _near(vectors: np.ndarray, sample: int, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of a row of the sample and another row, int64 `[pairs]` each, by all products."""
    chosen = np.random.default_rng(1).permutation(len(vectors))[:sample]
    left, right = [], []
    for at in range(0, len(chosen), _BLOCK):
        rows = chosen[at : at + _BLOCK]
        near, other = np.nonzero(vectors[rows] @ vectors.T >= threshold)
        left.append(rows[near][rows[near] != other])
        right.append(other[rows[near] != other])
    return np.concatenate(left), np.concatenate(right)


def _quality(removed: np.ndarray, left: np.ndarray, right: np.ndarray) -> dict[str, float]:
    """How many are removed; the share of pairs of which one is; that without a kept neighbour."""
    resolved = removed[left] | removed[right]
    sampled = np.unique(left)
    has_kept = np.isin(sampled, left[~removed[right]])
    vain = removed[sampled] & ~has_kept
    return {
        "removed": float(removed.sum()),
        "resolved": float(resolved.mean()) if len(left) else 1.0,
        "in_vain": float(vain.sum() / max(removed[sampled].sum(), 1)),
    }


if __name__ == "__main__":
    main()
