"""Runs `estimate`: says what `embed` with the same flags would take, and writes nothing."""

import io
import math
import os
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate, cycle
from typing import Any

import numpy as np
import orjson

from bert_embed.backends.jax.chips import chip_speed, known_precisions
from bert_embed.base.environment import available_cores
from bert_embed.base.errors import InputError, SettingError, counted, required, shown_bytes
from bert_embed.pipeline.console import answer, answer_json, hide_secrets, warn
from bert_embed.pipeline.errors import ExitCode, UsageError, flag_message
from bert_embed.pipeline.options.embed import EstimateOptions
from bert_embed.pipeline.run.graph import model_handler
from bert_embed.pipeline.run.output import OutputState
from bert_embed.pipeline.run.plan import EmbedRun, Widths, estimated_size
from bert_embed.pipeline.run.prepare import find_source, plan_work, with_dates
from bert_embed.pipeline.run.summary import foreign_text
from bert_embed.pipeline.runners.beam import configure_storage
from bert_embed.pipeline.runners.dataflow import device_problems
from bert_embed.pipeline.runners.options import ACCELERATORS, DATAFLOW, DEFAULT_RUNNER
from bert_embed.storage.files import absolute, open_listed
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms.bigquery.read import sample_rows
from bert_embed.transforms.blocks import DocumentBlock, TokenBlock
from bert_embed.transforms.ledger import most_allowed
from bert_embed.transforms.parts import WHOLE_FILES, BlockSpec, InputFile
from bert_embed.transforms.read.reader import example_blocks, parse_part, parts_of
from bert_embed.transforms.read.streams import decompressed
from bert_embed.transforms.steps import RedactErrors
from bert_embed.transforms.tokenize import token_block

_PLACES, _PIECE = 128, 16 << 10  # evenly spaced in the input, and bytes of text at each
_PACKED = 1 << 20  # bytes of a compressed file from which its compression is measured
_TABLE_ROWS = 20_000
_EXAMPLE_DOCS = 64  # in a part of a file of examples
_MOST_DOCS = 1 << 30  # no part ends before its bytes
_NOWHERE = "bert-embed-estimate"  # stands for the output, which need not be given


def run_estimate(flags: EstimateOptions) -> int:
    """Runs `estimate` with the options of `embed` and its own flags."""
    options, chosen = with_dates(flags), ACCELERATORS.get(flags.accelerator or "")
    if options.query is not None or (options.reads_table and options.limit is not None):
        raise UsageError(
            "estimate runs no query, which BigQuery would bill as a whole: give the table itself "
            "as --input, without --query and --limit"
        )
    if flags.price_per_hour is not None and not flags.seconds and chosen is None:
        said = "requires the hours, which seconds 0 does not measure"
        raise SettingError("price_per_hour", said, "seconds")
    for problem in () if chosen is None else device_problems(options.job, chosen.type):
        raise UsageError(problem)
    job = replace(
        options.job,
        runner=DATAFLOW if chosen else DEFAULT_RUNNER,  # here there need be no such chip
        beam_args=(),
        device=chosen.device if chosen else options.device,
    )
    configure_storage(options.job)
    nowhere = os.path.join(tempfile.gettempdir(), _NOWHERE)
    state = OutputState(absolute(options.output or nowhere), f"--output {options.output}")
    source = find_source(options, state)
    work = plan_work(replace(options, skip_existing=()), job, source, state)
    with RedactErrors("read the sample"):
        found = _estimate(EmbedRun(options, job, source, work, state), flags)
    if flags.json:
        answer_json(orjson.dumps(found).decode())
    else:
        answer(*_lines(found))
    return ExitCode.DONE


