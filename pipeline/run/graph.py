"""Builds the Beam graphs of `embed` and `tokenize`."""

import time
from functools import partial

import apache_beam as beam

from bert_embed.pipeline.run.plan import EmbedRun
from bert_embed.pipeline.runners.dataflow import accelerator_of, model_threads
from bert_embed.pipeline.runners.launch import programs_place
from bert_embed.results.files import EXAMPLES, FORMATS
from bert_embed.results.run_record import RunRecord
from bert_embed.transforms.bigquery.load import with_loads
from bert_embed.transforms.bigquery.read import ReadTable
from bert_embed.transforms.blocks import DocumentBlock, TokenBlock
from bert_embed.transforms.deleted import WriteDeleted
from bert_embed.transforms.examples import example_files
from bert_embed.transforms.increments import CompareKeys
from bert_embed.transforms.infer import BlockModelHandler, EmbedBlocks
from bert_embed.transforms.ledger import judged_changes
from bert_embed.transforms.plan import PlanBlocks
from bert_embed.transforms.read.reader import parts_of
from bert_embed.transforms.reconcile import checked, reconcile, recorded
from bert_embed.transforms.steps import read_unfinished, without_blocks
from bert_embed.transforms.tokenize import TokenizeBlocks
from bert_embed.transforms.write import WriteParts, write_vectors

INFERENCE_TIMEOUT = 600.0  # seconds without a finished batch after which a block fails


def build(
    pipeline: beam.Pipeline,
    run: EmbedRun,
    record: RunRecord,
    handler: BlockModelHandler | None = None,
    place: str | None = None,
) -> None:
    """Adds the graph of a run to a pipeline; it completes the record of `claimed`.

    `place` is where workers load the bundle, if not where it is.
    """
    options, work, load = run.options, run.work, run.load
    place = place or work.bundle.path
    blocks, finished, planned, changes = job_input(pipeline, run, place)
    if run.kind == EXAMPLES:
        tokenizer = work.bundle.tokenizer_fingerprint
        files = partial(example_files, folder=run.folder, tokenizer=tokenizer)
        write = WriteParts(run.output, run.fingerprint, files)
    else:
        write = write_vectors(run.output, run.fingerprint, options.output_format, work.metadata)
        blocks = blocks | "Embed" >> EmbedBlocks(handler or model_handler(run, place))
    written = blocks | "Write" >> beam.ParDo(write)
    verdict = reconcile((*finished, written), planned) | "Judge" >> beam.Map(
        checked,
        *(run.folder, run.fingerprint, options.max_rejected),
        truncates=options.write_disposition == "truncate",
    )
    if changes is not None and run.keys is not None:
        # BigQuery's ids are strings.
        ids = {"id_type": "string"} if FORMATS[options.output_format].loads else {}
        deleted = WriteDeleted(
            run.output,
            run.fingerprint,
            work.metadata | ids,
            work.text_spec.pieces,
            run.keys.buckets,
            partial(judged_changes, allowed=options.max_deleted, is_whole=run.reads_all),
        )
        verdict = (verdict, changes) | "Deleted" >> deleted
    if load is not None:
        verdict = verdict | "Load" >> beam.Map(with_loads, load, record.loads)
    older = work.skipped and work.skipped.older
    settings_of_end = run.output, record, time.time(), older, run.keeps_texts
    verdict | "Record" >> beam.FlatMap(recorded, *settings_of_end)


def model_handler(run: EmbedRun, place: str) -> BlockModelHandler:
    """What runs the model of a run, which workers load from a place."""
    job, threads, environment = run.job, run.job.threads, {}
    if job.is_dataflow:
        threads, accelerator = model_threads(job), accelerator_of(job)
        environment = accelerator.environment if accelerator else {}
    return BlockModelHandler(
        place,
        run.work.bundle.fingerprint,
        run.work.vector_spec,
        run.work.text_spec,
        run.options.batch_tokens,
        threads,
        job.precision,
        job.device,
        INFERENCE_TIMEOUT,
        engine=job.engine,
        programs=programs_place(job, place),
        environment=environment,
    )


def job_input(
    pipeline: beam.Pipeline, run: EmbedRun, place: str
) -> tuple[
    beam.PCollection, tuple[beam.PCollection, ...], beam.PCollection, beam.PCollection | None
]:
    """Adds plan, read and tokenize to a pipeline; examples are read after it.

    Gives TokenBlocks to embed or write, block records that earlier attempts wrote, the one
    PlannedWork, and by bucket what changed, where earlier outputs are compared with.
    """
    keys, work, skipped = run.keys, run.work, run.options.skip_blocks

    def tokens(documents: beam.PCollection) -> beam.PCollection:
        if skipped:
            documents = documents | "SkipBlocks" >> beam.Map(without_blocks, skipped)
        tokenize = TokenizeBlocks(place, work.token_spec, work.bundle.fingerprint)
        return documents | "Tokenize" >> tokenize

    if work.table is not None:
        compare = None if keys is None else CompareKeys(keys)
        settings = run.output, run.fingerprint, work.part_docs, compare
        table = pipeline | "Read table" >> ReadTable(work.table, *settings)
        documents = tokens(table["documents"])
        return documents, (table["finished"],), table["planned"], table.get("changes")
    read_parts = partial(
        parts_of,
        part_docs=work.part_docs,
        block_bytes=work.block_bytes,
        columns=work.columns,
        windows=work.reading is None or work.reading.windows,
    )
    parts = run.folder, run.fingerprint
    plan = pipeline | "Plan" >> PlanBlocks(*parts, work.digest, work.block_bytes, read_parts)
    specs, changes = plan["specs"], None
    if keys is not None:
        specs, changes = (specs, plan["begun"]) | "Keys" >> CompareKeys(keys)
    if work.reading is not None:
        read = partial(work.read, skip_blocks=skipped)
        blocks, finished = read_unfinished(specs, *parts, read, TokenBlock)
    else:
        documents, finished = read_unfinished(specs, *parts, work.read, DocumentBlock)
        blocks = tokens(documents)
    return blocks, (plan["finished"], finished), plan["planned"], changes
