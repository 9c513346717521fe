"""Checks and completes the flags of a Dataflow job and submits it."""

import hashlib
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineState

import bert_embed
from bert_embed.base.environment import requires
from bert_embed.base.errors import counted
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.runners.beam import ONE_PROCESS, BeamFlags
from bert_embed.pipeline.runners.errors import JobFailed, JobGoesOn
from bert_embed.pipeline.runners.options import (
    ACCELERATOR_DISK_GB,
    ACCELERATORS,
    CPU_DISK_GB,
    CPU_MACHINE_TYPE,
    LEAST_ACCELERATOR_DISK_GB,
    Accelerator,
    RunnerOptions,
    accelerator_part,
    device_of,
)
from bert_embed.storage.files import is_remote
from bert_embed.storage.gcs import LOOK_AT_BUCKET, QUICK, SCHEME, held_permissions, service_session

_BY_JOB = "--dataflow_service_options worker_accelerator"
_SEVERAL = "use_multiple_sdk_containers"
# How tags of our images, and names of Beam's, say which Python they have.
_IMAGE_PYTHON = re.compile(r"(?<![a-z])py(?:thon)?3\.?([0-9]+)(?![0-9.])")
# Bundles at once in a process that computes on all chips of a machine, each of which holds a block.
# The service takes as many as there are processors: up to 224, which all tokenize under one lock.
_BUNDLES = 12
_NOT_ON = {"gpu": ("int8",), "tpu": ("int8", "float16")}
# The fields of a run that its job's name and labels tell: command, output, run and model.
Identity = tuple[str, str, str, str]


def accelerator_of(job: RunnerOptions) -> Accelerator | None:
    """What each worker of a Dataflow job computes on, if it is one that we know."""
    if job.accelerator is not None:
        return ACCELERATORS[job.accelerator]
    flags = BeamFlags.of(job.beam_args)
    wanted = flags.accelerator_type, accelerator_part(flags.accelerator or "", "topology")
    known = (one for one in ACCELERATORS.values() if (one.type, one.topology) == wanted)
    return next(known, None)


_OBJECTS = tuple(f"storage.objects.{verb}" for verb in ("create", "delete", "get", "list"))
_JOBS = "dataflow.jobs.create", "dataflow.jobs.get"
# A role that has each; docs/cloud.md lists them all.
_ROLES = {
    "storage.buckets": "Storage Legacy Bucket Reader",
    "storage.objects": "Storage Object User",
    "dataflow.jobs": "Dataflow Developer",
    "iam.serviceAccounts": "Service Account User",
}


def check_permissions(flags: BeamFlags, output: str) -> None:
    """UsageError that names a permission which a Dataflow job to `output` needs and is missing.

    What Google does not answer in a few seconds counts as granted: the job itself will say it.
    """
    for what, wanted, held in _asked(flags, output):
        for name in wanted:
            if held is not None and name not in held:
                role = _ROLES[name.rpartition(".")[0]]
                raise UsageError(
                    f"{what} lacks the permission {name} for the account that submits: give it the "
                    f"role {role} there, see docs/cloud.md#roles"
                )


def _asked(
    flags: BeamFlags, output: str
) -> Iterator[tuple[str, tuple[str, ...], frozenset[str] | None]]:
    """What is asked of what, and what this account may do there; None: it is not known."""
    places = [(f"--{name}", flags[name]) for name in ("temp_location", "staging_location")]
    for setting, place in (*places, ("--output", output)):
        if place and place.startswith(SCHEME):
            wanted = _OBJECTS if setting == "--output" else (LOOK_AT_BUCKET, *_OBJECTS)
            bucket = place.removeprefix(SCHEME).partition("/")[0]
            yield f"{setting} {SCHEME}{bucket}", wanted, held_permissions(bucket, wanted)
    if flags["template_location"]:  # whose launcher starts no job
        return
    project, account = flags["project"], flags["service_account_email"]
    place = f"cloudresourcemanager.googleapis.com/v1/projects/{project}"
    yield f"--project {project}", _JOBS, _held(flags, place, _JOBS)
    if account:
        acts = ("iam.serviceAccounts.actAs",)
        place = f"iam.googleapis.com/v1/projects/-/serviceAccounts/{account}"
        yield f"--service_account_email {account}", acts, _held(flags, place, acts)