def _estimate(run: EmbedRun, flags: EstimateOptions) -> dict[str, Any]:
    """Everything that is found, as the JSON has it; the sample stands for the whole input.

    With `--limit` it is of the first records alone.
    """
    table, size, price = run.work.table, run.source.bytes, flags.price_per_hour
    exact = size <= _PLACES * _PIECE if table is None else table.rows <= _TABLE_ROWS
    weighted = list(_sampled(run, exact))
    blocks = [block for _, block in weighted]
    sums, reasons = np.zeros(7), Counter[str]()
    for weight, block in weighted:
        rejected = [one for one in block.part.rejected if not one.blank]
        reasons.update(one.reason for one in rejected)
        counts = [len(block), _vectors(run, block), len(rejected), block.part.unknown.foreign]
        tokens = block.num_tokens.sum(), block.num_tokens_full.sum()
        sums += weight * np.array([_records(block), *counts, *tokens])
    if run.options.limit is not None:
        sums *= min(1.0, run.options.limit / max(sums[0], 1))
    records, documents, vectors, bad, foreign, kept, full = map(round, sums.tolist())
    allowed = most_allowed(run.options.max_rejected, documents + bad)
    widths = Widths.of(run.work.text_spec, run.work.vector_spec, run.work.bundle)
    speed, rate = _chips(run) if run.job.accelerator else _measured(run, blocks, flags.seconds)
    hours = None if rate is None else kept / rate / 3600
    return {
        "files": len(run.source.files) or 1,
        "bytes": size,  # as stored
        "records": records,  # documents, and what is rejected
        "rejected_for": next((reason for reason, _ in reasons.most_common(1)), None),
        "too_many_rejected": bad > allowed,  # blank lines apart
        "documents": documents,
        "foreign_texts": foreign,  # that seem to be of languages that the model does not know
        "tokens": kept,  # after texts are cut, with special ones
        "vectors": vectors,
        "cut_tokens": (full - kept) / max(full, 1),  # the share that is cut
        "exact": exact,  # whether everything was read
        "sampled_documents": sum(map(len, blocks)),
        "output_bytes": estimated_size(vectors, size, run.options, widths, kept),
        "speed": speed,  # what the hours are of; None: it was not measured and is not known
        "tokens_per_second": rate,  # of this machine, or of all accelerators of a worker
        "hours": hours,
        "cost": None if hours is None or price is None else hours * price,
    }


def _lines(found: dict[str, Any]) -> Iterator[str]:
    about = "" if found["exact"] else "about "
    sampled = "everything"
    if not found["exact"]:
        sampled = counted(found["sampled_documents"], "document")
    rejected = counted(found["records"] - found["documents"], "record")
    yield f"input: {counted(found['files'], 'file')}, {shown_bytes(found['bytes'])}"
    documents = f"documents: {about}{found['documents']:,}"
    why = f", most for {found['rejected_for']}" if found["rejected_for"] else ""
    yield f"{documents}, {about}{rejected} rejected{why} ({sampled} read)"
    if found["too_many_rejected"]:
        yield "warning: --max_rejected allows fewer, embed would load nothing, and end with 3"
    if found["foreign_texts"]:
        yield foreign_text(found["foreign_texts"], found["documents"])
    cut = f"{100 * found['cut_tokens']:.1f}% that are cut"
    yield f"tokens: {about}{found['tokens']:,}, beside {cut}"
    size = shown_bytes(found["output_bytes"])
    yield f"output: {about}{found['vectors']:,} vectors, about {size}"
    if (hours := found["hours"]) is None:
        yield "speed: not measured, so no hours"
        return
    long = f"{hours:,.1f} hours" if hours >= 1 else f"{60 * hours:,.1f} minutes"
    yield f"{found['speed']}: {found['tokens_per_second']:,.0f} tokens/s, {long} for all"
    cost = found["cost"]
    yield "--price_per_hour gives the cost" if cost is None else f"cost: {cost:,.2f}"


def _records(block: TokenBlock) -> int:
    return len(block) + len(block.part.rejected)


def _vectors(run: EmbedRun, block: TokenBlock) -> int:
    """How many vectors of texts the documents of a block get."""
    layout = block.layout
    if layout.chunks is not None:
        return len(layout.chunks.texts.starts)
    if run.work.text_spec.pieces is not None and layout.windows is not None:
        return int(layout.windows.splits[-1])
    return len(block)


def _sampled(run: EmbedRun, exact: bool) -> Iterator[tuple[float, TokenBlock]]:
    """The first records at evenly spaced places, tokenized; the same ones every time.

    Each block has a weight: how many times as much of the input is like it.
    """
    files, whole = run.source.files, exact or run.work.table is not None
    places = Counter((file, file.as_block()) for file in files) if whole else _places(files)
    most, work = math.inf if whole else _PIECE, run.work
    tokenized = partial(token_block, tokenizer=load_tokenizer(work.bundle), spec=work.token_spec)
    pieces = [(n, list(_read(run, tokenized, *place, most * n))) for place, n in places.items()]
    sizes = [sum(size for size, _ in parts) for _, parts in pieces]
    filled = sum(number for (number, _), size in zip(pieces, sizes, strict=True) if size)
    for (number, parts), read in zip(pieces, sizes, strict=True):
        weight = 1.0 if exact else run.source.bytes * number / filled / max(read, 1)
        yield from ((weight, block) for _, block in parts)


