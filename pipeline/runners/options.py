"""Where a job runs and on what: all that runners ask for; the accelerators of Dataflow."""

from dataclasses import dataclass

# TensorFlow's CUDA libraries are newer than the driver that Dataflow installs by default.
_DRIVER = "install-nvidia-driver:5xx"


@dataclass(frozen=True)
class Accelerator:
    """One GPU or TPU of a worker, on which one process computes."""

    type: str  # the service's name for it
    device: str  # the `--device` that computes on it
    machine_type: str  # the default machine
    topology: str | None = None  # how a TPU's chips are arranged

    @property
    def service_option(self) -> str:
        """The value of `--dataflow_service_options` that gives every worker one."""
        rest = f"topology:{self.topology}" if self.topology else f"count:1;{_DRIVER}"
        return f"worker_accelerator=type:{self.type};{rest}"


ACCELERATORS = {
    "t4": Accelerator("nvidia-tesla-t4", "gpu", "n1-standard-8"),
    "l4": Accelerator("nvidia-l4", "gpu", "g2-standard-8"),
    "a100": Accelerator("nvidia-tesla-a100", "gpu", "a2-highgpu-1g"),
    "a100-80gb": Accelerator("nvidia-a100-80gb", "gpu", "a2-ultragpu-1g"),
    "h100": Accelerator("nvidia-h100-80gb", "gpu", "a3-highgpu-1g"),
    "v5e": Accelerator("tpu-v5-lite-podslice", "tpu", "ct5lp-hightpu-1t", "1x1"),
    "v6e": Accelerator("tpu-v6e-slice", "tpu", "ct6e-standard-1t", "1x1"),
}
CPU_MACHINE_TYPE = "n2-standard-8"  # 4 GB a core, and AVX-512 with VNNI for --precision int8
CPU_DISK_GB, ACCELERATOR_DISK_GB, LEAST_ACCELERATOR_DISK_GB = 50, 100, 50


def accelerator_type(value: str) -> str | None:
    """The type that an accelerator option or hint names.

    >>> accelerator_type("type:nvidia-l4;count:1;install-nvidia-driver")
    'nvidia-l4'
    """
    parts = (part.partition(":") for part in value.split(";"))
    return next((rest for name, _, rest in parts if name == "type"), None)


def device_of(type_name: str) -> str:
    """The `--device` that computes on an accelerator of the service's name.

    >>> device_of("nvidia-tesla-v100"), device_of("tpu-v6e-slice")
    ('gpu', 'tpu')
    """
    return "tpu" if type_name.startswith("tpu") else "gpu"


DEFAULT_RUNNER = "FnApiRunner"  # DirectRunner picks another runner by what the network allows
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