def _held(flags: BeamFlags, place: str, wanted: tuple[str, ...]) -> frozenset[str] | None:
    import requests
    from google.auth.exceptions import GoogleAuthError

    endpoint = flags["dataflow_endpoint"] or ""
    host, _, path = place.partition("/")
    # What stands in for Dataflow stands in for these services.
    start = endpoint.rstrip("/") if "//localhost" in endpoint else f"https://{host}"
    url = f"{start}/{path}:testIamPermissions"
    with suppress(GoogleAuthError, requests.RequestException, ValueError):
        if (session := service_session()) is not None:
            answer = session.post(url, json={"permissions": list(wanted)}, timeout=QUICK)
            if answer.status_code == 200:
                return frozenset(answer.json().get("permissions", ()))
    return None


def _missing(flags: BeamFlags) -> Iterator[str]:
    if not is_remote(flags["temp_location"] or ""):
        yield (
            "--temp_location is missing: --runner DataflowRunner requires a folder in Cloud "
            "Storage, such as gs://my-bucket/tmp, from which workers fetch the model"
        )
    if not flags["project"]:
        yield "--project is missing: give the project that pays for the Dataflow job"
    if not flags.region:
        yield "--region is missing: give the one where the buckets are, such as us-central1"


def _local_places(read: Sequence[tuple[str, str]], output: str) -> Iterator[str]:
    give = "write; give a folder in Cloud Storage, such as gs://my-bucket/vectors"
    copy = "read; copy it to Cloud Storage and give its gs:// address"
    for setting, place, advice in (("--output", output, give), *((*one, copy) for one in read)):
        if not is_remote(place):
            here = "is on this machine, where Dataflow's workers cannot"
            yield f"{setting} {place} {here} {advice}"


def _accelerators(job: RunnerOptions, flags: BeamFlags, type_name: str | None) -> Iterator[str]:
    named, device = flags.accelerator, type_name and device_of(type_name)
    if job.accelerator and named:
        yield f"--accelerator {job.accelerator} conflicts with {_BY_JOB}, give only one"
    if named and not accelerator_part(named, "type"):
        yield f"{_BY_JOB}={named} names no type, such as type:nvidia-l4;count:1"
    if any("accelerator" in hint for hint in flags["resource_hints"] or ()):
        yield f"--resource_hints cannot name an accelerator: give --accelerator, or {_BY_JOB}"
    if device == "tpu" and _SEVERAL in flags.experiments:
        held = f"--experiments {_SEVERAL} conflicts with a TPU"
        yield f"{held}, which one process holds; leave it out"
    disk, least = flags["disk_size_gb"], LEAST_ACCELERATOR_DISK_GB
    if device and disk and disk < least:
        small = f"--disk_size_gb {disk} is too small for the image and the driver"
        yield f"{small}; give {least} or more"


def device_problems(job: RunnerOptions, type_name: str | None) -> Iterator[str]:
    """Says what contradicts the accelerator of workers, by the service's name of it, or None."""
    device = type_name and device_of(type_name)
    named = f"--accelerator {job.accelerator}" if job.accelerator else type_name
    asked, precision = f"--device {job.device}", job.precision
    if device is None and job.device in _NOT_ON:
        such = "v5e" if job.device == "tpu" else "l4"
        yield f"{asked} requires workers with one: give --accelerator, such as {such}"
    if device is not None and job.device not in ("auto", device):
        cure = f"give --device {device}, or leave the accelerator out"
        yield f"{asked} would leave {named} idle; {cure}"
    if device is not None and precision in _NOT_ON[device]:
        cure = "give --precision bfloat16, or leave it out for float32"
        yield f"--precision {precision} is not available on {named}; {cure}"


