"""Describes the Dataflow job of a run for its plan."""

from collections.abc import Iterator

from bert_embed.pipeline.run import EmbedRun
from bert_embed.pipeline.runners.beam_flags import BeamFlags
from bert_embed.pipeline.runners.dataflow import job_flags, model_hints
from bert_embed.pipeline.secrets import hide_in_flags


def dataflow_lines(run: EmbedRun) -> list[str]:
    """The job that would be submitted, by its flags alone; [] for other runners."""
    if not run.job.is_dataflow:
        return []
    flags = job_flags(run)
    given = BeamFlags.of(flags)
    added = hide_in_flags(flags[len(run.job.beam_args) :])
    rows = {
        "Dataflow job": f"{given['job_name']}, {given.region}, project {given['project']}",
        "workers": ", ".join(_workers(run, given)),
        "accelerator": _accelerator(run, given),
        "network": _network(given),
        "code": given.image or f"installed by every worker from {_package(given)}",
        "model": f"{_megabytes(run):,.1f} MB, copied to {given['temp_location']}/bundles, once",
        "staged": ", ".join(_staged(given)),
        "labels": ", ".join(f"{name}={value}" for name, value in given.labels.items()),
        "flags added": " ".join(added) or "none",
    }
    return [f"{name + ':':<13} {value}" for name, value in rows.items()]


def _workers(run: EmbedRun, given: BeamFlags) -> Iterator[str]:
    least, most = given["num_workers"] or 1, given["max_num_workers"]
    yield given["machine_type"] or "machines that the service chooses"
    yield f"{least} to {most}" if most else f"{least} or more, as the service decides"
    yield f"{given['disk_size_gb']} GB of disk each"
    yield "one process each" if given.one_process else "one process per core"
    yield f"--device {run.job.device}, --precision {run.job.precision}"
    if given["flexrs_goal"]:
        yield f"FlexRS {given['flexrs_goal']}"


def _accelerator(run: EmbedRun, given: BeamFlags) -> str:
    hint = model_hints(run.job).get("accelerator")
    if hint:
        return f"{hint}, by a hint for the step Embed (the model and the writing)"
    if given.worker_accelerator:
        return f"{given.worker_accelerator}, for every worker"
    if given.hinted_accelerator:
        return f"{given.hinted_accelerator}, by a hint for every step"
    return "none"


def _network(given: BeamFlags) -> str:
    where = given["subnetwork"] or given["network"] or "the project's default network"
    private = given["use_public_ips"] is False
    return f"{where}, {'private' if private else 'public'} addresses"


def _package(given: BeamFlags) -> str:
    return given["setup_file"] or ", ".join(given["extra_packages"] or ())


def _staged(given: BeamFlags) -> Iterator[str]:
    yield f"the graph, to {given['staging_location'] or given['temp_location']}"
    if given["setup_file"]:
        yield f"a package made with {given['setup_file']}"
    yield from given["extra_packages"] or ()
    if given["requirements_file"]:
        yield f"the packages of {given['requirements_file']}"


def _megabytes(run: EmbedRun) -> float:
    return sum(run.bundle.sizes().values()) / 1e6
