"""What Google's services take, by the discovery documents that google-api-python-client brings."""

import functools
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_KINDS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
}


@functools.cache
def schemas(document: str) -> dict[str, Any]:
    """The schemas of a service, such as `bigquery.v2`; none where the package is not installed."""
    if find_spec("googleapiclient") is None:
        return {}
    found = find_spec("googleapiclient.discovery_cache")
    assert found is not None
    assert found.origin is not None
    path = Path(found.origin).parent / "documents" / f"{document}.json"
    return json.loads(path.read_text("utf-8"))["schemas"]


def problems(body: Any, document: str, schema: str) -> list[str]:
    """Why a service would refuse a body: fields that it does not know, values of another type."""
    known = schemas(document)
    return list(_problems(body, {"$ref": schema}, known, schema)) if known else []


def _problems(value: Any, schema: dict[str, Any], known: dict[str, Any], at: str) -> Any:
    if "$ref" in schema:
        schema = known[schema["$ref"]]
    kind = schema.get("type", "any")
    if value is None or kind == "any":
        return
    if "enum" in schema and type(value) is int:  # as Beam's client for Dataflow asks to be read
        value = dict(enumerate(schema["enum"])).get(value, str(value))
    # The service's own client sends parameters of FLOAT64 as numbers, though they should be text.
    is_parameter = "parameterValue" in at and isinstance(value, float)
    as_text = is_parameter or _is_number_as_text(value, schema)
    if not isinstance(value, _KINDS[kind]) and not as_text:
        yield f"{at}: must be {schema.get('format', kind)}, got {type(value).__name__}"
    elif kind == "array":
        for place, item in enumerate(value):
            yield from _problems(item, schema["items"], known, f"{at}[{place}]")
    elif kind == "object":
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        for name, item in value.items():
            inner = properties.get(name, others)
            if inner is None:
                yield f"{at}: Unknown name {name!r}"
            else:
                yield from _problems(item, inner, known, f"{at}.{name}")
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {', '.join(schema['enum'])}"


def _is_number_as_text(value: Any, schema: dict[str, Any]) -> bool:
    """Services take numbers of 64 bits as numbers, too, and numbers and booleans as text."""
    if schema.get("format") in ("int64", "uint64"):
        return isinstance(value, int)
    if schema["type"] == "boolean":
        return value in ("true", "false")
    return schema["type"] in ("integer", "number") and isinstance(value, str) and value.isdigit()
