"""What the compilers of TPUs and NVIDIA GPUs say of our programs, on a machine without either.

    python -m benchmarks.compiled              # compare the programs of every run with the table
    python -m benchmarks.compiled --all        # all programs, as every night
    python -m benchmarks.compiled --all --keep # and keep the figures
    python -m benchmarks.compiled --only h100  # those with this in their names

Every run compiles MiniLM for each chip, each family and head for an H100, and of those for other
chips one of ten parts, which the commit names: it is the same whenever that commit is tried again,
and `--part` tries it for another one.

Needs the packages of `make test-accelerators`. Nothing runs: milliseconds and cycles are estimates
of the TPU compiler, a roofline and a sum over all instructions, without what transfers and launches
take; the GPU compiler gives none. Compare them with each other, not with a clock. A share of the
peak counts the operations of the model, not those that a program spends to get them. Programs that
are not in the table yet are printed, and compared with nothing.

"Products alone" have neither norms, softmax nor activations: with them the compiler reaches the
share of the peak to compare ours with, if not a bound, since it orders those of a layer otherwise.
Tokens a second in mixed lengths follow from the programs' milliseconds and how often texts of such
lengths need each of them.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding, SingleDeviceSharding

from bert_embed.backends.host import Wanted
from bert_embed.backends.jax.chips import operations_of_token
from bert_embed.backends.jax.engine import on_all_chips
from bert_embed.backends.jax.kernels import OPTIONS, has_kernels
from bert_embed.backends.jax.packing import PackedRows, most_texts
from bert_embed.backends.jax.program import as_written, joined_products, program, weight_type
from bert_embed.backends.protocol import Shape
from bert_embed.base.errors import counted
from bert_embed.models.bert import BertConfig
from bert_embed.models.encoder import EncoderConfig, tensor_shapes
from bert_embed.models.gated import GteConfig, JinaConfig, NomicBertConfig
from bert_embed.models.heads.head import Head
from bert_embed.models.heads.multi import MultiHead
from bert_embed.models.heads.scores import ScoresHead
from bert_embed.models.heads.sparse import SparseHead
from bert_embed.models.modern_bert import ModernBertConfig
from bert_embed.models.modules import DenseModule
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
_COMPARED = ("milliseconds", "million cycles", "temporary MB", "executable MB", "kernels")
_PARTS = 10  # of the programs that are compiled in turn
_PROCESSES = 2
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
_BERT = (30522, 768, 12, 12, 3072)
MODELS: dict[str, EncoderConfig] = {
    "MiniLM": BertConfig(30522, 384, 6, 12, 1536, 512),
    "bert-base": BertConfig(*_BERT, 512),
    "Nomic": NomicBertConfig(30528, 768, 12, 12, 3072, 2048, "silu"),
    "ModernBERT": ModernBertConfig(
        50368, 768, 22, 12, 1152, 8192, type_vocab_size=0, full_attention=tuple(range(0, 22, 3))
    ),
    "MPNet": BertConfig(30527, *_BERT[1:], 512, type_vocab_size=0, relative_buckets=32),
    "GTE": GteConfig(*_BERT, 8192, type_vocab_size=0),
    "Jina": JinaConfig(*_BERT, 8192),
    "Jina of code": JinaConfig(*_BERT, 8192, qk_norm=True),
}
HEADS: dict[str, Head] = {
    "sparse": SparseHead(),
    "multi": MultiHead(128, (DenseModule(384, 128, "identity", bias=False),)),
    "scores": ScoresHead(("no", "yes")),
}
_TWO_KINDS = "ModernBERT"  # of layers: a token sees all others, or those in a window
_WHOLE = ("bert-base", _TWO_KINDS)  # compiled with all their layers, beside MiniLM
_TOKENS = 16384  # of a batch, as the engine has them
_MEAN, _TEXTS = 40, 20_000  # tokens of a text, and texts of a block, of a mixture of lengths


@dataclass(frozen=True)
class Case:
    """A program to compile: of all layers, or, with less to compile, of some."""

    model: str
    target: str
    precision: str
    shape: Shape
    layers: int = 0
    head: str = ""  # else vectors of texts
    products: bool = False  # only the products of the layers

    @property
    def name(self) -> str:
        """How the table names it."""
        rows = " x ".join(map(str, self.shape))
        layers = f", {counted(self.layers, 'layer')}" if self.layers else ""
        head = f", {self.head} head" if self.head else ""
        products = ", products alone" if self.products else ""
        return f"{self.model}{head}{products}{layers}, {rows}, {self.precision}, {self.target}"

    @property
    def config(self) -> EncoderConfig:
        """Of the layers that are compiled."""
        config = MODELS[self.model]
        if not self.layers:
            return config
        changed: dict[str, Any] = {"num_hidden_layers": self.layers}
        if isinstance(config, ModernBertConfig):
            full = config.full_attention
            changed["full_attention"] = tuple(one for one in full if one < self.layers)
        return replace(config, **changed)

    @property
    def operations(self) -> int:
        """What the layers need of products, by the weights and scores of each token."""
        return math.prod(self.shape) * operations_of_token(self.config, self.shape[1])


def cases(part: int | None) -> Iterator[Case]:
    """Yields the programs of a run of a part, or all; those of GPUs, which take seconds, first."""
    usual, *others = PackedRows(_TOKENS, 512).shapes
    for target in reversed(TARGETS):
        few = 1 if target in PEAKS else 0  # a TPU's compiler takes long
        yield Case("MiniLM", target, "bfloat16", usual, layers=few)
    yield from _families_and_heads("h100", usual)
    elsewhere = (
        case
        for target in reversed(TARGETS)
        if target != "h100"
        for case in _families_and_heads(target, usual)
    )
    for number, case in enumerate(elsewhere):
        if part is None or number % _PARTS == part:
            yield case
    for target in reversed(TARGETS) if part is None else ():
        if target in PEAKS:
            yield Case("MiniLM", target, "bfloat16", usual)
        for model in _WHOLE:
            yield Case(model, target, "bfloat16", usual)
        for model in ("MiniLM", "bert-base") if target in PEAKS else ():
            yield Case(model, target, "bfloat16", usual, layers=2, products=True)
        for shape in others:
            yield Case("MiniLM", target, "bfloat16", shape)
        for shape in (usual, *others):
            yield Case("MiniLM", target, "float32", shape)


def _families_and_heads(target: str, shape: Shape) -> Iterator[Case]:
    for model in MODELS:
        if model != "MiniLM":
            # ModernBERT's first two layers differ in kind.
            few = 1 if target in PEAKS and model != _TWO_KINDS else 2
            yield Case(model, target, "bfloat16", shape, layers=few)
    for head in HEADS:
        yield Case("MiniLM", target, "bfloat16", shape, layers=1, head=head)


def part_of_commit() -> int:
    """Returns the part that the commit of this checkout compiles; 0 where there is none."""
    command = ["git", "rev-parse", "HEAD"]
    try:
        said = subprocess.run(
            command, cwd=RESULTS.parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(said.stdout, 16) % _PARTS


@cache
def chips(target: str) -> list[Any]:
    """Returns devices that are not there, to compile for: of a TPU four, that share a host."""
    os.environ |= _WITHOUT_CHIP | dict(os.environ)
    jax.config.update("jax_platforms", "cpu")
    if target in _TOPOLOGIES:
        found = topologies.get_topology_desc(platform="tpu", topology_name=_TOPOLOGIES[target])
    else:
        config = _gpu_config(*_GPUS[target])
        found = topologies.get_topology_desc(
            platform="cuda", target_config=config, topology="1x1x1"
        )
    return list(found.devices)


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


def compiled(case: Case, together: bool = False) -> Any:
    """Compiles a program for a chip, or for all of a host together; returns JAX's executable."""
    config, shape = case.config, case.shape
    heads = {case.head: HEADS[case.head]} if case.head else {}
    output_spec = OutputSpec(sentences=not heads, heads=tuple(heads))
    wanted = Wanted(config, (101, 102), VectorSpec(), output_spec)
    by_row: Sharding = SingleDeviceSharding(chips(case.target)[0])
    in_parts = case.target in _GPUS
    copied, function = by_row, partial(program, wanted, heads, (), in_parts=in_parts)
    if together:
        mesh = Mesh(np.array(chips(case.target)), ("rows",))
        by_row, copied = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (["rows"], []))
        function = on_all_chips(function, by_row)

    def of(
        shape: tuple[int, ...], dtype: Any = np.int32, place: Sharding = copied
    ) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, dtype, sharding=place)

    shapes = tensor_shapes(config, pooler=False)
    if case.products:
        kernels = {name: size for name, size in shapes.items() if name.endswith("/kernel")}
        dtype = jnp.dtype(case.precision)
        weights = {name: of(size, dtype) for name, size in kernels.items()}
        states = of((*shape, config.hidden_size), dtype)
        return jax.jit(partial(layer_products, config)).lower(weights, states).compile()
    for head in heads.values():
        shapes |= head.shapes(config)
    zeros = {name: np.zeros(size, np.float32) for name, size in shapes.items()}
    zeros |= config.tables(zeros)
    dtype = jnp.dtype(case.precision)
    if case.target in _GPUS and has_kernels(config, dtype, chips(case.target)):
        zeros = joined_products(zeros, config.head_width)
    weights = {name: of(array.shape, weight_type(name, dtype)) for name, array in zeros.items()}
    rows, texts = (
        of((shape[0], count), place=by_row) for count in (shape[1], most_texts(shape[1]))
    )
    jitted = jax.jit(function, out_shardings=as_written(by_row))
    lowered = jitted.lower(weights, rows, rows, None, texts)
    return lowered.compile(OPTIONS if case.target in _GPUS else None)