def _packaging(flags: BeamFlags, type_name: str | None) -> Iterator[str]:
    if flags.image:
        here = sys.version_info.minor
        minors = _IMAGE_PYTHON.findall(flags.image.rpartition("/")[2])
        if minors and str(here) not in minors:
            yield (
                f"--sdk_container_image {flags.image} has Python 3.{minors[-1]} and this command "
                f"runs with 3.{here}, but workers need the same one: give an image of py3{here}, "
                f"which `make dataflow` builds, or run the command with Python 3.{minors[-1]}"
            )
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


_LOG = logging.getLogger(__name__)
_CONSOLE = "https://console.cloud.google.com/dataflow/jobs"


def for_dataflow(job: RunnerOptions, read: Sequence[tuple[str, str]], output: str) -> RunnerOptions:
    """The job with the `--device` of its accelerator; UsageError names a flag that is wrong.

    `read` are places that workers read, each behind the flag that names it.
    """
    flags = BeamFlags.of(job.beam_args)
    chosen = ACCELERATORS.get(job.accelerator or "")
    type_name = chosen.type if chosen else flags.accelerator_type
    if problems := [*_missing(flags), *_local_places(read, output)]:
        # Most lack several at first.
        raise UsageError("; ".join([*problems, *_packaging(flags, type_name)]))
    for problem in (
        *_accelerators(job, flags, type_name),
        *device_problems(job, type_name),
        *_packaging(flags, type_name),
    ):
        raise UsageError(problem)
    with requires("--runner DataflowRunner", "apache-beam[gcp]"):
        import google.cloud.dataflow  # noqa: F401
    return replace(job, device=device_of(type_name)) if type_name else job


def model_threads(job: RunnerOptions) -> int | None:
    """Threads of a model on workers: one where Dataflow starts a process per core."""
    if job.threads is not None or job.device in ("gpu", "tpu"):
        return job.threads
    return None if ONE_PROCESS in BeamFlags.of(job.beam_args).experiments else 1


def completed_flags(job: RunnerOptions, identity: Identity) -> list[str]:
    """Beam's flags of a command's job on a cluster, followed by our defaults for the others."""
    words, (command, output, run, model) = list(job.beam_args), identity
    flags = BeamFlags.of(words)
    if not flags["job_name"]:
        # The service refuses a second job of this name for the same output.
        place = hashlib.sha256(output.encode()).hexdigest()
        words.append(f"--job_name=bert-{command}-{run[:12]}-{place[:6]}")
    if not job.is_dataflow:
        return words
    version = bert_embed.__version__.replace(".", "-")
    labels = {"application": "bert-embed", "version": version, "run": run, "model": model}
    own = [f"--labels={name}={value}" for name, value in labels.items() if name not in flags.labels]
    return [*words, *own, *_workers(job, flags)]


def _workers(job: RunnerOptions, flags: BeamFlags) -> Iterator[str]:
    if flags.image and flags["sdk_location"] in (None, "default"):
        yield "--sdk_location=container"
    chosen = ACCELERATORS.get(job.accelerator or "")
    if chosen:
        yield f"--dataflow_service_options={chosen.service_option}"
    prime = "enable_prime" in (*flags.experiments, *flags.service_options)
    if not flags["machine_type"] and not flags.accelerator_type and not prime:
        machine = chosen.machine_type if chosen else CPU_MACHINE_TYPE
        yield f"--machine_type={machine}"
    accelerated = chosen is not None or flags.accelerator_type is not None
    if not flags["disk_size_gb"]:
        yield f"--disk_size_gb={ACCELERATOR_DISK_GB if accelerated else CPU_DISK_GB}"
    shares_gpu = "use_nvidia_mps" in (flags.accelerator or "")
    if accelerated and not (shares_gpu or _SEVERAL in flags.experiments):
        if ONE_PROCESS not in flags.experiments:
            yield f"--experiments={ONE_PROCESS}"
        if not flags["number_of_worker_harness_threads"]:
            yield f"--number_of_worker_harness_threads={_BUNDLES}"


