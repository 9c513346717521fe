"""Makes the parameters of a Dataflow Flex Template from the flags, and flags from parameters.

The keys are those of a template's metadata in Dataflow's documentation (ParameterMetadata).
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bert_embed.pipeline.accelerators import ACCELERATORS
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.flags import AT_LEAST_ZERO, POSITIVE, Checked
from bert_embed.pipeline.options import DEFAULTS, FLAGS
from bert_embed.pipeline.parser import help_of
from bert_embed.specs import CHUNKS

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
# Flags that require a value of another one: the page of a template shows them only then.
_PARENTS = {
    "output_table": ("output_format", ["bigquery"]),
    "table_schema": ("output_format", ["bigquery"]),
    "write_disposition": ("output_format", ["bigquery"]),
    "stride": ("long_text", ["window"]),
    "merge_windows": ("long_text", ["window"]),
    **dict.fromkeys(("chunk_tokens", "chunk_overlap", "chunk_pooling"), ("chunk", list(CHUNKS))),
    "right_fitting": (
        "accelerator",
        [name for name, each in ACCELERATORS.items() if each.device == "gpu"],
    ),
}
_NEXT_PLACE = re.compile(r",(?=gs://)")
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
    several = "; several with commas" if flag.repeated else ""
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
        found["defaultValue"] = value.lower() if flag.switch else value
    if name in _PARENTS:
        parent, values = _PARENTS[name]
        found |= {"parentName": parent, "parentTriggerValues": values}
    return found


def _group(title: str) -> str:
    title = title.partition(" (")[0]
    return f"{title[0].upper()}{title[1:]}"


def _typed(name: str) -> dict[str, Any]:
    flag = FLAGS[name]
    if flag.switch:
        return {"paramType": "BOOLEAN"}
    if flag.choices is not None:
        options = [{"value": value, "label": value} for value in flag.choices]
        return {"paramType": "ENUM", "enumOptions": options}
    found: dict[str, Any] = {"paramType": _TYPES[name]} if name in _TYPES else {}
    if flag.type in (POSITIVE, AT_LEAST_ZERO):
        found["paramType"] = "NUMBER"
    pattern = flag.type.pattern if isinstance(flag.type, Checked) else _PATTERNS.get(name)
    return found | ({"regexes": [f"^({pattern})$"]} if pattern else {})


def template_arguments(words: Sequence[str]) -> list[str]:
    """The command line of `embed` for the words with which a launcher starts a template.

    Parameters that were left empty are dropped. Several files of one parameter become several
    flags.

    Raises:
        UsageError: A word is not `--name=value`.

    >>> template_arguments(["--input=gs://b/x,gs://b/y,z", "--model=", "--normalize=true"])
    ['--input=gs://b/x', '--input=gs://b/y,z', '--normalize=true']
    """
    return [flag for word in words for flag in _flags(word)]


def _flags(word: str) -> Iterator[str]:
    name, given, value = word.partition("=")
    if not name.startswith("--"):
        raise UsageError(f"{word} is not name=value, as a template's parameters must be")
    flag = FLAGS.get(name.removeprefix("--"))
    if flag is not None and flag.repeated and value:
        yield from (f"{name}={each}" for each in _NEXT_PLACE.split(value))
    elif value or not given:  # the launcher's own switches have no value
        yield word


def metadata_text() -> str:
    """What metadata.json holds."""
    return json.dumps(metadata(), indent=2) + "\n"


if __name__ == "__main__":
    METADATA.write_text(metadata_text(), "utf-8")
