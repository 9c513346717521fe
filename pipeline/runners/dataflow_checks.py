"""Refuses Dataflow jobs that cost money before they fail, or are slow, where Beam does not."""

import difflib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from bert_embed.pipeline.accelerators import (
    ACCELERATORS,
    LEAST_ACCELERATOR_DISK_GB,
    Accelerator,
    device_of,
)
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.runner_options import RunnerOptions
from bert_embed.pipeline.runners.beam_flags import BeamFlags
from bert_embed.storage.files import is_remote
from bert_embed.storage.packages import requires

_NOT_ON = {"gpu": ("int8",), "tpu": ("int8", "float16")}
# How Google names regions: a continent or country, one of these, a number; zones add a letter.
_DIRECTIONS = (
    *("central", "north", "south", "east", "west"),
    *("northeast", "northwest", "southeast", "southwest"),
)
_REGION = re.compile("((?:u-)?[a-z]+-)([a-z]+)([1-9][0-9]*)(-[a-z])?")


@dataclass(frozen=True)
class Places:
    """The places that a job's workers read and write, each with the setting that names it."""

    read: tuple[tuple[str, str], ...]
    written: tuple[tuple[str, str], ...]


def check_dataflow(job: RunnerOptions, flags: BeamFlags, places: Places) -> None:
    """Refuses flags that conflict or are missing, and a machine without Dataflow's client."""
    chosen = ACCELERATORS.get(job.accelerator or "")
    type_name = chosen.type if chosen else flags.accelerator_type
    if problems := [*_service(flags), *_local_places(places)]:
        # Most lack several at first.
        raise UsageError("; ".join([*problems, *_packaging(flags, type_name)]))
    for problem in (
        *_accelerators(job, flags, type_name),
        *_devices(job, flags, type_name),
        *_machines(flags, chosen),
        *_packaging(flags, type_name),
    ):
        raise UsageError(problem)
    with requires("--runner DataflowRunner", "apache-beam[gcp]"):
        import google.cloud.dataflow  # noqa: F401


def _service(flags: BeamFlags) -> Iterator[str]:
    if not is_remote(flags["temp_location"] or ""):
        yield (
            "--temp_location is missing: --runner DataflowRunner requires a folder in Cloud "
            "Storage, such as gs://my-bucket/tmp, from which workers fetch the model"
        )
    if not flags["project"]:
        yield "--project is missing: give the project that pays for the Dataflow job"
    if not flags.region:
        yield "--region is missing: give the one where the buckets are, such as us-central1"
    elif wrong := _wrong_region(flags.region):
        yield f"--region {flags.region} {wrong}"


def _wrong_region(region: str) -> str | None:
    """Says why a text is no region, and which one may be meant; None if it can be one."""
    if named := _REGION.fullmatch(region):
        place, direction, number, zone = named.groups()
        if direction in _DIRECTIONS:
            return f"is a zone, give its region: {region.removesuffix(zone)}" if zone else None
        nearest = difflib.get_close_matches(direction, _DIRECTIONS, 1)
        if nearest and not zone:
            return f"is no region of Google Cloud; did you mean {place}{nearest[0]}{number}?"
    return "is no region of Google Cloud: their names are such as us-central1"


def _local_places(places: Places) -> Iterator[str]:
    give = "write; give a folder in Cloud Storage, such as gs://my-bucket/vectors"
    copy = "read; copy it to Cloud Storage and give its gs:// address"
    for named, advice in ((places.written, give), (places.read, copy)):
        for setting, place in named:
            if not is_remote(place):
                yield (
                    f"{setting} {place} is on this machine, where Dataflow's workers cannot "
                    f"{advice}"
                )


def _accelerators(job: RunnerOptions, flags: BeamFlags, type_name: str | None) -> Iterator[str]:
    by_job, hinted = flags.worker_accelerator, flags.hinted_accelerator
    for flag, value in (
        ("--dataflow_service_options worker_accelerator", by_job),
        ("--resource_hints accelerator", hinted),
    ):
        if job.accelerator and value:
            yield f"--accelerator {job.accelerator} conflicts with {flag}, give only one"
    device = type_name and device_of(type_name)
    if device == "tpu" and hinted:
        yield "a TPU is for every worker of a job: leave resource hints out"
    if device == "tpu" and "use_multiple_sdk_containers" in flags.experiments:
        yield (
            "--experiments use_multiple_sdk_containers conflicts with a TPU, which one process "
            "holds; leave it out"
        )


def _devices(job: RunnerOptions, flags: BeamFlags, type_name: str | None) -> Iterator[str]:
    device = type_name and device_of(type_name)
    named = f"--accelerator {job.accelerator}" if job.accelerator else flags.accelerator_type
    if device is None and job.device in _NOT_ON:
        yield (
            f"--device {job.device} requires workers with one: give --accelerator, such as "
            f"{'v5e' if job.device == 'tpu' else 'l4'}"
        )
    if device is not None and job.device not in ("auto", device):
        yield (
            f"--device {job.device} would leave {named} idle; give --device {device}, or "
            "leave the accelerator out"
        )
    if device is not None and job.precision in _NOT_ON[device]:
        yield (
            f"--precision {job.precision} is not available on {named}; give --precision "
            "bfloat16, or leave it out for float32"
        )


def _machines(flags: BeamFlags, chosen: Accelerator | None) -> Iterator[str]:
    if chosen is None and flags.accelerator_type is None:
        return
    disk = flags["disk_size_gb"]
    if disk and disk < LEAST_ACCELERATOR_DISK_GB:
        yield (
            f"--disk_size_gb {disk} is too small for the image and the driver; give "
            f"{LEAST_ACCELERATOR_DISK_GB} or more"
        )
    machine = flags["machine_type"]
    if chosen and chosen.topology and machine and machine != chosen.machine_type:
        yield (
            f"--machine_type {machine} has more chips than the one that a process computes on; "
            f"give {chosen.machine_type}, or leave it out"
        )


def _packaging(flags: BeamFlags, type_name: str | None) -> Iterator[str]:
    if flags["setup_file"] and not os.path.isfile(flags["setup_file"]):
        yield f"--setup_file {flags['setup_file']} does not exist"
    if flags.image:
        return
    if type_name:
        libraries = "a TPU's" if device_of(type_name) == "tpu" else "CUDA's"
        yield (
            f"--sdk_container_image is missing: {type_name} requires an image with {libraries} "
            "libraries, which `make dataflow` builds"
        )
    elif not flags["setup_file"] and not flags["extra_packages"]:
        yield (
            "--sdk_container_image is missing: give the image that `make dataflow` builds, or, to "
            "try it, --setup_file ./setup.py, with which each worker installs the packages itself"
        )
