"""What a command line says of a Dataflow job: EmbedOptions in, the settings of Beam's flags out."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apache_beam.options.pipeline_options import PipelineOptions

from pipeline.dataflow_machines import ACCELERATORS, Accelerator, accelerator_type, device_of
from pipeline.options import EmbedOptions

ONE_PROCESS = "no_use_multiple_sdk_containers"
_SERVICE = "worker_accelerator="
_HINTS = ("accelerator=", "beam:resources:accelerator:v1=")
_IMAGES = ("sdk_container_image", "worker_harness_container_image")


def is_dataflow(options: EmbedOptions) -> bool:
    """Whether a run goes to Dataflow."""
    return options.runner_name == "dataflowrunner"


def accelerator_of(options: EmbedOptions) -> Accelerator | None:
    """What `--accelerator` names."""
    return ACCELERATORS[options.accelerator] if options.accelerator else None


@dataclass(frozen=True)
class DataflowSettings:
    """Beam's flags as far as Dataflow heeds them, as they were given.

    Attributes:
        words: The flags.
        values: What each of Beam's options is by them.
    """

    words: tuple[str, ...]
    values: dict[str, Any]

    @classmethod
    def of(cls, words: Sequence[str]) -> "DataflowSettings":
        return cls(tuple(words), PipelineOptions(list(words)).get_all_options())

    def __getitem__(self, name: str) -> Any:
        return self.values.get(name)

    @property
    def image(self) -> str | None:
        """The workers' container image."""
        return next((self[name] for name in _IMAGES if self[name]), None)

    @property
    def region(self) -> str | None:
        """Where the job runs; what Beam would ask gcloud for is not looked up."""
        return self["region"] or os.environ.get("CLOUDSDK_COMPUTE_REGION")

    @property
    def experiments(self) -> list[str]:
        return list(self["experiments"] or ())

    @property
    def service_options(self) -> list[str]:
        return list(self["dataflow_service_options"] or ())

    @property
    def prime(self) -> bool:
        """Whether Dataflow Prime is asked for."""
        return "enable_prime" in (*self.experiments, *self.service_options)

    @property
    def one_process(self) -> bool:
        """Whether a worker is kept to one process."""
        return ONE_PROCESS in self.experiments

    @property
    def worker_accelerator(self) -> str | None:
        """What every worker is to carry, in the service's words."""
        return _after(self.service_options, _SERVICE)

    @property
    def hinted_accelerator(self) -> str | None:
        """What the whole pipeline's resource hint asks for, in the service's words."""
        found = (_after(self["resource_hints"], name) for name in _HINTS)
        return next(filter(None, found), None)

    @property
    def shares_gpu(self) -> bool:
        """Whether several processes are to compute on one GPU."""
        return "use_nvidia_mps" in (self.worker_accelerator or self.hinted_accelerator or "")

    @property
    def accelerator_type(self) -> str | None:
        """The service's name of the accelerator that either of them names."""
        said = self.worker_accelerator or self.hinted_accelerator
        return accelerator_type(said) if said else None

    @property
    def device(self) -> str | None:
        """The `--device` that computes on it; None without one."""
        return device_of(self.accelerator_type) if self.accelerator_type else None

    @property
    def labels(self) -> dict[str, str]:
        """The job's labels: `key=value` each, or JSON of several."""
        labels: dict[str, str] = {}
        for each in self["labels"] or ():
            if each.startswith("{"):
                labels |= json.loads(each)
            else:
                key, _, value = each.partition("=")
                labels[key] = value
        return labels


def _after(values: Sequence[str] | None, name: str) -> str | None:
    return next((each.removeprefix(name) for each in values or () if each.startswith(name)), None)
