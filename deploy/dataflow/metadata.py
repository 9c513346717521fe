"""Writes metadata.json, the parameters of the Dataflow Flex Template, from the flags of `embed`.

The keys are those of a template's metadata in Dataflow's documentation (ParameterMetadata).
"""

import json
from pathlib import Path
from typing import Any

from bert_embed.pipeline.options.embed import DEFAULTS, FLAGS, grouped
from bert_embed.pipeline.options.flags import POSITIVE, Whole

METADATA = Path(__file__).with_name("metadata.json")
# A template always runs on Dataflow, and its launcher shows no plan.
_LEFT_OUT = {"runner", "dry_run"}
_TYPES = {
    "output": "GCS_WRITE_FOLDER",
    "output_table": "BIGQUERY_TABLE",
}
_PLACE = r"(gs://|[a-z][-a-z0-9:.]*[.:][A-Za-z0-9_]+\.)[^\n\r]+"
_PATTERNS = {
    "input": _PLACE,
    "skip_existing": _PLACE,
    "output": r"gs://[^\n\r]+",
}
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
_DAYS = {
    "name": "catch_up_days",
    "label": "Catch up days",
    "helpText": "The oldest of so many days, up to that of the launch, that has an input and no "
    "complete output is embedded; output must hold the day (default: 1).",
    "isOptional": True,
    "paramType": "NUMBER",
    "regexes": [f"^{POSITIVE.pattern}$"],
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
        "parameters": [_WORKERS_IMAGE, *described, _CONFIG, _DAYS, _DISK],
    }


def _parameter(name: str) -> dict[str, Any]:
    flag, default = FLAGS[name], DEFAULTS[name]
    text = flag.help
    several = "; several with commas" if flag.is_repeated else ""
    parameter: dict[str, Any] = {
        "name": name,
        "label": name.replace("_", " ").capitalize(),
        "helpText": f"{text.replace('; can be repeated', '')}{several}.",
    }
    if name != "output":  # a query stands in for the input
        parameter["isOptional"] = True
    parameter["groupName"] = next(
        _group(title) for title, names in grouped().items() if name in names
    )
    parameter |= _typed(name)
    if default not in (None, "", (), False):
        value = ",".join(default) if isinstance(default, tuple) else str(default)
        parameter["defaultValue"] = value.lower() if flag.is_switch else value
    if flag.requires is not None:  # the page shows it only then
        parent, values = flag.requires
        parameter |= {"parentName": parent, "parentTriggerValues": list(values)}
    return parameter


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
    parameter: dict[str, Any] = {"paramType": _TYPES[name]} if name in _TYPES else {}
    if isinstance(flag.kind, Whole):
        parameter["paramType"] = "NUMBER"
    pattern = getattr(flag.kind, "pattern", _PATTERNS.get(name))
    return parameter | ({"regexes": [f"^({pattern})$"]} if pattern else {})


def metadata_text() -> str:
    """What metadata.json holds."""
    return json.dumps(metadata(), indent=2) + "\n"


if __name__ == "__main__":
    METADATA.write_text(metadata_text(), "utf-8")
