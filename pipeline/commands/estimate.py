"""Runs `estimate`: says what `embed` with the same flags would take, and writes nothing."""

import io
import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import orjson

from bert_embed.backends.jax.chips import chip_speed
from bert_embed.base.errors import InputError, counted, required, shown_bytes
from bert_embed.pipeline.console import answer, answer_json, warn
from bert_embed.pipeline.errors import ExitCode, UsageError
from bert_embed.pipeline.options.embed import EstimateOptions
from bert_embed.pipeline.run.graph import model_handler
from bert_embed.pipeline.run.output import OutputState
from bert_embed.pipeline.run.plan import EmbedRun, Widths, estimated_size
from bert_embed.pipeline.run.prepare import find_source, plan_work, with_dates
from bert_embed.pipeline.run.summary import foreign_text
from bert_embed.pipeline.runners.beam import configure_storage
from bert_embed.pipeline.runners.dataflow import device_problems
from bert_embed.pipeline.runners.options import ACCELERATORS, DATAFLOW, DEFAULT_RUNNER
from bert_embed.storage.files import FileInfo, absolute, open_listed
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms.bigquery.read import sample_rows
from bert_embed.transforms.blocks import TokenBlock
from bert_embed.transforms.ledger import most_allowed
from bert_embed.transforms.parts import plan_blocks
from bert_embed.transforms.read.reader import parse_part, parts_of
from bert_embed.transforms.read.streams import decompressed
from bert_embed.transforms.steps import RedactErrors
from bert_embed.transforms.tokenize import token_block

_BLOCKS, _PIECE = 128, 16 << 10  # evenly spaced in the input, and bytes of text of each
_PACKED = 1 << 20  # bytes of a compressed file from which its compression is measured
_TABLE_ROWS = 20_000
_Speed = tuple[str | None, float | None]  # of what, and tokens a second


def run_estimate(flags: EstimateOptions) -> int:
    """Runs `estimate` with the options of `embed` and its own flags."""
    options, chosen = with_dates(flags), ACCELERATORS.get(flags.accelerator or "")
    if options.query is not None or (options.reads_table and options.limit is not None):
        billed = "estimate runs no query, which BigQuery would bill as a whole"
        raise UsageError(f"{billed}: give the table itself as --input, without --limit")
    for problem in () if chosen is None else device_problems(options.job, chosen.type):
        raise UsageError(problem)
    runner = DATAFLOW if chosen else DEFAULT_RUNNER  # here there need be no such chip
    device = chosen.device if chosen else options.device
    job = replace(options.job, runner=runner, beam_args=(), device=device)
    configure_storage(options.job)
    state = OutputState(absolute(options.output or "no-output"), f"--output {options.output}")
    source = find_source(options, state)
    if source.examples:
        raise UsageError("estimate reads texts: run.json of `tokenize` has the tokens of examples")
    work = plan_work(replace(options, skip_existing=()), job, source, state)
    with RedactErrors("read the sample"):
        found = _estimate(EmbedRun(options, job, source, work, state), flags)
    if flags.json:
        answer_json(orjson.dumps(found).decode())
    else:
        answer(*_lines(found))
    return ExitCode.DONE


def _estimate(run: EmbedRun, flags: EstimateOptions) -> dict[str, Any]:
    """Everything that is found, as the JSON has it; the sample stands for the whole input."""
    table, size, price = run.work.table, run.source.bytes, flags.price_per_hour
    exact = size <= _BLOCKS * _PIECE if table is None else table.rows <= _TABLE_ROWS
    sampled, sums, reasons = _sampled(run, exact), np.zeros(7), Counter[str]()
    for weight, block in sampled:
        part, pieces = block.part, block.layout.kept
        rejected = [one.reason for one in part.rejected if not one.blank]
        reasons.update(one.reason for one in part.rejected)
        rows = len(block if pieces is None else pieces.starts)
        counts = len(block) + len(part.rejected), len(block), rows, len(rejected)
        tokens = part.unknown.foreign, block.num_tokens.sum(), block.num_tokens_full.sum()
        sums += weight * np.array([*counts, *tokens])
    sums *= min(1.0, (run.options.limit or math.inf) / max(sums[0], 1))  # of the first records
    records, documents, vectors, bad, foreign, kept, full = map(round, sums.tolist())
    widths = Widths.of(run.work.text_spec, run.work.vector_spec, run.work.bundle)
    speed, rate = _chips(run) if run.job.accelerator else _measured(run, sampled, flags.seconds)
    hours = None if rate is None else kept / rate / 3600
    return {
        "files": len(run.source.files) or 1,
        "bytes": size,  # as stored
        "records": records,  # documents, and what is rejected
        "rejected_for": next(iter(dict(reasons.most_common(1))), None),
        "too_many_rejected": bad > most_allowed(run.options.max_rejected, documents + bad),
        "documents": documents,
        "foreign_texts": foreign,  # that seem to be of languages that the model does not know
        "tokens": kept,  # after texts are cut, with special ones
        "vectors": vectors,
        "cut_tokens": (full - kept) / max(full, 1),  # the share that is cut
        "exact": exact,  # whether everything was read
        "output_bytes": estimated_size(vectors, size, run.options, widths, kept),
        "speed": speed,  # what the hours are of; None: it was not measured and is not known
        "tokens_per_second": rate,  # of this machine, or of all accelerators of a worker
        "hours": hours,
        "cost": None if hours is None or price is None else hours * price,
    }


