"""Beam's monitoring shows the numbers of run.json, under names that stay what they are."""

import apache_beam as beam
import pytest

from bert_embed.pipeline.options.command_line import parse_embed
from bert_embed.pipeline.run import state
from bert_embed.pipeline.run.graph import build
from bert_embed.pipeline.run.prepare import prepare
from tests.support.command import flags_of, record, write_json

pytestmark = pytest.mark.slow

# Dashboards and alerts hang on these names.
STABLE = {
    *("records", "documents", "skipped", "truncated", "cut_contexts", "zero_vectors"),
    *("foreign_texts", "tokens", "full_tokens", "text_tokens", "unknown_tokens"),
    *("continuing_tokens", "computed_tokens", "padded_tokens", "batches", "compiled", "parts"),
    *("rejected", "rejected_empty_text", "rejected_malformed_json", "rejected_no_tokens"),
}


def test_counters_equal_the_record_and_have_the_names_that_are_promised(tmp_path, tiny_bundle):
    texts = tmp_path / "in.jsonl"
    lines = [{"id": n, "text": f"red river {n}"} for n in range(500)]
    lines += [{"id": "long", "text": "bank " * 100}, {"id": "blank", "text": " "}]
    write_json(texts, *lines, {"id": "none", "text": "\u200b"})
    texts.write_text(texts.read_text() + "no json\n")
    words = flags_of(tmp_path / "out", tiny_bundle, texts, block_bytes=4000)
    run, pipeline = prepare(parse_embed(words)), beam.Pipeline(runner="FnApiRunner")
    with state.claimed(run) as begun:
        build(pipeline, run, begun)
    metrics = pipeline.run().metrics().query()
    found = {
        each.key.metric.name: each.committed
        for each in metrics["counters"]
        if each.key.metric.namespace == "bert_embed"
    }
    assert found.keys() == STABLE
    written = record(tmp_path / "out")
    counts = written["counts"]
    assert counts["records"] == 504
    for name in ("records", "skipped", "truncated", "rejected", "parts"):
        assert found[name] == counts[name], name
    assert found["documents"] == counts["embedded"] == 501
    for name in ("tokens", "computed_tokens", "padded_tokens", "batches"):
        assert found[name] == written[name] > 0, name
    [seconds] = [
        each.committed
        for each in metrics["distributions"]
        if each.key.metric.name == "block_milliseconds"
    ]
    assert seconds.count == counts["parts"]
    stages = sum(written["stage_seconds"].values())
    assert abs(seconds.sum - 1000 * stages) <= counts["parts"] + 5
