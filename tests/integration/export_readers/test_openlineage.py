"""OpenLineage's events, as its own Python client reads them: run by `make test-export`."""

import importlib
import json

import attr
import pytest
from openlineage.client import facet_v2
from openlineage.client.generated.base import Job, Run, RunEvent
from openlineage.client.run import RunState

from bert_embed.pipeline import job
from bert_embed.pipeline.cli import main
from tests.support.command import flags_of


def facet(name, values):
    """A facet as the client's class has it; TypeError if it lacks a field, or has others."""
    definition = values["_schemaURL"].rpartition("/")[2]
    classes = (getattr(module, definition, None) for module in vars(facet_v2).values())
    of_client = next(filter(None, classes))
    fields = {key: value for key, value in values.items() if not key.startswith("_")}
    if name in ("schema", "tags"):
        (key,), row = fields, {"schema": "SchemaDatasetFacetFields", "tags": "TagsRunFacetFields"}
        of_row = getattr(importlib.import_module(of_client.__module__), row[name])
        fields[key] = [of_row(**one) for one in fields[key]]
    known = of_client(producer=values["_producer"], **fields)
    assert vars_of(known)["_schemaURL"] == values["_schemaURL"], name
    return known


def vars_of(known):
    return attr.asdict(known, recurse=False)


def facets(*groups):
    return [facet(name, values) for group in groups for name, values in group.items()]


@pytest.mark.parametrize("fails", [False, True])
def test_the_client_knows_every_field(tmp_path, tiny_bundle, monkeypatch, fails):
    (tmp_path / "in.txt").write_text("the river\nthe bank\n")
    words = ["embed", *flags_of(tmp_path / "out", tiny_bundle, tmp_path / "in.txt")]
    if fails:
        monkeypatch.setattr(job, "run_on_runner", lambda *_: 1 / 0)
    assert main([*words, f"--openlineage={tmp_path}/events"]) == fails
    for line in (tmp_path / "events").read_text().splitlines():
        event = json.loads(line)
        run, made = event["run"], event["job"]
        assert facets(run.pop("facets"), made.pop("facets"))
        for name in ("inputs", "outputs"):
            for one in event.pop(name):
                assert facets(one["facets"], one[f"{name[:-1]}Facets"])
                assert one["namespace"] == "file"
        schema = event.pop("schemaURL")
        event["eventType"] = RunState[event["eventType"]]
        known = RunEvent(**{**event, "run": Run(**run), "job": Job(**made)})
        assert known.schemaURL == schema
