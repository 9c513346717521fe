"""Copies the model to where the workers of a job can load it."""

from dataclasses import replace
from importlib.util import find_spec

from bert_embed.bundle.bundle import Bundle
from bert_embed.bundle.files import METADATA
from bert_embed.engines.choose import (
    check_machine,
    check_model,
    choose_engine,
    find_device,
    has_int8_products,
)
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options import EmbedOptions
from bert_embed.pipeline.runners.beam_flags import BeamFlags
from bert_embed.storage.files import absolute, is_remote, join, read_bytes
from bert_embed.storage.packages import missing
from bert_embed.transforms.worker_bundles import publish_bundle

_LOCAL_RUNNERS = (
    "fnapirunner",
    "directrunner",
    "switchingdirectrunner",
    "prismrunner",
    "interactiverunner",
)


def check_precision(options: EmbedOptions, bundle: Bundle) -> None:
    """Raises ValueError if the model, or this machine if it runs here, cannot use a precision."""
    check_model(options.precision, bundle, options.device)
    if runs_here(options):
        check_machine(options.precision, options.device)


def check_examples(options: EmbedOptions) -> None:
    """Raises UsageError if the job runs here and cannot read TFRecord files of examples."""
    if runs_here(options) and find_spec("tensorflow") is None:
        raise UsageError(missing("reading TFRecord files of examples", "tensorflow"))


def engine_of(options: EmbedOptions, bundle: Bundle) -> str | None:
    """Name of the engine that computes; None for workers, which choose it by their devices."""
    if not runs_here(options):
        return None
    device = "cpu" if bundle.kind == "saved_model" else options.device
    return choose_engine(bundle, options.precision, find_device(options.precision, device))


def precision_lines(options: EmbedOptions) -> list[str]:
    """Says if this machine, which computes, is no faster in int8."""
    if options.precision != "int8" or not runs_here(options) or has_int8_products():
        return []
    return [
        "note: --precision int8 is no faster than float32 on this processor, which has no "
        "products in int8 (AVX-512 VNNI, AVX-VNNI, AMX, or asimddp on Arm)"
    ]


def bundle_for_workers(bundle: Bundle, options: EmbedOptions) -> Bundle:
    """The bundle as workers load it: copied to `--temp_location`, once, if they are elsewhere.

    Local runners use the local folder. So do others without a `--temp_location`, whose workers
    share this machine's files, unless `--model` is a bundle in Cloud Storage.
    """
    if runs_here(options):
        return bundle
    temp_location = BeamFlags.of(options.beam_args)["temp_location"]
    if temp_location:
        return replace(bundle, path=publish_bundle(bundle, absolute(temp_location)))
    if is_remote(options.model) and read_bytes(join(options.model, METADATA)) is not None:
        return replace(bundle, path=options.model.rstrip("/"))
    return bundle


def runs_here(options: EmbedOptions) -> bool:
    """Whether the job runs in this process, and ends with it."""
    return options.runner_name in _LOCAL_RUNNERS
