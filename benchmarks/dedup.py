"""Near-duplicates: our `dedup` against sentence-transformers and faiss, on the same vectors.

They are made by hand: 100 around each centre, a tenth of them nearly repeated; or, if `real`,
MiniLM's of docstring sentences, which then begin anew with numbers in front. Each side is a process
that ends with which rows it removes. A sample of the rows is then compared with all rows. Peers
hold all vectors, so that only ours takes part above 2,000,000.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks import measure
from benchmarks.corpus import FOLDER, numbered_sentences
from benchmarks.peers import faiss_python, peer_environment, peer_python
from tests.support.outputs import whole_record

_WIDTH, _PER_CENTRE, _FILE_ROWS = 384, 100, 80_000
_MOST_COMMUNITIES = 200_000  # rows: community_detection, which compares all pairs, takes hours
_MOST_HELD = 2_000_000  # rows: 3 GB of float32, which peers hold more than once
_ROWS, _SAMPLED = 65_536, 2_000  # rows that are compared at a time, and how many of the sample
_OURS, _DEFAULT = (1, 2, 4), 2  # clusters in which a vector is compared, at most
_PROBES = 4  # the most of them


def dedup(
    name: str,
    vectors: int = 100_000,
    real: bool = False,
    output_dtype: str = "float32",
    threshold: float = 0.95,
    sample: int = 10_000,
    rounds: int = 1,
) -> None:
    """Measures the sides in turn, and holds what each removes against all pairs of a sample."""
    kind = "real" if real else "made"
    source = FOLDER / f"dedup-{kind}-{vectors}-{output_dtype}"
    if not (source / "run.json").exists():
        shutil.rmtree(source, ignore_errors=True)
        measure.apart(_embed if real else _make, source, vectors, output_dtype)
    results = FOLDER / f"{source.name}-results"
    results.mkdir(exist_ok=True)
    if vectors <= _MOST_HELD:
        measure.apart(_hold, source, vectors, results / "vectors.npy")
    spent = measure.in_turn(_sides(source, results, threshold, vectors), rounds)
    near = measure.apart(_near, source, vectors, sample, threshold)
    facts = {
        side: _quality(np.load(results / f"{side}.npy"), *near) | measure.summary(runs)
        for side, runs in spent.items()
    }
    record = {
        "benchmark": name,
        "data": f"{vectors:,} {output_dtype} vectors of {_WIDTH} numbers, {kind}; pairs of "
        f"{sample:,} of them with all",
        "threshold": threshold,
        "pairs": len(near[0]),
    }
    columns = {
        "side": "{name}",
        "s": "{wall_s:.0f}",
        "CPU s": "{cpu_s:.0f}",
        "peak MiB": "{peak_mib:.0f}",
        "removed": "{removed:,.0f}",
        "pairs resolved": "{resolved:.3%}",
        "removed in vain": "{in_vain:.3%}",
    }
    measure.report(record, columns, facts)


def _embed(source: Path, count: int, dtype: str) -> None:
    texts = FOLDER / f"numbered-{count}.txt"
    texts.write_text("\n".join(numbered_sentences(count)), encoding="utf-8")
    flags = [f"--input={texts}", f"--output={source}", "--precision=int8"]
    command = [sys.executable, "-m", "bert_embed", "embed", *flags, f"--output_dtype={dtype}"]
    subprocess.run(command, check=True)


def _make(source: Path, count: int, dtype: str) -> None:
    """Writes vectors as the output of a run; a vector repeats one of its file or an earlier one."""
    shape = (max(count // _PER_CENTRE, 1), _WIDTH)
    centres = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    (source / "embeddings").mkdir(parents=True)
    size, starts = 0, range(0, count, _FILE_ROWS)
    for number, start in enumerate(starts):
        vectors = _around(centres, number, min(_FILE_ROWS, count - start))
        chance = np.random.default_rng([2, number])
        repeated = _around(centres, int(chance.integers(0, number + 1)), len(vectors))
        target, origin = chance.integers(0, len(vectors), (2, len(vectors) // 10))
        noise = chance.standard_normal((len(target), _WIDTH), dtype=np.float32)
        vectors[target] = repeated[origin] + 0.05 * noise
        values = pa.array(vectors.ravel().astype(dtype))
        columns = {
            "id": pa.array([str(row) for row in range(start, start + len(vectors))]),
            "embedding": pa.FixedSizeListArray.from_arrays(values, _WIDTH),
        }
        path = source / "embeddings" / f"part-{number:07d}-00000.parquet"
        pq.write_table(pa.table(columns), path, use_dictionary=False, write_page_checksum=True)
        size += path.stat().st_size
    written = {"embeddings": {"files": len(starts), "bytes": size, "rows": count}}
    vectors = {"shape": [_WIDTH], "output_dtype": dtype}
    record = whole_record(vectors, count, run=source.name, written=written)
    (source / "run.json").write_text(json.dumps(record), encoding="utf-8")


def _around(centres: np.ndarray, number: int, rows: int) -> np.ndarray:
    """The vectors of a file before some of them repeat others."""
    chance = np.random.default_rng([1, number])
    vectors = centres[chance.integers(0, len(centres), rows)]
    vectors += 0.6 * chance.standard_normal(vectors.shape, dtype=np.float32)
    return vectors


def _hold(source: Path, count: int, path: Path) -> None:
    """Writes all vectors as peers take them, float32 `[count, width]` of unit length."""
    held = np.lib.format.open_memmap(path, "w+", np.float32, (count, _WIDTH))
    for start, vectors in _unit_vectors(source):
        held[start : start + len(vectors)] = vectors


def _unit_vectors(source: Path) -> Iterator[tuple[int, np.ndarray]]:
    """Yields the number of a row, and float32 `[some, width]` from there on."""
    files, start = ds.dataset(sorted((source / "embeddings").glob("*.parquet"))), 0
    for batch in files.to_batches(columns=["embedding"], batch_size=_ROWS):
        numbers = batch["embedding"].flatten().to_numpy(zero_copy_only=False)
        vectors = numbers.reshape(-1, _WIDTH).astype(np.float32)
        yield start, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        start += len(vectors)


def _sides(
    source: Path, results: Path, threshold: float, count: int
) -> dict[str, Callable[[], measure.Spent]]:
    def ours(n_nearest: int) -> measure.Spent:
        output = results / "ours"
        shutil.rmtree(output, ignore_errors=True)
        command = [sys.executable, "-m", "bert_embed", "dedup", source, output]
        spent = measure.run([*command, f"--threshold={threshold}", f"--n_nearest={n_nearest}"])
        measure.apart(_save_removed, output, results / f"ours, {n_nearest} nearest.npy")
        return spent

    def peer(name: str, python: Path, side: str, *flags: str) -> measure.Spent:
        words = [f"--vectors={results / 'vectors.npy'}", f"--output={results / name}.npy"]
        command = [python, "-m", "benchmarks.sides.duplicates", side, *words, *flags]
        return measure.run([*command, f"--threshold={threshold}"], peer_environment())

    held = count <= _MOST_HELD
    sides: dict[str, Callable[[], measure.Spent]] = {
        f"ours, {nearest} nearest": partial(ours, nearest)
        for nearest in (_OURS if held else (_DEFAULT,))
    }
    if held:
        name = f"faiss IVF, {_PROBES} probes"
        sides[name] = partial(peer, name, faiss_python(), "faiss", f"--probes={_PROBES}")
    if count <= _MOST_COMMUNITIES:
        name = "community_detection"
        sides[name] = partial(peer, name, peer_python(), "communities")
    return sides


def _save_removed(output: Path, path: Path) -> None:
    """Writes bool `[rows]`, in the input's order."""
    clusters, duplicates = (
        ds.dataset(sorted(output.glob(f"{kind}/*.parquet"))).to_table(["id"])["id"]
        for kind in ("clusters", "duplicates")
    )
    np.save(path, pc.is_in(clusters, value_set=duplicates.combine_chunks()).to_numpy())


def _near(source: Path, count: int, sample: int, threshold: float) -> tuple[np.ndarray, np.ndarray]:
    """Every pair of a row of the sample and another row, int64 `[pairs]` each, by all products."""
    chosen = np.sort(np.random.default_rng(1).permutation(count)[:sample])
    held = np.empty((len(chosen), _WIDTH), np.float32)
    for start, vectors in _unit_vectors(source):
        here = slice(*np.searchsorted(chosen, (start, start + len(vectors))))
        held[here] = vectors[chosen[here] - start]
    left, right = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for start, vectors in _unit_vectors(source):
        for at in range(0, len(chosen), _SAMPLED):
            some, other = np.nonzero(held[at : at + _SAMPLED] @ vectors.T >= threshold)
            apart = chosen[at + some] != start + other
            left.append(chosen[at + some[apart]])
            right.append(start + other[apart])
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
