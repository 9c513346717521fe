"""The graph of a run: what gathers data in one place, and what grows with the input."""

import pickle

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import DebugOptions, GoogleCloudOptions, PipelineOptions
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2

from bert_embed.pipeline.options.command_line import parse_embed
from bert_embed.pipeline.options.embed import Options
from bert_embed.pipeline.run import state
from bert_embed.pipeline.run.graph import build
from bert_embed.pipeline.run.prepare import prepare
from bert_embed.pipeline.runners.beam import pipeline_options
from bert_embed.pipeline.runners.options import RunnerOptions
from bert_embed.transforms.ledger import Totals, parse_block_record
from bert_embed.transforms.listing import list_input
from bert_embed.transforms.parts import plan_blocks
from bert_embed.transforms.plan import planned_work
from tests.support.command import embed, flags_of, record, write_json

PRIMITIVES = common_urns.primitives


def graph(source, output, bundle, **asked):
    """The pipeline as it would be handed to a runner."""
    run = prepare(Options(input=(str(source),), output=str(output), model=bundle, **asked))
    pipeline = beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"]))
    with state.claimed(run) as record:
        build(pipeline, run, record)
    return pipeline.to_runner_api()


@pytest.fixture
def files(tmp_path):
    """Makes a folder with so many files."""

    def made(count):
        source = tmp_path / f"files-{count}"
        source.mkdir()
        for number in range(count):
            (source / f"{number:05d}.txt").write_text("a line\n" * 10)
        return source

    return made


def test_only_plan_and_account_gather(tmp_path, files, tiny_bundle):
    proto = graph(files(1), tmp_path / "out", tiny_bundle, granularity=("sentence", "token"))
    grouping, waiting = set(), set()  # steps that wait for all elements of another
    for step in proto.components.transforms.values():
        if step.spec.urn == PRIMITIVES.GROUP_BY_KEY.urn:
            grouping.add(step.unique_name)
        elif step.spec.urn == PRIMITIVES.PAR_DO.urn:
            payload = beam_runner_api_pb2.ParDoPayload.FromString(step.spec.payload)
            if payload.side_inputs or payload.state_specs:
                waiting.add(step.unique_name)
    assert grouping == {
        "Plan/Spread/ReshufflePerKey/GroupByKey",  # of where to read, dealt out to all workers
        "Plan/SpreadBegun/ReshufflePerKey/GroupByKey",  # of what earlier attempts have begun
        "Gather",  # of the plan and of sums of reports, one a bundle
    }
    assert waiting == set()


def test_options_are_parsed_once_and_pickled_with_what_changed():
    options = pipeline_options(RunnerOptions(), ["--experiments=one", "--job_name=first"])
    debug = options.view_as(DebugOptions)
    assert options.view_as(DebugOptions) is debug
    debug.add_experiment("two")
    options.view_as(GoogleCloudOptions).job_name = "second"
    for each in (options, pickle.loads(pickle.dumps(options))):
        assert each.view_as(DebugOptions).experiments == ["one", "two"]
        assert each.get_all_options()["job_name"] == "second"


@pytest.mark.slow
def test_the_graph_does_not_grow_with_the_files(tmp_path, files, tiny_bundle):
    """Nor does much travel elsewhere: a plan's sum is one element, whose size a service bounds."""
    folders = {count: files(count) for count in (1, 2000)}
    small, large = (
        len(graph(folder, tmp_path / str(count), tiny_bundle).SerializeToString())
        for count, folder in folders.items()
    )
    assert abs(large - small) < 500
    assert large < 100_000
    listed = list_input([str(folders[2000])]).files
    planned = planned_work(listed, plan_blocks(listed, 1000))
    assert len(planned.paths) == 2000
    sent = pickle.dumps(planned)
    assert pickle.loads(sent) == planned
    assert len(sent) < 20 * len(planned.paths)
    assert max(len(pickle.dumps(spec)) for spec in plan_blocks(listed, 1000)) < 6000


@pytest.mark.slow
def test_what_the_account_gathers_hangs_on_blocks_not_on_documents(tmp_path, tiny_bundle):
    sizes = []
    for documents in (200, 4000):
        source, output = tmp_path / f"{documents}.txt", tmp_path / f"out-{documents}"
        source.write_text("".join(f"{n} red river\n" for n in range(documents)))
        asked = {"block_bytes": source.stat().st_size // 10 + 1, "dim": 2}
        assert embed(output, tiny_bundle, source, **asked) == 0
        total, run = Totals(), record(output)["run"]
        for path in sorted(output.glob("_state/blocks/0*")):
            total.add(parse_block_record(path.read_bytes(), run))
        assert total.counts["embedded"] == documents
        assert len(total.parts) == 10
        sizes.append(len(pickle.dumps(total)))
    assert max(sizes) < min(sizes) + 100
    assert max(sizes) < 3000


def test_blocks_are_larger_for_a_device_that_is_asked_for(run):
    """By what is asked for, not by what is found: the plan must be the same wherever it is made."""
    (large,) = run.written({"large.txt": "the bank of a river and its money\n" * 180_000})
    cluster = {"runner": "PortableRunner", "job_endpoint": "localhost:9", "dry_run": True}
    sizes = {}
    for device in ("auto", "cpu", "tpu"):
        run(large, device=device, **cluster)
        sizes[device] = run.out
    assert sizes["auto"] == sizes["cpu"] != sizes["tpu"]


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