def _lines(found: dict[str, Any]) -> Iterator[str]:
    about = "" if found["exact"] else "about "
    rejected = counted(found["records"] - found["documents"], "record")
    why = f", most for {found['rejected_for']}" if found["rejected_for"] else ""
    yield f"input: {counted(found['files'], 'file')}, {shown_bytes(found['bytes'])}"
    yield f"documents: {about}{found['documents']:,}, {about}{rejected} rejected{why}"
    if found["too_many_rejected"]:
        yield "warning: --max_rejected allows fewer: embed would load no table, and end with code 3"
    if found["foreign_texts"]:
        yield foreign_text(found["foreign_texts"], found["documents"])
    cut = f"{found['cut_tokens']:.1%} of all tokens are cut"
    yield f"tokens: {about}{found['tokens']:,}; {cut}"
    yield f"output: {about}{found['vectors']:,} vectors, about {shown_bytes(found['output_bytes'])}"
    if (hours := found["hours"]) is None:
        yield "speed: not measured, so no hours"
        return
    long = f"{hours:,.1f} hours" if hours >= 1 else f"{60 * hours:,.1f} minutes"
    yield f"{found['speed']}: {found['tokens_per_second']:,.0f} tokens/s, {long} for all"
    cost = found["cost"]
    yield "--price_per_hour gives the cost" if cost is None else f"cost: {cost:,.2f}"


def _sampled(run: EmbedRun, exact: bool) -> list[tuple[float, TokenBlock]]:
    """The first records of evenly spaced blocks, with how many times as much is like each."""
    work, total, files = run.work, run.source.bytes, run.source.files
    tokenized = partial(token_block, tokenizer=load_tokenizer(work.bundle), spec=work.token_spec)
    if work.table is not None:
        blocks = list(map(tokenized, sample_rows(work.table, _TABLE_ROWS)))
        read = sum(len(block) + len(block.part.rejected) for block in blocks)
        return [(run.source.documents / max(read, 1), block) for block in blocks]
    shares = [file.text_bytes / max(file.stop, 1) for file in files]  # bytes of a byte, or a row
    planned = list(plan_blocks(files, max(total // _BLOCKS, _PIECE)))
    sampled = []
    for spec in planned if exact else planned[:: -(-len(planned) // _BLOCKS)]:
        size = sum((one.stop - one.start) * shares[one.file] for one in spec.slices)
        most = math.inf if exact else max(_PIECE, size * _BLOCKS * _PIECE / total)
        packing, seen, blocks = spec.compression, 0.0, list[TokenBlock]()
        stored = _stored_share(spec.slices[0].info, packing) if packing else None
        for part in parts_of(spec, work.part_docs, _PIECE, work.columns):
            seen += sum(one.size * (stored or shares[one.file]) for one in part.contents)
            blocks.append(tokenized(parse_part(spec, part, work.columns, time.perf_counter())))
            if seen >= most:
                break
        # Of a block that a line fills which began before, nothing is read.
        sampled.append((size if seen else 0, size / max(seen, 1), blocks))
    scale = total / max(sum(size for size, _, _ in sampled), 1)
    return [(1.0 if exact else scale * like, block) for _, like, some in sampled for block in some]


def _stored_share(info: FileInfo, compression: str) -> float:
    """How many stored bytes a byte of a compressed file's text takes, by its first megabyte."""
    size = 1
    with suppress(InputError), open_listed(info) as raw:  # a part of a file ends too early
        packed = raw.read(_PACKED)
        for data in decompressed(io.BytesIO(packed), compression, info.path, _PIECE):
            size += len(data)
    return len(packed) / size


def _measured(run: EmbedRun, sampled: list[tuple[float, TokenBlock]], seconds: float) -> _Speed:
    """Tokens a second of this machine, which embeds blocks for so long; None where that fails."""
    blocks = [block for _, block in sampled if len(block)]
    if not blocks or not seconds:
        return None, None
    order = np.random.default_rng(0).permutation(len(blocks)).tolist()  # of all places
    handler = model_handler(run, run.work.bundle.path)
    model = handler.load_model()
    handler.run_inference(blocks[order[-1]], model)  # the first call fills caches
    done, spent, started = 0, 0.0, time.perf_counter()
    for number in cycle(order):
        handler.run_inference(blocks[number], model)
        done += int(blocks[number].num_tokens.sum())
        if (spent := time.perf_counter() - started) >= seconds:
            break
    tokenizing = sum(block.part.seconds.get("tokenize", 0.0) for block in blocks)
    tokenizing /= sum(int(block.num_tokens.sum()) for block in blocks)
    return f"this machine, measured for {spent:.1f} s", 1 / (spent / done + tokenizing)


def _chips(run: EmbedRun) -> _Speed:
    """Tokens a second of the accelerators of a worker; None where that is not known."""
    name, precision = required(run.job.accelerator, "accelerator"), run.job.precision
    kind, chips = name.partition("-")[0], ACCELERATORS[name].chips
    known = chip_speed(run.work.bundle.config, precision, kind)
    if known is None:
        warn(f"note: the speed in {precision} on {kind} is not known; measure on such a machine")
        return None, None
    speed, is_measured = known
    source = "estimated by the compiler, not measured"
    source = f"measured on one {kind.upper()}" if is_measured else source
    return f"{name}, {counted(chips, 'chip')}, {source}", chips * speed
