"""What the compilers of TPUs and NVIDIA GPUs say of our programs, on a machine without either.

    python -m benchmarks.compiled              # compare the programs of every run with the table
    python -m benchmarks.compiled --all        # all programs, as every night
    python -m benchmarks.compiled --all --keep # and keep the figures

Needs the packages of `make test-accelerators`. Nothing runs: milliseconds are the TPU compiler's
estimate, a roofline without what transfers and launches take; the GPU compiler gives none. Compare
them with each other, not with a clock.
"""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding

from bert_embed.backends.batches import Shape
from bert_embed.backends.host import Wanted
from bert_embed.backends.jax.packing import PackedRows, most_texts
from bert_embed.backends.jax.program import program
from bert_embed.models.bert import BertConfig
from bert_embed.models.encoder import EncoderConfig, tensor_shapes
from bert_embed.models.heads.head import Head
from bert_embed.models.modern_bert import ModernBertConfig
from bert_embed.models.nomic_bert import NomicBertConfig
from bert_embed.settings import OutputSpec, VectorSpec

# How libtpu behaves where there is no chip.
_WITHOUT_CHIP = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # else a lock file refuses a second process
    "TPU_SKIP_MDS_QUERY": "1",  # nobody answers outside Google Cloud
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_STDERR_LOG_LEVEL": "3",
    "TPU_MIN_LOG_LEVEL": "3",
}
RESULTS = Path(__file__).with_name("results") / "compiled.json"
_WORSE = 1.1  # times the kept figure, at which a comparison fails
# bfloat16 operations a second of one chip, as published.
PEAKS = {"v5e": 197e12, "v6e": 918e12}
_TOPOLOGIES = {"v5e": "v5e:2x2", "v6e": "v6e:2x2"}
# What the compiler asks of a GPU, by the maker's data sheets: compute capability, processors, units
# of each, GHz, bytes a second and of memory, of the second cache, of shared memory and threads.
_GPUS = {
    "h100": (9, 0, 132, 128, 1.98, 3352320000000, 84929347584, 52428800, 233472, 232448, 2048),
    "l4": (8, 9, 58, 128, 2.04, 300096000000, 23580639232, 50331648, 102400, 101376, 1536),
}
TARGETS = (*_TOPOLOGIES, *_GPUS)
MODELS: dict[str, EncoderConfig] = {
    "MiniLM": BertConfig(30522, 384, 6, 12, 1536, 512),
    "bert-base": BertConfig(30522, 768, 12, 12, 3072, 512),
    "Nomic": NomicBertConfig(30528, 768, 12, 12, 3072, 2048, "silu"),
    "ModernBERT": ModernBertConfig(
        50368, 768, 22, 12, 1152, 8192, type_vocab_size=0, full_attention=tuple(range(0, 22, 3))
    ),
}
_TOKENS = 16384  # of a batch, as the engine has them


@dataclass(frozen=True)
class Case:
    """A program to compile."""

    model: str
    target: str
    precision: str
    shape: Shape

    @property
    def name(self) -> str:
        """How the table names it."""
        rows = " x ".join(map(str, self.shape))
        return f"{self.model}, {rows}, {self.precision}, {self.target}"


def cases(everything: bool) -> Iterator[Case]:
    """Yields the programs of every run, or all."""
    short, *others = PackedRows(_TOKENS, 512).shapes
    for target in TARGETS:
        yield Case("MiniLM", target, "bfloat16", short)
        for model in MODELS if everything else ():
            shapes = [short, *others] if model == "MiniLM" else [short]
            for precision in ("bfloat16", "float32"):
                for shape in shapes:
                    case = Case(model, target, precision, shape)
                    if case != Case("MiniLM", target, "bfloat16", short):
                        yield case


@cache
def chip(target: str) -> Any:
    """Returns a device that is not there, to compile for."""
    os.environ |= _WITHOUT_CHIP | dict(os.environ)
    jax.config.update("jax_platforms", "cpu")
    if target in _TOPOLOGIES:
        found = topologies.get_topology_desc(platform="tpu", topology_name=_TOPOLOGIES[target])
    else:
        config = _gpu_config(*_GPUS[target])
        found = topologies.get_topology_desc(
            platform="cuda", target_config=config, topology="1x1x1"
        )
    return found.devices[0]


