"""Runs a job on the runner that its options name, with the model where workers can load it."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec

import apache_beam as beam

from bert_embed.backends.choose import check_precision, chip_memory, find_backend, model_backend
from bert_embed.backends.jax.chips import check_fits
from bert_embed.backends.processor import has_int8_products
from bert_embed.base.environment import missing
from bert_embed.base.errors import SettingError
from bert_embed.bundle.bundle import METADATA, Bundle
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.runners.beam import (
    SWITCHING,
    BeamFlags,
    configure_storage,
    flag_problems,
    pipeline_options,
)
from bert_embed.pipeline.runners.dataflow import (
    Identity,
    accelerator_of,
    completed_flags,
    for_dataflow,
    run_on_dataflow,
)
from bert_embed.pipeline.runners.errors import JobGoesOn
from bert_embed.pipeline.runners.options import DEFAULT_RUNNER, RunnerOptions
from bert_embed.pipeline.runners.portable import PortableJob, check_job_server, run_on_job_server
from bert_embed.storage.files import absolute, is_remote, join, read_bytes
from bert_embed.transforms.steps import without_cell_labels
from bert_embed.transforms.worker_bundles import PROGRAMS, publish_bundle


def checked_runner(
    job: RunnerOptions, read: Sequence[tuple[str, str]], output: str, connects: bool = True
) -> RunnerOptions:
    """The runner of a job, checked before any work starts; UsageError names the flag.

    `read` are places that it reads, each behind the flag that names it. Without `connects` no
    server is asked.
    """
    if job.accelerator is not None and not job.is_dataflow:
        said = "requires runner DataflowRunner; for other runners give device"
        raise SettingError("accelerator", said, "runner", "device")
    if job.is_dataflow:
        job = for_dataflow(job, read, output)
    flags = BeamFlags.of(job.beam_args)
    for problem in flag_problems(flags, job.is_dataflow) if job.beam_args else ():
        raise UsageError(problem)
    if job.is_portable:
        check_job_server(job, connects)
    if job.name in (DEFAULT_RUNNER.lower(), *SWITCHING):
        for flag in filter(flags.names, ("--num_workers", "--max_num_workers")):
            raise UsageError(f"{flag} is for Dataflow and has no effect here; set --threads")
    configure_storage(job)
    return job


def check_computing(job: RunnerOptions, reads_examples: bool) -> None:
    """Raises ValueError if no machine, or not this one if it runs here, computes or reads so."""
    check = find_backend if job.runs_here else check_precision
    check(job.precision, job.device, job.engine)
    if reads_examples and job.runs_here and find_spec("tensorflow") is None:
        raise UsageError(missing("reading TFRecord files of examples", "tensorflow"))


def check_memory(
    job: RunnerOptions, bundle: Bundle, batch_tokens: int | None, longest: int
) -> None:
    """Raises SettingError if a model does not fit in the chips of the workers, or of this machine.

    `batch_tokens` and `longest` are tokens of a batch and of its longest text.
    """
    if job.is_dataflow and (found := accelerator_of(job)) is not None:
        device, chip = found.device, f"one of {found.type}"
        memory = [found.memory_gb * 10**9] * found.chips
    elif job.runs_here and job.device in ("gpu", "tpu"):
        device, chip = job.device, f"a {job.device.upper()} of this machine"
        memory = chip_memory(bundle.config, job.precision, job.device, job.engine)
    else:
        return
    if memory:
        check_fits(bundle, job.precision, batch_tokens, longest, device, chip, memory)


def notes_of_this_machine(job: RunnerOptions, reads_tfrecord: bool) -> Iterator[str]:
    """Says if this machine is no faster in int8, or cannot read what its report is of."""
    if job.precision == "int8" and job.runs_here and not has_int8_products():
        yield (
            "note: --precision int8 is no faster than float32 on this processor, which has no "
            "products in int8 (AVX-512 VNNI, AVX-VNNI, AMX, or asimddp on Arm)"
        )
    if reads_tfrecord and not find_spec("tensorflow"):
        why = missing("report.html of TFRecord files", "tensorflow")
        yield f"note: {why}; or leave it out with --report false"


def engine_of(job: RunnerOptions, bundle: Bundle) -> str | None:
    """Name of the engine that computes; None for workers, which choose it by their devices.

    SettingError: the model has an engine of its own, which does not compute so.
    """
    if not job.runs_here and not bundle.config.engine:
        return None
    return model_backend(bundle.config, job.precision, job.device, job.engine)[0].name


def bundle_for_workers(bundle: Bundle, model: str, job: RunnerOptions) -> Bundle:
    """The bundle as workers load it: copied to `--temp_location`, once, if they are elsewhere."""
    if job.runs_here:
        return bundle
    temp_location = BeamFlags.of(job.beam_args)["temp_location"]
    if temp_location:
        return replace(bundle, path=publish_bundle(bundle, absolute(temp_location)))
    if is_remote(model) and read_bytes(join(model, METADATA)) is not None:
        return replace(bundle, path=model.rstrip("/"))
    return bundle


def programs_place(job: RunnerOptions, place: str) -> str:
    """Where workers keep the programs that they compile of a model at a place; "": each its own.

    Beside a model that a job copied there. Elsewhere a model could bring programs, which are code.
    """
    temp_location = BeamFlags.of(job.beam_args)["temp_location"]
    ours = temp_location and place.startswith(join(absolute(temp_location), ""))
    return join(place, PROGRAMS) if ours and not job.runs_here else ""


def run_on_runner(
    job: RunnerOptions,
    words: Sequence[str],
    work: Callable[[beam.Pipeline], None],
    submitted: Callable[[dict[str, str]], None],
) -> bool:
    """Runs a job with the graph that `work` adds; returns whether Beam waited for its end.

    `words` are its flags of Beam, completed; `submitted` takes the job that a job server has, as
    JSON-able values. JobGoesOn: the job outlives this command, as with --no_wait_until_finish.
    """
    flags = BeamFlags.of(words)
    options, waits = pipeline_options(job, flags.words), not flags["no_wait_until_finish"]
    with without_cell_labels():
        if job.is_portable:
            run_on_job_server(options, work, PortableJob.of(job, flags), submitted, waits)
        elif job.is_dataflow:
            run_on_dataflow(options, work, flags)
        else:
            # Workers elsewhere read it themselves.
            level = flags["default_sdk_harness_log_level"] or ""
            if level in logging.getLevelNamesMapping():
                logging.getLogger("bert_embed").setLevel(level)
            with beam.Pipeline(options=options) as pipeline:
                work(pipeline)
    return waits


def describe_idle_job(job: RunnerOptions, identity: Identity) -> None:
    """Describes a job that does nothing, where the launcher of a template waits for one.

    Without the file the service takes a launch that had nothing to do for one that failed.
    """
    if job.is_dataflow and BeamFlags.of(job.beam_args)["template_location"]:
        words = completed_flags(replace(job, accelerator=None), identity)
        with suppress(JobGoesOn):
            run_on_runner(job, words, lambda root: root | beam.Create([None]), lambda _: None)
