"""Makes the parameters of a Dataflow Flex Template from the flags, and options from parameters.

The keys are those of a template's metadata in Dataflow's documentation (ParameterMetadata).
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert_embed.pipeline.config_file import combined, read_config
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.flags import POSITIVE, Whole
from bert_embed.pipeline.options import DEFAULTS, FLAGS, Options
from bert_embed.pipeline.parser import help_of
from bert_embed.transforms.bigquery.client import looks_like_table

METADATA = Path(__file__).resolve().parents[2] / "deploy" / "dataflow" / "metadata.json"
# A template always runs on Dataflow, and its launcher shows no plan.
_LEFT_OUT = {"runner", "dry_run"}
_TYPES = {
    "output": "GCS_WRITE_FOLDER",
    "tfrecord_output": "GCS_WRITE_FOLDER",
    "output_table": "BIGQUERY_TABLE",
}
_PLACE = r"(gs://|[a-z][-a-z0-9:.]*[.:][A-Za-z0-9_]+\.)[^\n\r]+"
_PATTERNS = {
    "input": _PLACE,
    "skip_existing": _PLACE,
    "output": r"gs://[^\n\r]+",
    "tfrecord_output": r"gs://[^\n\r]+",
}
_DAY = re.compile(r"\{[^{}]*\}")
_WORKERS_IMAGE = {
    "name": "sdk_container_image",
    "label": "Image of the workers",
    "helpText": "The image of this template, which the workers run, too.",
    "groupName": "On Dataflow",
}
_CONFIG = {
    "name": "config",
    "label": "Config",
    "helpText": "YAML file with any of these flags, and of Beam's; parameters win.",
    "isOptional": True,
    "paramType": "GCS_READ_FILE",
    "groupName": "Input",
}
_DISK = {
    "name": "disk_size_gb",
    "label": "Disk size gb",
    "helpText": "Gigabytes of each worker's disk.",
    "isOptional": True,
    "paramType": "NUMBER",
    "regexes": [f"^{POSITIVE.pattern}$"],
    "groupName": "On Dataflow",
}


def metadata() -> dict[str, Any]:
    """The content of metadata.json: every flag of `embed` that a template can use."""
    described = [_parameter(name) for name in FLAGS if name not in _LEFT_OUT]
    return {
        "name": "Text to BERT vectors",
        "description": "Turns a corpus of text into BERT vectors.",
        "parameters": [_WORKERS_IMAGE, *described, _CONFIG, _DISK],
    }


def _parameter(name: str) -> dict[str, Any]:
    flag, default = FLAGS[name], DEFAULTS[name]
    text = help_of(name)
    several = "; several with commas" if flag.is_repeated else ""
    found: dict[str, Any] = {
        "name": name,
        "label": name.replace("_", " ").capitalize(),
        "helpText": f"{text.replace('; can be repeated', '')}{several}.",
    }
    if name != "output":  # a query stands in for the input
        found["isOptional"] = True
    if flag.group is not None:
        found["groupName"] = _group(flag.group)
    found |= _typed(name)
    if default not in (None, "", (), False):
        value = ",".join(default) if isinstance(default, tuple) else str(default)
        found["defaultValue"] = value.lower() if flag.is_switch else value
    if flag.requires is not None:  # the page shows it only then
        parent, values = flag.requires
        found |= {"parentName": parent, "parentTriggerValues": list(values)}
    return found


def _group(title: str) -> str:
    title = title.partition(" (")[0]
    return f"{title[0].upper()}{title[1:]}"


def _typed(name: str) -> dict[str, Any]:
    flag = FLAGS[name]
    if flag.is_switch:
        return {"paramType": "BOOLEAN"}
    if flag.choices is not None:
        options = [{"value": value, "label": value} for value in flag.choices]
        return {"paramType": "ENUM", "enumOptions": options}
    found: dict[str, Any] = {"paramType": _TYPES[name]} if name in _TYPES else {}
    if isinstance(flag.kind, Whole):
        found["paramType"] = "NUMBER"
    pattern = getattr(flag.kind, "pattern", _PATTERNS.get(name))
    return found | ({"regexes": [f"^({pattern})$"]} if pattern else {})


def run_template(words: Sequence[str]) -> int:
    """Runs `embed` with the words with which a launcher starts a template.

    Raises:
        InputError, StorageError: As `template_options` and `start`.
    """
    options = template_options(words)
    from bert_embed.pipeline.commands.start import start  # imports Beam

    return start(options)


def template_options(words: Sequence[str]) -> Options:
    """The options for the words with which a launcher starts a template.

    Parameters that were left empty are dropped; those that are none of ours are Beam's flags.

    Raises:
        InputError: A word is not `--name=value`, or its parameter is unknown or wrong.
    """
    values: dict[str, Any] = {}
    beam_args: list[str] = []
    config, flags = None, [f"--{name}" for name in FLAGS]
    for word in words:
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            raise UsageError(f"{word} is not name=value, as a template's parameters must be")
        if equals and not value:
            continue
        if name == "config":
            config = read_config(value, flags)
        elif name not in FLAGS:
            beam_args.append(word)
        elif FLAGS[name].is_repeated:
            values[name] = [*values.get(name, ()), *_places(value)]
        else:  # the launcher's own switches have no value
            values[name] = value if equals else True
    options = combined(values, config, beam_args, flags, "bert-embed embed")
    options.require("input", "output")
    return options


def _places(text: str) -> list[str]:
    """The places in a text with commas, which a file's name may hold, too.

    >>> _places("gs://b/x,gs://b/y,z,my-project.d.t")
    ['gs://b/x', 'gs://b/y,z', 'my-project.d.t']
    """
    first, *others = text.split(",")
    places = [first]
    for part in others:
        # A table may be named by its day.
        if part.startswith("gs://") or looks_like_table(_DAY.sub("1", part)):
            places.append(part)
        else:
            places[-1] += f",{part}"
    return places


def metadata_text() -> str:
    """What metadata.json holds."""
    return json.dumps(metadata(), indent=2) + "\n"


if __name__ == "__main__":
    METADATA.write_text(metadata_text(), "utf-8")
