"""Writes tests/integration/deploy/schemas: what Kubernetes, Flink's operator and Cloud Run take.

python -m tests.support.schemas OPERATOR_API.jar RUN_V1.json

OPERATOR_API.jar is `org.apache.flink:flink-kubernetes-operator-api` from Maven, whose definition of
a FlinkDeployment holds that of a Pod; RUN_V1.json is Cloud Run's discovery document, which
google-api-python-client brings. Both are under the Apache License 2.0.
"""

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import yaml

from tests.support.command import ROOT

FOLDER = ROOT / "tests" / "integration" / "deploy" / "schemas"
DEFINITION = "META-INF/fabric8/flinkdeployments.flink.apache.org-v1.yml"
JOB = "Job"


def strict(schema: Any) -> Any:
    """The schema, where an object with named properties takes no others."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    made = {name: strict(inner) for name, inner in schema.items()}
    return made | {"additionalProperties": False} if "properties" in schema else made


def of_operator(jar: Path) -> dict[str, Any]:
    """The schemas of a FlinkDeployment and, in it three times, of a Pod."""
    with zipfile.ZipFile(jar) as archive:
        definition = yaml.load(archive.read(DEFINITION), yaml.CSafeLoader)
    [version] = definition["spec"]["versions"]
    flink = version["schema"]["openAPIV3Schema"]
    spec = flink["properties"]["spec"]["properties"]
    pod = strict(spec["podTemplate"])
    for holder in (spec, spec["jobManager"]["properties"], spec["taskManager"]["properties"]):
        holder["podTemplate"] = {"$ref": "pod_v1.json"}
    for name in ("apiVersion", "kind"):
        flink["properties"][name] = {"type": "string"}
    flink["properties"]["metadata"] = pod["properties"]["metadata"]
    flink["required"] = ["apiVersion", "kind", "metadata", "spec"]
    return {"pod_v1": pod, f"flinkdeployment_{version['name']}": strict(flink)}


def of_cloud_run(document: Path) -> dict[str, Any]:
    """The schema of a job, with those that it names."""
    known, found = json.loads(document.read_text("utf-8"))["schemas"], {}
    waiting = [JOB]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = _described(known[name], waiting)
    return {"job_v1": {"$ref": f"#/$defs/{JOB}", "$defs": strict(found)}}


def _described(schema: dict[str, Any], waiting: list[str]) -> dict[str, Any]:
    """A schema of a discovery document as JSON Schema."""
    if "$ref" in schema:
        waiting.append(schema["$ref"])
        return {"$ref": f"#/$defs/{schema['$ref']}"}
    made = {name: schema[name] for name in ("type", "enum") if name in schema}
    if made.get("type") == "any":
        return {}
    for name in ("items", "additionalProperties"):
        if name in schema:
            made[name] = _described(schema[name], waiting)
    if "properties" in schema:
        made["properties"] = {
            name: _described(inner, waiting) for name, inner in schema["properties"].items()
        }
    return made


if __name__ == "__main__":
    for name, schema in (of_operator(Path(sys.argv[1])) | of_cloud_run(Path(sys.argv[2]))).items():
        text = json.dumps(schema, separators=(",", ":"), sort_keys=True)
        (FOLDER / f"{name}.json").write_text(f"{text}\n", "utf-8")
