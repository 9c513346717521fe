"""Runs `estimate`: says what `embed` with the same flags would take, and writes nothing."""

import io
import math
import os
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, cycle

import numpy as np
import orjson

from bert_embed.backends.jax.chips import chip_speed, known_precisions
from bert_embed.backends.processor import available_cores
from bert_embed.base.errors import InputError, SettingError, counted, required, shown_bytes
from bert_embed.pipeline.console import answer, answer_json, hide_secrets, warn
from bert_embed.pipeline.errors import ExitCode, UsageError, flag_message
from bert_embed.pipeline.options.embed import EstimateOptions
from bert_embed.pipeline.run.graph import model_handler
from bert_embed.pipeline.run.output import OutputState
from bert_embed.pipeline.run.plan import EmbedRun, Forecast, Target, Widths, estimated_size
from bert_embed.pipeline.run.prepare import find_source, plan_work, with_dates
from bert_embed.pipeline.runners.beam import configure_storage
from bert_embed.pipeline.runners.dataflow import device_problems
from bert_embed.pipeline.runners.options import ACCELERATORS, DATAFLOW, DEFAULT_RUNNER
from bert_embed.storage.files import absolute, open_listed
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms.bigquery.read import sample_rows
from bert_embed.transforms.blocks import DocumentBlock, TokenBlock
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


@dataclass(frozen=True)
class RunEstimate:
    """Everything that `estimate` found, as its JSON has it; the sample stands for the whole input.

    Attributes:
        files: Of the input, as `bytes`, which are as stored.
        records: Documents, and what is rejected.
        tokens: After texts are cut, with special ones.
        cut_tokens: The share of the tokens that are cut.
        exact: Whether everything was read.
        output_bytes: About right.
        speed: What the hours are of; None, as they are, if it was not measured and is not known.
        tokens_per_second: Of this machine, or of all accelerators of a worker.
        cost: Takes `--price_per_hour`.
    """

    files: int
    bytes: int
    records: int
    documents: int
    tokens: int
    vectors: int
    cut_tokens: float
    exact: bool
    sampled_documents: int
    output_bytes: int
    speed: str | None
    tokens_per_second: float | None
    hours: float | None
    cost: float | None

    def lines(self) -> Iterator[str]:
        """The same for people."""
        about = "" if self.exact else "about "
        sampled = "everything" if self.exact else counted(self.sampled_documents, "document")
        yield f"input: {counted(self.files, 'file')}, {shown_bytes(self.bytes)}"
        rejected = counted(self.records - self.documents, "record")
        yield f"documents: {about}{self.documents:,}, {about}{rejected} rejected ({sampled} read)"
        yield f"tokens: {about}{self.tokens:,}, beside {100 * self.cut_tokens:.1f}% that are cut"
        yield f"output: {about}{self.vectors:,} vectors, about {shown_bytes(self.output_bytes)}"
        if self.hours is None:
            yield "speed: not measured, so no hours"
            return
        long = self.hours >= 1
        hours = f"{self.hours:,.1f} hours" if long else f"{60 * self.hours:,.1f} minutes"
        yield f"{self.speed}: {self.tokens_per_second:,.0f} tokens/s, {hours} for all"
        yield "--price_per_hour gives the cost" if self.cost is None else f"cost: {self.cost:,.2f}"


def run_estimate(flags: EstimateOptions) -> int:
    """Runs `estimate` with the options of `embed` and its own flags."""
    options = with_dates(flags)
    if options.query is not None or (options.reads_table and options.limit is not None):
        raise UsageError(
            "estimate runs no query, which BigQuery would bill as a whole: give the table itself "
            "as --input, without --query and --limit"
        )
    if flags.price_per_hour is not None and not flags.seconds and options.accelerator is None:
        raise SettingError(
            "price_per_hour", "requires the hours, which seconds 0 does not measure", "seconds"
        )
    chosen = ACCELERATORS.get(options.accelerator or "")
    if chosen is not None:
        for problem in device_problems(options.job, chosen.type):
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
    run = EmbedRun(options, job, source, work, Target(state), Forecast())
    with RedactErrors("read the sample"):
        estimate = _estimate(run, flags)
    if flags.json:
        answer_json(orjson.dumps(asdict(estimate)).decode())
    else:
        answer(*estimate.lines())
    return ExitCode.DONE


