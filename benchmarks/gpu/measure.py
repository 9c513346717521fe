"""One side on the device of this machine: `python measure.py peak|ours|torch FOLDER --seconds 5`.

It needs the packages of requirements.txt here and a FOLDER that export.py wrote, nothing else of
the repository. Prints a JSON line: tokens a second by model and length, or TFLOP/s of large
products; `ours` and `torch` leave the vectors of one fixed batch in FOLDER, to be compared.

Both encoders work as a pipeline would have them: ids go to the device, vectors come back, and while
a batch is computed the next ones wait there and the last ones are fetched.
"""

import argparse
import collections
import importlib.metadata
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

_UNDER_WAY = 3
_WARM = 4  # batches
_CHAIN = 16  # products in a row, so that starting them does not count

Batch = tuple[np.ndarray, np.ndarray, np.ndarray]  # int32 [rows, length]: ids, mask, types


def main() -> None:
    """Measures one side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("side", choices=("peak", "ours", "torch"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--size", type=int, default=8192, help="of the products of `peak`")
    args = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if args.side == "peak":
        print(json.dumps(peak(args.size, args.seconds)))
        return
    side = Ours if args.side == "ours" else Torch
    rates = {}
    for folder in sorted(path.parent for path in args.folder.glob("*/model.json")):
        about = json.loads((folder / "model.json").read_text(encoding="utf-8"))
        encoder = side(folder, about)
        for length, rows in about["rows"].items():
            batches = batches_of(rows, int(length), about["vocabulary"])
            call = encoder.call(int(length))
            fixed = encoder.fetch(call(next(batches)))
            np.save(folder / f"{args.side}-{length}.npy", fixed)
            calls = called(call, encoder.fetch, batches, args.seconds)
            rates[f"{folder.name} {length}"] = calls * rows * int(length)
    print(json.dumps(rates | {"device": encoder.device, "versions": versions(side.packages)}))


def versions(packages: tuple[str, ...]) -> dict[str, str]:
    """Returns the versions of some packages."""
    return {name: importlib.metadata.version(name) for name in packages}


def batches_of(rows: int, length: int, vocabulary: int) -> Iterator[Batch]:
    """Yields batches without filling, the same ones in every process."""
    random = np.random.default_rng(length)
    ones = np.ones((rows, length), np.int32)
    while True:
        yield random.integers(10, vocabulary, (rows, length)).astype(np.int32), ones, ones * 0


def called(
    call: Callable[[Batch], Any],
    fetch: Callable[[Any], Any],
    batches: Iterator[Batch],
    least: float,
) -> float:
    """Returns calls a second over at least so many seconds, after some to warm up."""
    ready = [next(batches) for _ in range(8)]
    waiting: collections.deque[Any] = collections.deque()
    done, started = -_WARM, time.perf_counter()
    while True:
        waiting.append(call(ready[done % len(ready)]))
        if len(waiting) < _UNDER_WAY:
            continue
        fetch(waiting.popleft())
        done += 1
        if done == 0:
            started = time.perf_counter()
        elif done > 0 and time.perf_counter() - started > least:
            return done / (time.perf_counter() - started)


class Ours:
    """The programs of our graph, compiled and run by XLA through JAX."""

    packages = ("jax", "jaxlib")

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        import jax
        import ml_dtypes
        from jax.extend.backend import get_backend

        self._jax, self._client, self._folder = jax, get_backend(), folder
        self._device = jax.devices()[0]
        self.device = self._device.device_kind
        stored = np.load(folder / "weights.npz")
        arrays = (stored[f"arr_{at}"] for at in range(len(stored.files)))
        self._weights = [
            jax.device_put(array.view(ml_dtypes.bfloat16) if half else array, self._device)
            for array, half in zip(arrays, about["bfloat16"], strict=True)
        ]

    def call(self, length: int) -> Callable[[Batch], Any]:
        """Compiles the program of a length, and returns what starts it."""
        # The public ways trace Python only.
        from jax._src.compiler import get_compile_options  # noqa: PLC2701
        from jax.extend.mlir import hlo_to_stablehlo
        from jaxlib import _jax  # noqa: PLC2701

        program = hlo_to_stablehlo((self._folder / f"program-{length}.hlo").read_bytes())
        devices = _jax.DeviceList((self._device,))
        options = get_compile_options(num_replicas=1, num_partitions=1)
        loaded = self._client.compile_and_load(program, devices, options)

        def start(batch: Batch) -> Any:
            put = [self._jax.device_put(each, self._device) for each in batch]
            results = loaded.execute_sharded([*put, *self._weights])
            return results.disassemble_into_single_device_arrays()[0][0]

        return start

    @staticmethod
    def fetch(vectors: Any) -> np.ndarray:
        """float32 `[rows, hidden]`."""
        return np.asarray(vectors)


class Torch:
    """sentence-transformers' modules in bfloat16, attention by torch's fused SDPA."""

    packages = ("torch", "transformers", "sentence-transformers")

    def __init__(self, folder: Path, about: dict[str, Any]) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        self._torch = torch
        gpu = torch.cuda.is_available()
        self.device = torch.cuda.get_device_name() if gpu else "cpu"
        self._place = "cuda" if gpu else "cpu"
        half = {"attn_implementation": "sdpa", "dtype": torch.bfloat16}
        source = str(folder / "huggingface")
        self._model = SentenceTransformer(source, device=self._place, model_kwargs=half).eval()

    def call(self, length: int) -> Callable[[Batch], Any]:
        """Returns what starts a batch; any length will do."""
        torch = self._torch
        names = ("input_ids", "attention_mask", "token_type_ids")

        def start(batch: Batch) -> Any:
            with torch.inference_mode():
                put = [torch.from_numpy(each).to(self._place, torch.int64) for each in batch]
                return self._model(dict(zip(names, put, strict=True)))["sentence_embedding"]

        return start

    @staticmethod
    def fetch(vectors: Any) -> np.ndarray:
        """float32 `[rows, hidden]`."""
        return vectors.float().cpu().numpy()


def peak(size: int, least: float) -> dict[str, float]:
    """Returns TFLOP/s of square bfloat16 products, the best of the seconds given."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def chain(x: Any, y: Any) -> Any:
        for _ in range(_CHAIN):
            x = x @ y
        return x

    x, y = (jnp.full((size, size), 1 / size, jnp.bfloat16) for _ in range(2))
    chain(x, y).block_until_ready()
    best, started = float("inf"), time.perf_counter()
    while time.perf_counter() - started < least:
        begun = time.perf_counter()
        chain(x, y).block_until_ready()
        best = min(best, time.perf_counter() - begun)
    return {"tflops": _CHAIN * 2 * size**3 / best / 1e12}


if __name__ == "__main__":
    main()