def worker_lines(job: RunnerOptions) -> Iterator[str]:
    """Says where a Dataflow job runs, of what image, and what each of its workers is."""
    flags = BeamFlags.of([*job.beam_args, *_workers(job, BeamFlags.of(job.beam_args))])
    most = flags["max_num_workers"]
    yield (
        f"{job.runner} in {flags.region}, project {flags['project']}: "
        f"{flags.image or 'packages that each worker installs'}, "
        f"{f'at most {most}' if most else 'as many as the service starts'} workers of "
        f"{flags['machine_type'] or 'a machine that Dataflow chooses'}"
    )
    if (accelerator := flags.accelerator) is not None:
        machine = flags["machine_type"] or "a machine that Dataflow chooses"
        chosen = ACCELERATORS.get(job.accelerator or "")
        chips = f"{counted(chosen.chips, 'chip')} ({accelerator})" if chosen else accelerator
        one = ONE_PROCESS in flags.experiments
        processes = f"one process ({ONE_PROCESS})" if one else "several processes"
        yield f"each worker: {machine}, {chips}, {flags['disk_size_gb']} GB of disk, {processes}"


def run_on_dataflow(
    options: PipelineOptions, work: Callable[[beam.Pipeline], None], flags: BeamFlags
) -> None:
    """Submits a pipeline with the graph that `work` adds; waits unless told otherwise."""
    # The service's clients, which other runs do not need.
    from apache_beam.runners.dataflow.dataflow_runner import (
        DataflowRunner,
        DataflowRuntimeException,
    )
    from apache_beam.runners.dataflow.internal.apiclient import DataflowJobAlreadyExistsError
    from google.api_core.exceptions import Conflict, GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError

    pipeline = beam.Pipeline(options=options)
    work(pipeline)
    try:
        result = pipeline.run()
    except (Conflict, DataflowJobAlreadyExistsError) as error:
        raise JobGoesOn(
            "running",
            f"a job named {flags['job_name']} is already running in {flags.region} of project "
            f"{flags['project']}: wait for its end, cancel it, or give another --job_name",
        ) from error
    except (GoogleAPICallError, GoogleAuthError) as error:
        raise JobFailed(f"Dataflow does not accept the job: {error}") from error
    if not result.has_job:  # a template, whose launcher starts the job
        raise JobGoesOn("requested", f"the job to start is in {flags['template_location']}")
    place = f"{_CONSOLE}/{flags.region}/{result.job_id()}?project={flags['project']}"
    job = f"Dataflow job {result.job_id()} ({flags['job_name']})"
    if flags["no_wait_until_finish"]:
        raise JobGoesOn("requested", f"{job} continues: {place}")
    try:
        _LOG.warning("%s was submitted: %s", job, place)
        # Beam would ask in a thread of its own, whose errors it does not tell.
        DataflowRunner.poll_for_job_completion(pipeline.runner, result, None)
        result.wait_until_finish()
    except KeyboardInterrupt as error:
        stop = f"gcloud dataflow jobs cancel {result.job_id()} --region {flags.region}"
        raise JobGoesOn("interrupted", f"{job} continues: {place}\nto stop it: {stop}") from error
    except (GoogleAPICallError, GoogleAuthError, OSError) as error:
        raise JobGoesOn(
            "unknown",
            f"Dataflow does not answer any more ({error}), so it is not known whether {job} still "
            f"runs: {place}",
        ) from error
    except DataflowRuntimeException as error:
        lines = [line for line in str(error).splitlines()[1:] if line.strip() not in ("", "None")]
        why = f" ({lines[-1].strip()})" if lines else ""
        raise JobFailed(f"{job} ended as {result.state}{why}: {place}") from error
    if result.state != PipelineState.DONE:
        raise JobFailed(f"{job} ended as {result.state}: {place}")