def _estimate(run: EmbedRun, flags: EstimateOptions) -> RunEstimate:
    """Adds up a sample; with `--limit` of the first records alone."""
    table, files, size = run.work.table, run.source.files, run.source.bytes
    exact = size <= _PLACES * _PIECE if table is None else table.rows <= _TABLE_ROWS
    weighted = list(_sampled(run, exact))
    blocks = [block for block, _ in weighted]
    sums = np.zeros(5)
    for block, weight in weighted:
        tokens, full = block.num_tokens.sum(), block.num_tokens_full.sum()
        documents = len(block)
        records = documents + len(block.part.rejected)
        sums += weight * np.array([records, documents, tokens, _vectors(run, block), full], float)
    if run.options.limit is not None:
        sums *= min(1.0, run.options.limit / max(sums[0], 1))
    records, documents, tokens, vectors, full = map(round, sums.tolist())
    widths = Widths.of(run.work.text_spec, run.work.vector_spec, run.work.bundle)
    speed, rate = _chips(run) if run.job.accelerator else _measured(run, blocks, flags.seconds)
    hours = None if rate is None else tokens / rate / 3600
    price = flags.price_per_hour
    return RunEstimate(
        files=len(files) or 1,
        bytes=size,
        records=records,
        documents=documents,
        tokens=tokens,
        vectors=vectors,
        cut_tokens=(full - tokens) / max(full, 1),
        exact=exact,
        sampled_documents=sum(map(len, blocks)),
        output_bytes=estimated_size(vectors, size, run.options, widths, tokens),
        speed=speed,
        tokens_per_second=rate,
        hours=hours,
        cost=None if hours is None or price is None else hours * price,
    )


def _vectors(run: EmbedRun, block: TokenBlock) -> int:
    """How many vectors of texts the documents of a block get."""
    layout = block.layout
    if layout.chunks is not None:
        return len(layout.chunks.texts.starts)
    if run.work.text_spec.pieces is not None and layout.windows is not None:
        return int(layout.windows.splits[-1])
    return len(block)


def _sampled(run: EmbedRun, exact: bool) -> Iterator[tuple[TokenBlock, float]]:
    """The first records at evenly spaced places, tokenized; the same ones every time.

    Each block has a weight: how many times as much of the input is like it.
    """
    tokenizer, spec = load_tokenizer(run.work.bundle), run.work.token_spec
    pieces: list[tuple[int, list[tuple[float, DocumentBlock | TokenBlock]]]]
    table, files, total = run.work.table, run.source.files, float(run.source.bytes)
    if table is not None:
        total = float(table.rows)
        rows = sample_rows(table, _TABLE_ROWS)
        pieces = [(1, [(float(block.part.records), block) for block in rows])]
    elif exact:
        pieces = [(1, list(_parts(run, file, file.as_block(), math.inf))) for file in files]
    else:
        pieces = [
            (places, list(_parts(run, file, block, _PIECE * places)))
            for (file, block), places in _places(files).items()
        ]
    sizes = [sum(size for size, _ in parts) for _, parts in pieces]
    filled = sum(places for (places, _), size in zip(pieces, sizes, strict=True) if size)
    for (places, parts), read in zip(pieces, sizes, strict=True):
        weight = 1.0 if exact else total * places / filled / max(read, 1)
        for _, block in parts:
            if isinstance(block, TokenBlock):
                yield block, weight
            else:
                yield token_block(block, tokenizer, spec), weight


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


def _parts(
    run: EmbedRun, file: InputFile, spec: BlockSpec, most: float
) -> Iterator[tuple[float, DocumentBlock | TokenBlock]]:
    """The first parts of a block, and how much of the input each is; `most` in all."""
    sized: Iterator[tuple[float, DocumentBlock | TokenBlock]]
    columns, share = run.work.columns, file.text_bytes / max(file.stop, 1)
    if run.work.reading is not None:
        record = run.source.bytes / max(run.source.documents, 1)
        examples = example_blocks(spec, run.work.reading, _EXAMPLE_DOCS, _PIECE, ())
        sized = ((record * (len(part) + len(part.part.rejected)), part) for part in examples)
    else:
        if spec.compression is not None:
            share = _stored_share(spec)
        sized = (
            (
                share * sum(content.size for content in part.contents),
                parse_part(spec, part, columns, time.perf_counter()),
            )
            for part in parts_of(spec, _MOST_DOCS, _PIECE, columns)
        )
    for size, block in sized:
        yield size, block
        most -= size
        if most <= 0:
            return


def _stored_share(spec: BlockSpec) -> float:
    """How many stored bytes a byte of a compressed file's text takes, by its first megabyte."""
    info, text_bytes = spec.slices[0].info, 0
    with open_listed(info) as raw:
        packed = raw.read(_PACKED)
    compression = required(spec.compression, "compression")
    with suppress(InputError):  # a part of a file ends too early
        for data in decompressed(io.BytesIO(packed), compression, info.path, _PIECE):
            text_bytes += len(data)
    return len(packed) / max(text_bytes, 1)


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
        spent = time.perf_counter() - started
        if spent >= seconds:
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
        source = "estimated by the compiler, not measured"
        if known.measured:
            source = f"measured on one {kind.upper()}"
        return f"{name}, {counted(chips, 'chip')}, {source}", chips * known.tokens_per_second
    if precisions := known_precisions(kind):
        advice = f"that in {' and '.join(precisions)} is: give --precision {precisions[0]}"
    else:
        advice = f"measure on such a machine, with --device {ACCELERATORS[name].device}"
    warn(f"note: the speed in {precision} on {kind} is not known; {advice}")
    return None, None
