"""The input of a run: files, a table or examples in, rows of tokens and the plan of them out."""

from dataclasses import dataclass, field
from typing import Any

import apache_beam as beam

from pipeline.embed_run import EmbedRun
from transforms.blocks import PlanBlocks
from transforms.increments import CompareKeys
from transforms.leave_out import LeaveOut
from transforms.sinks.examples import KeepExamples
from transforms.sources import ReadBlocks
from transforms.sources.bigquery import ReadTable
from transforms.sources.tfrecord import ReadExamples
from transforms.tokenization import TokenizeBlocks


@dataclass(frozen=True)
class JobInput:
    """What the rest of a graph stands on.

    Attributes:
        tokens: TokenBlocks that are still to do.
        finished: Collections of the BlockReports that earlier attempts wrote.
        planned: The one PlannedWork.
        facts: Side inputs for the run's record, of what was asked of the keys.
    """

    tokens: beam.PCollection
    finished: tuple[beam.PCollection, ...]
    planned: beam.PCollection
    facts: list[Any] = field(default_factory=list)


def job_input(pipeline: beam.Pipeline, run: EmbedRun) -> JobInput:
    """Adds plan, read and tokenize to a pipeline; examples enter behind tokenize."""
    parts = run.output, run.fingerprint
    if run.table is not None:
        read = pipeline | "Read table" >> ReadTable(run.table, *parts, run.part_docs)
        return JobInput(_tokens(read["documents"], run), (read["finished"],), read["planned"])
    keys = run.keys
    # What is asked of all ids is asked of finished blocks, too: none is kept back.
    known = "" if keys is not None and keys.needs_every_key else run.fingerprint
    plan = pipeline | "Plan" >> PlanBlocks(run.request, known)
    specs, facts = plan["specs"], []
    if keys is not None:
        compared = specs | "Keys" >> CompareKeys(keys)
        specs, facts = compared["specs"], [beam.pvalue.AsList(compared["facts"])]
    cut = run.part_docs, run.request.block_bytes
    if run.reading is not None:
        read = specs | "Read" >> ReadExamples(*parts, run.reading, *cut, run.options.leave_out)
        tokens = read["tokens"]
    else:
        read = specs | "Read" >> ReadBlocks(*parts, run.columns, *cut, run.example_folder)
        tokens = _tokens(read["documents"], run)
    return JobInput(tokens, (plan["finished"], read["finished"]), plan["planned"], facts)


def _tokens(documents: beam.PCollection, run: EmbedRun) -> beam.PCollection:
    bundle, left_out = run.bundle, run.options.leave_out
    if left_out:
        documents = documents | "Leave out" >> LeaveOut(left_out)
    tokens = documents | "Tokenize" >> TokenizeBlocks(
        bundle.path, run.token_spec, bundle.fingerprint
    )
    if run.options.tfrecord_output is None:
        return tokens
    return tokens | "Keep" >> KeepExamples(run.example_files)
