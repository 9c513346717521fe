"""Checks the flags of a Dataflow job that the service would accept and fail with later."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

from bert_embed.pipeline.accelerators import (
    ACCELERATORS,
    LEAST_ACCELERATOR_DISK_GB,
    device_of,
    family_of,
)
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.runner_options import RunnerOptions
from bert_embed.pipeline.runners.beam_flags import ONE_PROCESS, BeamFlags
from bert_embed.storage.files import is_remote
from bert_embed.storage.packages import requires

_JOB_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_LABEL_KEY, _LABEL_VALUE = re.compile(r"[a-z][-_a-z0-9]{0,62}"), re.compile(r"[-_a-z0-9]{0,63}")
_NOT_ON = {"gpu": ("int8",), "tpu": ("int8", "float16")}


@dataclass(frozen=True)
class Places:
    """The files and folders that a job reads and writes, each with the setting that names it.

    Attributes:
        read: What its workers read.
        written: Where they write.
    """

    read: tuple[tuple[str, str], ...]
    written: tuple[tuple[str, str], ...]


def check_dataflow(job: RunnerOptions, given: BeamFlags, places: Places) -> None:
    """Refuses flags that conflict or are missing, and a machine without Dataflow's client."""
    if problems := [*_service(given), *_local_places(places)]:
        # Most lack several at first.
        raise UsageError("; ".join([*problems, *_packaging(job, given)]))
    for check in (_naming, _network, _accelerators, _devices, _machines, _packaging):
        for problem in check(job, given):
            raise UsageError(problem)
    with requires("--runner DataflowRunner", "apache-beam[gcp]"):
        import google.cloud.dataflow  # noqa: F401


def _type_name(job: RunnerOptions, given: BeamFlags) -> str | None:
    """The service's name of the requested accelerator."""
    chosen = ACCELERATORS.get(job.accelerator or "")
    return chosen.type if chosen else given.accelerator_type


def _device(job: RunnerOptions, given: BeamFlags) -> str | None:
    """The `--device` that computes on it."""
    type_name = _type_name(job, given)
    return device_of(type_name) if type_name else None


def _service(given: BeamFlags) -> Iterator[str]:
    if not is_remote(given["temp_location"] or ""):
        yield (
            "--temp_location is missing: --runner DataflowRunner requires a folder in Cloud "
            "Storage, such as gs://my-bucket/tmp, from which workers fetch the model"
        )
    for name in ("temp_location", "staging_location"):
        if given[name] and not given[name].startswith("gs://"):
            yield f"--{name} {given[name]} must be in Cloud Storage, such as gs://my-bucket/tmp"
    if not given["project"]:
        yield "--project is missing: give the project that pays for the Dataflow job"
    if not given.region:
        yield "--region is missing: give the one where the buckets are, such as us-central1"


def _local_places(places: Places) -> Iterator[str]:
    for setting, place in places.written:
        if not is_remote(place):
            yield (
                f"{setting} {place} is on this machine, where Dataflow's workers cannot "
                "write; give a folder in Cloud Storage, such as gs://my-bucket/vectors"
            )
    for setting, place in places.read:
        if not is_remote(place):
            yield (
                f"{setting} {place} is on this machine, where Dataflow's workers cannot "
                "read; copy it to Cloud Storage and give its gs:// address"
            )


def _naming(job: RunnerOptions, given: BeamFlags) -> Iterator[str]:
    name = given["job_name"]
    if name and not _JOB_NAME.fullmatch(name):
        yield (
            f"--job_name {name} must be lower-case letters, digits and dashes, begin with a "
            "letter and not end with a dash"
        )
    try:
        labels = given.labels
    except json.JSONDecodeError as error:
        yield f"--labels is not JSON: {error}"
        return
    for key, value in labels.items():
        named = _LABEL_KEY.fullmatch(key) and isinstance(value, str)
        if not named or not _LABEL_VALUE.fullmatch(value):
            yield (
                f"--labels {key}={value} must be name=value of lower-case letters, digits, dashes "
                "and underscores, at most 63 of each, the name beginning with a letter"
            )
    if given["update"]:
        yield "--update is for streaming jobs; a run continues with the same command"


