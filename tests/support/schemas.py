"""Writes tests/integration/deploy/schemas: what Kubernetes, Flink's operator and Terraform take.

python -m tests.support.schemas OPERATOR_API.jar CDKTF_GOOGLE.whl

OPERATOR_API.jar is `org.apache.flink:flink-kubernetes-operator-api` from Maven, whose definition of
a FlinkDeployment holds that of a Pod; CDKTF_GOOGLE.whl is `cdktf-cdktf-provider-google` of PyPI,
whose classes have the arguments of Terraform's google provider. They are under the Apache License
2.0, the wheel under the Mozilla Public License 2.0.
"""

import ast
import json
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import yaml

from tests.support.command import ROOT

FOLDER = ROOT / "tests" / "integration" / "deploy" / "schemas"
DEFINITION = "META-INF/fabric8/flinkdeployments.flink.apache.org-v1.yml"
# Of every resource, by Terraform itself.
_META = {"connection", "count", "depends_on", "for_each", "lifecycle", "provider", "provisioners"}


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


def of_terraform(wheel: Path) -> dict[str, Any]:
    """The arguments of each resource in deploy/terraform: `{name: [is required, those inside]}`."""
    text = "\n".join(path.read_text("utf-8") for path in ROOT.glob("deploy/terraform/*.tf"))
    made = {}
    with zipfile.ZipFile(wheel) as archive:
        for kind in sorted(set(re.findall(r'^resource "google_(\w+)"', text, re.MULTILINE))):
            module = archive.read(f"cdktf_cdktf_provider_google/{kind}/__init__.py")
            classes = {
                node.name: node for node in ast.parse(module).body if isinstance(node, ast.ClassDef)
            }
            config = "".join(map(str.capitalize, kind.split("_"))) + "Config"
            made[f"google_{kind}"] = _arguments(config, classes)
    return {"terraform": made}


def _arguments(name: str, classes: dict[str, ast.ClassDef]) -> dict[str, Any]:
    [init] = [
        node
        for node in classes[name].body
        if isinstance(node, ast.FunctionDef) and node.name == "__init__"
    ]
    made = {}
    for argument, default in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True):
        annotation = ast.unparse(argument.annotation) if argument.annotation else ""
        if argument.arg in _META:
            continue
        inside = [one for one in re.findall(r"\b([A-Z]\w+)\b", annotation) if one in classes]
        made[argument.arg] = [default is None, _arguments(inside[0], classes) if inside else {}]
    return made


if __name__ == "__main__":
    jar, wheel = map(Path, sys.argv[1:])
    for name, schema in (of_operator(jar) | of_terraform(wheel)).items():
        text = json.dumps(schema, separators=(",", ":"), sort_keys=True)
        (FOLDER / f"{name}.json").write_text(f"{text}\n", "utf-8")