def layer_products(
    config: EncoderConfig, weights: Mapping[str, jax.Array], x: jax.Array
) -> jax.Array:
    """The products of BERT's layers in their order, of and to `[rows, length, width]`."""
    split = config.num_attention_heads, config.head_width
    for layer in config.layer_names:
        query, key, value = (
            jnp.einsum("bli,ihd->bhdl", x, weights[f"{layer}/{name}/kernel"].reshape(-1, *split))
            for name in ("query", "key", "value")
        )
        scores = jnp.einsum("bhdl,bhdm->bhlm", query, key)
        x = jnp.einsum("bhlm,bhdm->blhd", scores, value).reshape(x.shape)
        for name in ("attention_output", "intermediate", "output"):
            x = jnp.einsum("bli,io->blo", x, weights[f"{layer}/{name}/kernel"])
    return x


def figures(executable: Any, case: Case) -> dict[str, float]:
    """What the compiler says of a program."""
    found = executable.runtime_executable()
    memory = found.get_compiled_memory_stats()
    said = {"temporary MB": round(memory.temp_size_in_bytes / 1e6, 1)}
    text = found.hlo_modules()[0].to_string()
    entry = text[text.index("\nENTRY ") :].split("\n}")[0]
    if case.target in _GPUS:
        kernels = re.findall(r"= .* (?:fusion|custom-call|reduce|scatter|sort)\(", entry)
        return said | {"TFLOP": round(case.operations / 1e12, 4), "kernels": len(kernels)}
    cost = executable.cost_analysis()
    cost = cost[0] if isinstance(cost, list) else cost
    # A custom call may count as -1 second, and no program takes a whole one.
    seconds = cost["optimal_seconds"] % 1.0
    cycles = sum(map(int, re.findall(r'"estimated_cycles":"(\d+)"', text)))
    return said | {
        "executable MB": round(memory.generated_code_size_in_bytes / 1e6, 1),
        "TFLOP": round(case.operations / 1e12, 4),
        "milliseconds": round(1000 * seconds, 3),
        "million cycles": round(cycles / 1e6, 2),
        "share of peak": round(case.operations / seconds / PEAKS[case.target], 4),
        "million tokens a second": round(math.prod(case.shape) / seconds / 1e6, 3),
    }


