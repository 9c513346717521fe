"""Where a job runs and on what: all that runners ask for; the accelerators of Dataflow."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

# TensorFlow's CUDA libraries are newer than the driver that Dataflow installs by default.
_DRIVER = "install-nvidia-driver:5xx"


@dataclass(frozen=True)
class Accelerator:
    """The GPUs or TPU chips of a worker, on all of which one process computes."""

    type: str  # the service's name for one
    device: str  # the `--device` that computes on it
    memory_gb: int  # of each chip
    chips: int
    machine_type: str  # which has so many
    topology: str | None = None  # how a TPU's chips are arranged
    runtime: str = ""  # what a TPU's runtime calls such chips

    @property
    def service_option(self) -> str:
        """The value of `--dataflow_service_options` that gives every worker these."""
        rest = f"topology:{self.topology}" if self.topology else f"count:{self.chips};{_DRIVER}"
        return f"worker_accelerator=type:{self.type};{rest}"

    @property
    def environment(self) -> dict[str, str]:
        """What a TPU's runtime must know where it cannot ask the machine: it is alone, and this."""
        if self.topology is None:
            return {}
        return {
            "TPU_SKIP_MDS_QUERY": "1",
            "TPU_ACCELERATOR_TYPE": f"{self.runtime}-{self.chips}",
            "TPU_CHIPS_PER_HOST_BOUNDS": f"{self.topology.replace('x', ',')},1",
            "TPU_HOST_BOUNDS": "1,1,1",
            "TPU_WORKER_HOSTNAMES": "localhost",
            "TPU_WORKER_ID": "0",
        }


def _of_kind(
    name: str,
    type_name: str,
    memory_gb: int,
    machines: str | Mapping[int, str],
    topologies: Mapping[int, str] = MappingProxyType({}),
    runtime: str = "",
) -> dict[str, Accelerator]:
    """The accelerators of a kind by `--accelerator`, with a machine for each number of chips."""
    device = "tpu" if topologies else "gpu"
    if isinstance(machines, str):
        machines = {chips: machines.format(chips) for chips in topologies or _GPUS}
    return {
        f"{name}-{chips}".removesuffix("-1"): Accelerator(
            type_name, device, memory_gb, chips, machine, topologies.get(chips), runtime
        )
        for chips, machine in machines.items()
    }


_GPUS = 1, 2, 4, 8  # in a machine
_TPUS = {1: "1x1", 4: "2x2", 8: "2x4"}
_T4 = {1: "n1-standard-8", 2: "n1-standard-16", 4: "n1-standard-32"}
_L4 = {1: "g2-standard-8", 2: "g2-standard-24", 4: "g2-standard-48", 8: "g2-standard-96"}
_BY_KIND = {
    **_of_kind("t4", "nvidia-tesla-t4", 16, _T4),
    **_of_kind("l4", "nvidia-l4", 24, _L4),
    **_of_kind("a100", "nvidia-tesla-a100", 40, "a2-highgpu-{}g"),
    **_of_kind("a100-80gb", "nvidia-a100-80gb", 80, "a2-ultragpu-{}g"),
    **_of_kind("h100", "nvidia-h100-80gb", 80, "a3-highgpu-{}g"),
    **_of_kind("v5e", "tpu-v5-lite-podslice", 16, "ct5lp-hightpu-{}t", _TPUS, "v5litepod"),
    **_of_kind("v6e", "tpu-v6e-slice", 32, "ct6e-standard-{}t", _TPUS, "v6e"),
}

# Those of one chip first, as messages list them.
ACCELERATORS = dict(sorted(_BY_KIND.items(), key=lambda item: item[1].chips))


def accelerator_name(text: str) -> str:
    """The name in `ACCELERATORS` that a text may say with the number 1.

    >>> accelerator_name("v5e-1"), accelerator_name("v5e-8"), accelerator_name("a100-80gb-1")
    ('v5e', 'v5e-8', 'a100-80gb')
    """
    return text.removesuffix("-1")


CPU_MACHINE_TYPE = "n2-standard-8"  # 4 GB a core, and AVX-512 with VNNI for --precision int8
CPU_DISK_GB, ACCELERATOR_DISK_GB, LEAST_ACCELERATOR_DISK_GB = 50, 100, 50


def accelerator_part(value: str, wanted: str) -> str | None:
    """A part of an accelerator option or hint, such as its type, None without it.

    >>> accelerator_part("type:nvidia-l4;count:1;install-nvidia-driver", "type")
    'nvidia-l4'
    """
    parts = (part.partition(":") for part in value.split(";"))
    return next((rest for name, _, rest in parts if name == wanted), None)


def device_of(type_name: str) -> str:
    """The `--device` that computes on an accelerator of the service's name.

    >>> device_of("nvidia-tesla-v100"), device_of("tpu-v6e-slice")
    ('gpu', 'tpu')
    """
    return "tpu" if type_name.startswith("tpu") else "gpu"


DATAFLOW = "DataflowRunner"
DEFAULT_RUNNER = "FnApiRunner"  # DirectRunner picks another runner by what the network allows
# Which Beam works without. google.cloud: clients of BigQuery, Dataflow, Pub/Sub and Storage.
BEAM_WITHOUT = ("apitools", "google.cloud", "pandas", "pymongo")
# Runners whose own flags Beam's Python side does not know: unknown flags are passed on to them.
_FOREIGN_RUNNERS = ("flinkrunner", "portablerunner", "sparkrunner")
_LOCAL_RUNNERS = (
    "fnapirunner",
    "directrunner",
    "switchingdirectrunner",
    "prismrunner",
    "interactiverunner",
)


@dataclass(frozen=True)
class RunnerOptions:
    """Where a job runs, and on what."""

    runner: str = DEFAULT_RUNNER
    beam_args: tuple[str, ...] = ()  # Beam's own flags, as given
    device: str = "auto"
    engine: str | None = None  # its name; None for the first that is installed
    precision: str = "float32"
    threads: int | None = None  # of the model on a worker; None for all processors
    accelerator: str | None = None  # Dataflow's short name for that of every worker

    @property
    def name(self) -> str:
        """The runner as one lower-case word: Beam also takes `flink` and a dotted path."""
        name = self.runner.rpartition(".")[2].lower()
        return name if name.endswith("runner") else f"{name}runner"

    @property
    def is_portable(self) -> bool:
        """Whether the job goes to a cluster through a job server."""
        return self.name in _FOREIGN_RUNNERS

    @property
    def is_dataflow(self) -> bool:
        """Whether the job goes to Dataflow."""
        return self.name == "dataflowrunner"

    @property
    def runs_here(self) -> bool:
        """Whether the job runs in this process, and ends with it."""
        return self.name in _LOCAL_RUNNERS