def _places(files: list[InputFile]) -> Counter[tuple[InputFile, BlockSpec]]:
    """Where evenly spaced places are, and how many are in the same file read from its start."""
    starts = [0, *accumulate(file.text_bytes for file in files)]
    places: Counter[tuple[InputFile, BlockSpec]] = Counter()
    for number in range(_PLACES):
        place = (2 * number + 1) * starts[-1] // (2 * _PLACES)
        at = bisect_right(starts, place) - 1
        file, block = files[at], files[at].as_block()
        if not (file.read_through or file.format == WHOLE_FILES or file.text_bytes <= _PIECE):
            start = (place - starts[at]) * file.stop // file.text_bytes
            step = max(1, file.stop * _PIECE // file.text_bytes)
            block = file.as_block(start, min(start + step, file.stop))
        places[file, block] += 1
    return places


def _read(
    run: EmbedRun,
    tokenized: Callable[[DocumentBlock], TokenBlock],
    file: InputFile,
    spec: BlockSpec,
    most: float,
) -> Iterator[tuple[float, TokenBlock]]:
    """The first parts of a block, tokenized, and how many bytes of the input each is."""
    work, share = run.work, run.source.bytes / max(run.source.documents, 1)
    sized: Iterator[tuple[float, TokenBlock]]
    if work.reading is not None:
        blocks = example_blocks(spec, work.reading, _EXAMPLE_DOCS, _PIECE, ())
        sized = ((share * _records(block), block) for block in blocks)
    elif work.table is not None:
        tables = map(tokenized, sample_rows(work.table, _TABLE_ROWS))
        sized = ((share * _records(block), block) for block in tables)
    else:
        share = _stored_share(spec) if spec.compression else file.text_bytes / max(file.stop, 1)
        sized = (
            (
                share * sum(one.size for one in part.contents),
                tokenized(parse_part(spec, part, work.columns, time.perf_counter())),
            )
            for part in parts_of(spec, _MOST_DOCS, _PIECE, work.columns)
        )
    for read, block in sized:
        yield read, block
        if (most := most - read) <= 0:
            return


def _stored_share(spec: BlockSpec) -> float:
    """How many stored bytes a byte of a compressed file's text takes, by its first megabyte."""
    info, size = spec.slices[0].info, 0
    with open_listed(info) as raw:
        packed = raw.read(_PACKED)
    stream, compression = io.BytesIO(packed), required(spec.compression, "compression")
    with suppress(InputError):  # a part of a file ends too early
        for data in decompressed(stream, compression, info.path, _PIECE):
            size += len(data)
    return len(packed) / max(size, 1)


def _measured(
    run: EmbedRun, blocks: list[TokenBlock], seconds: float
) -> tuple[str | None, float | None]:
    """Tokens a second of this machine, which embeds blocks for so long; None where that fails."""
    blocks = [block for block in blocks if len(block)]
    if not blocks or not seconds:
        return None, None
    order = np.random.default_rng(0).permutation(len(blocks)).tolist()  # of all places
    handler = model_handler(run, run.work.bundle.path)
    try:
        model = handler.load_model()
        handler.run_inference(blocks[order[-1]], model)  # the first call fills caches
    except InputError as error:
        warn(f"note: the speed cannot be measured here: {hide_secrets(flag_message(error))}")
        return None, None
    done, spent, started = 0, 0.0, time.perf_counter()
    for number in cycle(order):
        handler.run_inference(blocks[number], model)
        done += int(blocks[number].num_tokens.sum())
        if (spent := time.perf_counter() - started) >= seconds:
            break
    tokenizing = sum(block.part.seconds.get("tokenize", 0.0) for block in blocks)
    tokenizing /= sum(int(block.num_tokens.sum()) for block in blocks)
    cores = min(available_cores(), run.options.threads or available_cores())
    speed = f"this machine, {counted(cores, 'core')}, measured for {spent:.1f} s"
    return speed, 1 / (spent / done + tokenizing)


def _chips(run: EmbedRun) -> tuple[str | None, float | None]:
    """Tokens a second of the accelerators of a worker; None where that is not known."""
    name, precision = required(run.job.accelerator, "accelerator"), run.job.precision
    kind, chips = name.partition("-")[0], ACCELERATORS[name].chips
    known = chip_speed(run.work.bundle.config, precision, kind)
    if known is not None:
        measured = f"measured on one {kind.upper()}"
        source = measured if known.measured else "estimated by the compiler, not measured"
        return f"{name}, {counted(chips, 'chip')}, {source}", chips * known.tokens_per_second
    advice = f"measure on such a machine, with --device {ACCELERATORS[name].device}"
    if precisions := known_precisions(kind):
        advice = f"that in {' and '.join(precisions)} is: give --precision {precisions[0]}"
    warn(f"note: the speed in {precision} on {kind} is not known; {advice}")
    return None, None