def measured(case: Case) -> dict[str, float]:
    """Compiles a case; returns its figures."""
    started = time.perf_counter()
    executable = compiled(case)
    print(f"{case.name}: {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
    return figures(executable, case)


def _all_measured(chosen: Sequence[Case]) -> Iterator[dict[str, float]]:
    """Yields the figures of cases in their order, which several processes compile."""
    if len(chosen) == 1:
        yield measured(chosen[0])
        return
    with ProcessPoolExecutor(_PROCESSES, mp_context=get_context("spawn")) as pool:
        yield from pool.map(measured, chosen)


def mixtures(kept: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """What MiniLM computes of texts of mixed lengths, where all programs they need were compiled.

    Lengths have a geometric distribution.
    """
    drawn = np.random.default_rng(0).geometric(1 / _MEAN, _TEXTS)
    lengths = np.clip(drawn, 3, 512)  # with the special tokens
    batches = PackedRows(_TOKENS, 512).plan(lengths)
    found = {}
    for target in PEAKS:
        for precision in ("bfloat16", "float32"):
            names = [Case("MiniLM", target, precision, batch.shape).name for batch in batches]
            if all(name in kept for name in names):
                seconds = sum(kept[name]["milliseconds"] for name in names) / 1e3
                speed = round(float(lengths.sum()) / seconds / 1e6, 3)
                name = f"MiniLM, mixed lengths of mean {_MEAN}, {precision}, {target}"
                found[name] = {"million tokens a second": speed}
    return found


def worse(kept: Mapping[str, float], now: Mapping[str, float]) -> list[str]:
    """Says which figures are worse by a tenth; none are of a program that nobody kept."""
    return [
        f"{name} {kept[name]:g} -> {value:g}"
        for name, value in now.items()
        if name in _COMPARED and name in kept and value > _WORSE * kept[name]
    ]


def main() -> None:
    """Compiles, prints, and compares with the table or keeps it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--all", action="store_true", help="all programs, not those of a run")
    parser.add_argument(
        "--part", type=int, choices=range(_PARTS), help="of those in turn; else that of the commit"
    )
    parser.add_argument("--only", default="", help="programs with this in their names")
    parser.add_argument("--table", type=Path, default=RESULTS, help="the figures that are kept")
    parser.add_argument("--keep", action="store_true", help="keep the figures in the table")
    arguments = parser.parse_args()
    kept = json.loads(arguments.table.read_text())
    part = part_of_commit() if arguments.part is None else arguments.part
    if not arguments.all:
        print(f"part {part} of those in turn: --part {part} repeats it", file=sys.stderr)
    chosen = [
        case for case in cases(None if arguments.all else part) if arguments.only in case.name
    ]
    if not chosen:
        parser.error(f"--only {arguments.only}: no program has this in its name")
    problems = []
    for case, now in zip(chosen, _all_measured(chosen), strict=True):
        print(case.name, json.dumps(now), flush=True)
        if arguments.keep:
            kept[case.name] = now
            kept |= mixtures(kept)
            arguments.table.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
        else:
            problems += [f"{case.name}: {one}" for one in worse(kept.get(case.name, {}), now)]
    for name, now in mixtures(kept).items():
        print(name, json.dumps(now))
    if problems:
        sys.exit("worse than the table:\n" + "\n".join(problems))


if __name__ == "__main__":
    main()