def _gpu_config(
    major: int,
    minor: int,
    processors: int,
    units: int,
    clock: float,
    rate: int,
    memory: int,
    cache_bytes: int,
    shared: int,
    shared_of_block: int,
    threads: int,
) -> str:
    return f"""
gpu_device_info {{
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  core_count: {processors} fpus_per_core: {units} clock_rate_ghz: {clock}
  memory_bandwidth: {rate} device_memory_size: {memory} l2_cache_size: {cache_bytes}
  shared_memory_per_core: {shared} shared_memory_per_block_optin: {shared_of_block}
  shared_memory_per_block: 49152 threads_per_block_limit: 1024 threads_per_warp: 32
  threads_per_core_limit: {threads} registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 }}
runtime_version {{ major: 13 minor: 0 patch: 0 }}
"""


def compiled(
    wanted: Wanted, target: str, precision: str, shape: Shape, heads: Mapping[str, Head]
) -> Any:
    """Compiles a program for a chip; returns JAX's executable."""
    place = SingleDeviceSharding(chip(target))

    def of(shape: tuple[int, ...], dtype: Any = np.int32) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=place)

    config = wanted.config
    shapes = tensor_shapes(config, pooler=wanted.spec.pooling == "pooler")
    for head in heads.values():
        shapes |= head.shapes(config)
    arrays = {name: of(size, np.float32) for name, size in shapes.items()}
    tables = {name: np.zeros(size, np.float32) for name, size in shapes.items()}
    arrays |= {name: of(table.shape, np.float32) for name, table in config.tables(tables).items()}
    dtype = jnp.dtype(precision)
    weights = {
        name: of(array.shape, dtype) if name.endswith(("/kernel", "/bias")) else array
        for name, array in arrays.items()
    }
    rows, texts = of(shape), of((shape[0], most_texts(shape[1])))
    function = jax.jit(partial(program, wanted, heads, ()))
    lowered = function.lower(weights, rows, rows, None, texts)
    return lowered.compile()


def figures(executable: Any, target: str) -> dict[str, float]:
    """What the compiler says of a program."""
    found = executable.runtime_executable()
    memory = found.get_compiled_memory_stats()
    said = {"temporary MB": round(memory.temp_size_in_bytes / 1e6, 1)}
    text = found.hlo_modules()[0].to_string()
    entry = text[text.index("\nENTRY ") :].split("\n}")[0]
    if target in _GPUS:
        kernels = re.findall(r"= .* (?:fusion|custom-call|reduce|scatter|sort)\(", entry)
        return said | {"kernels": len(kernels)}
    cost = executable.cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    # Each custom call counts as -1 second.
    seconds = cost["optimal_seconds"] + len(re.findall(r" custom-call\(", entry))
    return said | {
        "TFLOP": round(cost["flops"] / 1e12, 4),
        "milliseconds": round(1000 * seconds, 3),
        "share of peak": round(cost["flops"] / seconds / PEAKS[target], 4),
    }


def measured(case: Case) -> dict[str, float]:
    """Compiles a case; returns its figures."""
    wanted = Wanted(MODELS[case.model], (101, 102), VectorSpec(), OutputSpec())
    started = time.perf_counter()
    executable = compiled(wanted, case.target, case.precision, case.shape, {})
    print(f"{case.name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return figures(executable, case.target)


def worse(kept: Mapping[str, float], now: Mapping[str, float]) -> list[str]:
    """Says which figures are worse by a tenth."""
    return [
        f"{name} {kept[name]:g} -> {value:g}"
        for name, value in now.items()
        if name in ("milliseconds", "temporary MB", "kernels")
        and name in kept
        and value > _WORSE * kept[name]
    ]


def main() -> None:
    """Compiles, prints, and compares with the table or keeps it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="all programs, not those of every run")
    parser.add_argument("--keep", action="store_true", help="keep the figures in results/")
    arguments = parser.parse_args()
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    problems = []
    for case in cases(arguments.all):
        now = measured(case)
        print(case.name, json.dumps(now), flush=True)
        problems += [f"{case.name}: {one}" for one in worse(kept.get(case.name, {}), now)]
        if arguments.keep:
            kept[case.name] = now
            RESULTS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    if problems and not arguments.keep:
        sys.exit("worse than the table:\n" + "\n".join(problems))


if __name__ == "__main__":
    main()
