"""Defines RunnerOptions: where a job runs and on what, which is all that runners ask for."""

from dataclasses import dataclass

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
