"""Reads Beam's flags, which no other file does, and completes them for a job."""

import logging
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions, TestOptions
from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator
from apache_beam.transforms.resources import resource_hints_from_options

from bert_embed.pipeline.runners.options import DEFAULT_RUNNER, RunnerOptions, accelerator_part

ONE_PROCESS = "no_use_multiple_sdk_containers"
# Runners that may download another runner and start that.
SWITCHING = ("directrunner", "switchingdirectrunner")
_SERVICE = "worker_accelerator="
_View = TypeVar("_View", bound=PipelineOptions)
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BeamFlags:
    """Beam's flags, `words`, and the value of every option of Beam by them."""

    words: tuple[str, ...]
    values: dict[str, Any]

    @classmethod
    def of(cls, words: Sequence[str]) -> "BeamFlags":
        """Parses flags; those that Beam does not have are left out of `values`."""
        return cls(tuple(words), PipelineOptions(list(words)).get_all_options())

    def __getitem__(self, name: str) -> Any:
        """The value of one of Beam's options, None if there is none."""
        return self.values.get(name)

    def names(self, flag: str) -> bool:
        """Whether a flag was given, whatever its value."""
        return any(word.partition("=")[0] == flag for word in self.words)

    @property
    def image(self) -> str | None:
        """The workers' container image."""
        return self["sdk_container_image"]

    @property
    def region(self) -> str | None:
        """Where a Dataflow job runs, without the look-up in gcloud that Beam would do."""
        return self["region"] or os.environ.get("CLOUDSDK_COMPUTE_REGION")

    @property
    def experiments(self) -> list[str]:
        """The values of --experiments."""
        return list(self["experiments"] or ())

    @property
    def service_options(self) -> list[str]:
        """The values of --dataflow_service_options."""
        return list(self["dataflow_service_options"] or ())

    @property
    def accelerator(self) -> str | None:
        """The accelerator of every worker, in the service's syntax."""
        named = (word for word in self.service_options if word.startswith(_SERVICE))
        return next((word.removeprefix(_SERVICE) for word in named), None)

    @property
    def accelerator_type(self) -> str | None:
        """The service's name of it."""
        return accelerator_part(self.accelerator or "", "type")

    @property
    def labels(self) -> dict[str, str]:
        """The job's labels."""
        pairs = (word.partition("=") for word in self["labels"] or ())
        return {key: value for key, _, value in pairs}


# A letter as Google Cloud takes it: of any script, but no capital.
_LABEL = re.compile(r"[\w-]{0,63}")
_PACKAGES = (".tar", ".tar.gz", ".whl", ".zip")


def flag_problems(flags: BeamFlags, is_dataflow: bool) -> Iterator[str]:
    """Says why Beam or Dataflow would refuse flags, which is else known when a job is built."""
    options = PipelineOptions(list(flags.words))
    cloud = options.view_as(GoogleCloudOptions)
    cloud.region = flags.region
    options.view_as(TestOptions).dry_run = True  # no bucket is asked for
    runner = None
    if is_dataflow:  # with the service's clients, which other runs do not need
        from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner

        runner = DataflowRunner()
    checks = PipelineOptionsValidator(options, runner)
    for name in ("temp_location", "staging_location") if is_dataflow else ():
        if flags[name]:
            yield from checks.validate_gcs_path(cloud, name)
    yield from checks.validate()
    for name in ("disk_size_gb", "number_of_worker_harness_threads"):
        if (flags[name] or 0) < 0:  # 0 is the default
            yield f"--{name} must be at least 1, got {flags[name]}"
    try:
        resource_hints_from_options(options)
    except ValueError as error:
        yield str(error)
    for name in ("runtime_type_check", "performance_runtime_type_check"):
        if flags[name]:
            yield f"--{name} is not offered: what it refuses is shown, and may be a text"
    for key, value in flags.labels.items() if is_dataflow else ():
        fits = all(one == one.lower() and _LABEL.fullmatch(one) for one in (key, value))
        if not (key and fits):
            yield (
                f"--labels {key}={value}: keys and values are of small letters, digits, _ and -, "
                "at most 63 of them"
            )
    files = [(name, flags[name]) for name in ("setup_file", "requirements_file", "sdk_location")]
    files += [("extra_packages", path) for path in flags["extra_packages"] or ()]
    for name, path in files:
        if not path or "://" in path:
            continue
        if name == "sdk_location" and (path in ("default", "container") or os.path.isdir(path)):
            continue
        if not os.path.isfile(path):
            yield f"--{name} {path} does not exist"
        elif name == "extra_packages" and not path.endswith(_PACKAGES):
            end = f"its name must end in {', '.join(_PACKAGES)}"
            yield f"--{name} {path} is no package: {end}"


def configure_storage(job: RunnerOptions) -> None:
    """Makes Beam's file systems use the given flags, such as the account to act for."""
    if job.beam_args:
        FileSystems.set_options(PipelineOptions(list(job.beam_args)))


class _OnceParsed(PipelineOptions):
    """Options of which each view is parsed once: Beam asks for views some 300 times a job."""

    def view_as(self, cls: type[_View]) -> _View:
        """The same view whenever it is asked for, which has the values of all others."""
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def pipeline_options(job: RunnerOptions, flags: Sequence[str]) -> PipelineOptions:
    """Beam's options for a job with these flags of Beam, on its runner."""
    name = DEFAULT_RUNNER if job.name in SWITCHING else job.runner
    if name != job.runner:
        _logger.warning(
            "--runner %s would take the runner that it can download; this run takes %s",
            job.runner,
            name,
        )
    return _OnceParsed([*flags, f"--runner={name}"])
