"""The model on workers: a bundle in, the same where a job's workers find it out."""

from dataclasses import replace

from apache_beam.options.pipeline_options import GoogleCloudOptions, PipelineOptions

from bert.bundle import METADATA, Bundle
from bert.engine import check_machine, check_model
from pipeline.options import EmbedOptions
from transforms.files import absolute, is_remote, join, read_bytes
from transforms.worker_bundles import publish_bundle

_LOCAL_RUNNERS = (
    "fnapirunner",
    "directrunner",
    "switchingdirectrunner",
    "prismrunner",
    "interactiverunner",
)


def check_precision(options: EmbedOptions, bundle: Bundle) -> None:
    """ValueError if the model, or this machine where it runs here, cannot compute so."""
    check_model(options.precision, bundle, options.device)
    if runs_here(options):
        check_machine(options.precision, options.device)


def bundle_for_workers(bundle: Bundle, options: EmbedOptions) -> Bundle:
    """The bundle where workers find it: copied to `--temp_location`, once, if they are elsewhere.

    Local runners keep the local folder, as do others without a `--temp_location`: their workers
    share this machine's files, or fetch the bundle where `--model gs://…` has it.
    """
    if runs_here(options):
        return bundle
    temp_location = _temp_location(options)
    if temp_location:
        return replace(bundle, path=publish_bundle(bundle, absolute(temp_location)))
    if is_remote(options.model) and read_bytes(join(options.model, METADATA)) is not None:
        return replace(bundle, path=options.model.rstrip("/"))
    return bundle


def runs_here(options: EmbedOptions) -> bool:
    """Whether the job runs in this process, and ends with it."""
    return options.runner_name in _LOCAL_RUNNERS


def _temp_location(options: EmbedOptions) -> str | None:
    given = PipelineOptions(list(options.beam_args))
    return given.view_as(GoogleCloudOptions).temp_location
