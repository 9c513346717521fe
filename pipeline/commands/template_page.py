"""Writes docs/template.md, the page of the Flex Template, from its metadata."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bert_embed.pipeline.commands.flex_template import metadata

PAGE = Path(__file__).resolve().parents[2] / "docs" / "template.md"
_HEAD = """\
# The Flex Template: {name}

{description} [Dataflow](dataflow.md#ten-steps) says how to build it. This page is generated from
its [metadata](../deploy/dataflow/metadata.json):
`python -m bert_embed.pipeline.commands.template_page` writes it.

`make dataflow DO=launch` starts it with the variables of `deploy/dataflow/variables.env`. By hand:

```bash
{gcloud}
```

As the body that `flexTemplates:launch` takes, which [Terraform's](../deploy/terraform/README.md)
schedule and [Airflow](schedule.md#airflow) send:

```json
{body}
```

With Terraform, every day:

```hcl
{terraform}
```

A parameter is `name=value`, a switch `true` or `false`; several values are separated by commas.
What is left empty counts as not given. In `input`, `query`, `output`, `output_table`,
`tfrecord_output` and `skip_existing`, `{{yesterday}}` and `{{date:%Y/%m/%d}}` become days."""
_TEMPLATE = "gs://my-bucket/templates/bert-embed-cpu-TAG.json"
_IMAGE = "us-central1-docker.pkg.dev/my-project/images/bert-embed-cpu-template:TAG"
_GIVEN = {
    "sdk_container_image": _IMAGE,
    "input": "gs://my-bucket/texts/{yesterday}/*.jsonl",
    "output": "gs://my-bucket/vectors/{yesterday}",
    "model": "minilm",
    "max_rejected": "1%",
}


def template_page() -> str:
    """The text of the page."""
    return "\n".join([*_lines(metadata()), ""])


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield _HEAD.format(
        name=found["name"],
        description=found["description"],
        gcloud=_gcloud(),
        body=_body(),
        terraform=_terraform(),
    )
    groups = dict.fromkeys(each.get("groupName", "Other") for each in found["parameters"])
    for group in groups:
        yield f"\n## {group}\n"
        yield from (
            "| parameter | value | default | only with | meaning |",
            "|---|---|---|---|---|",
        )
        for each in found["parameters"]:
            if each.get("groupName", "Other") == group:
                yield "| " + " | ".join(_cells(each)) + " |"


def _cells(each: dict[str, Any]) -> Iterator[str]:
    yield f"`{each['name']}`" + ("" if each.get("isOptional") else " (required)")
    options = [option["value"] for option in each.get("enumOptions", [])]
    yield ", ".join(options) if options else each.get("paramType", "TEXT")
    yield f"`{each['defaultValue']}`" if "defaultValue" in each else ""
    parent, values = each.get("parentName"), each.get("parentTriggerValues", [])
    yield f"`{parent}` {', '.join(values)}" if parent else ""
    yield each["helpText"].replace("|", "\\|")


def _gcloud() -> str:
    given = ",".join(f"{name}={value}" for name, value in _GIVEN.items())
    return " \\\n    ".join(
        (
            "gcloud dataflow flex-template run bert-embed-daily --project my-project",
            f"--region us-central1 --template-file-gcs-location {_TEMPLATE}",
            "--temp-location gs://my-bucket/tmp --max-workers 20",
            f"--parameters '{given}'",
        )
    )


def _body() -> str:
    launch = {
        "jobName": "bert-embed-daily",
        "containerSpecGcsPath": _TEMPLATE,
        "parameters": _GIVEN,
        "environment": {"tempLocation": "gs://my-bucket/tmp", "maxWorkers": 20},
    }
    return json.dumps({"launchParameter": launch}, indent=2)


def _terraform() -> str:
    given = {name: value for name, value in _GIVEN.items() if name != "sdk_container_image"}
    width = max(map(len, given))
    lines = [f'    {name:{width}} = "{value}"' for name, value in given.items()]
    return "\n".join(
        (
            'module "bert_embed" {',
            '  source     = "./deploy/terraform"',
            '  project    = "my-project"',
            '  region     = "us-central1"',
            '  image_tag  = "TAG"',
            "  parameters = {",
            *lines,
            "  }",
            "}",
        )
    )


if __name__ == "__main__":
    PAGE.write_text(template_page(), "utf-8")