def _network(job: RunnerOptions, given: BeamFlags) -> Iterator[str]:
    if {"--use_public_ips", "--no_use_public_ips"} <= set(given.words):
        yield "--use_public_ips conflicts with --no_use_public_ips, give only one"
    least, most = given["num_workers"], given["max_num_workers"]
    for name, count in (("num_workers", least), ("max_num_workers", most)):
        if count is not None and count < 1:
            yield f"--{name} {count} must be at least 1"
    if least and most and least > most:
        yield f"--num_workers {least} is more than --max_num_workers {most}"


def _accelerators(job: RunnerOptions, given: BeamFlags) -> Iterator[str]:
    by_job, hinted = given.worker_accelerator, given.hinted_accelerator
    if job.accelerator:
        for flag, value in (
            ("--dataflow_service_options worker_accelerator", by_job),
            ("--resource_hints accelerator", hinted),
        ):
            if value:
                yield f"--accelerator {job.accelerator} conflicts with {flag}, give only one"
    if by_job and hinted:
        yield (
            "--dataflow_service_options worker_accelerator conflicts with --resource_hints "
            "accelerator: the service takes one or the other"
        )
    device = _device(job, given)
    by_hint = job.right_fitting or hinted
    if device == "tpu" and by_hint:
        yield "a TPU is for every worker of a job: leave resource hints out"
    if by_hint and given["flexrs_goal"]:
        yield "--flexrs_goal conflicts with --right_fitting and resource hints of an accelerator"
    if device and given.prime and not by_hint:
        yield (
            "Dataflow Prime conflicts with an accelerator for every worker; give --right_fitting "
            "for a GPU, or leave enable_prime out"
        )
    yield from _processes(device, given)


def _processes(device: str | None, given: BeamFlags) -> Iterator[str]:
    if given.shares_gpu and given.one_process:
        yield (
            f"use_nvidia_mps is for several processes on a GPU, --experiments {ONE_PROCESS} "
            "limits a worker to one; give only one of them"
        )
    if device == "tpu" and "use_multiple_sdk_containers" in given.experiments:
        yield (
            "--experiments use_multiple_sdk_containers conflicts with a TPU, which one process "
            "holds; leave it out"
        )


def _devices(job: RunnerOptions, given: BeamFlags) -> Iterator[str]:
    device, flag = _device(job, given), f"--accelerator {job.accelerator}"
    named = flag if job.accelerator else given.accelerator_type
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


def _machines(job: RunnerOptions, given: BeamFlags) -> Iterator[str]:
    chosen = ACCELERATORS.get(job.accelerator or "")
    type_name = _type_name(job, given)
    if type_name is None:
        return
    disk = given["disk_size_gb"]
    if disk and disk < LEAST_ACCELERATOR_DISK_GB:
        yield (
            f"--disk_size_gb {disk} is too small for the image and the driver; give "
            f"{LEAST_ACCELERATOR_DISK_GB} or more"
        )
    if job.right_fitting:
        return  # then --machine_type is for the workers of the other steps
    machine, family = given["machine_type"], family_of(type_name)
    if machine and family and not machine.startswith(family):
        yield f"--machine_type {machine} cannot carry {type_name}; give one of {family}…"
    if not machine and not chosen and (family is not None and family != "n1-"):
        yield f"--machine_type is missing: {type_name} requires one of {family}…"
    if chosen and chosen.topology and machine and machine != chosen.machine_type:
        yield (
            f"--machine_type {machine} has more chips than the one that a process computes on; "
            f"give {chosen.machine_type}, or leave it out"
        )


def _packaging(job: RunnerOptions, given: BeamFlags) -> Iterator[str]:
    for name in ("setup_file", "requirements_file"):
        if given[name] and not os.path.isfile(given[name]):
            yield f"--{name} {given[name]} does not exist"
    for package in given["extra_packages"] or ():
        if not is_remote(package) and not os.path.isfile(package):
            yield f"--extra_package {package} does not exist"
    if given.image:
        return
    type_name = _type_name(job, given)
    if type_name:
        libraries = "a TPU's" if device_of(type_name) == "tpu" else "CUDA's"
        yield (
            f"--sdk_container_image is missing: {type_name} requires an image with {libraries} "
            "libraries, which `make dataflow` builds"
        )
    elif not given["setup_file"] and not given["extra_packages"]:
        yield (
            "--sdk_container_image is missing: give the image that `make dataflow` builds, or, to "
            "try it, --setup_file ./setup.py, with which each worker installs the packages itself"
        )
