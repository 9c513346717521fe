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
from bert_embed.pipeline.options.command_line import EstimateOptions
from bert_embed.pipeline.options.embed import Options
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
from bert_embed.transforms.redact import RedactErrors
from bert_embed.transforms.tokenize import token_block

_PLACES, _PIECE = 128, 16 << 10  # evenly spaced in the input, and bytes of text at each
_PACKED = 1 << 20  # bytes of a compressed file from which its compression is measured
_TABLE_ROWS = 20_000
_EXAMPLE_DOCS = 64  # in a part of a file of examples
_MOST_DOCS = 1 << 30  # no part ends before its bytes
_NOWHERE = "bert-embed-estimate"  # stands for the output, which need not be given


def pieces_of(files: list[InputFile]) -> tuple[list[tuple[InputFile, BlockSpec, float]], bool]:
    """The pieces of files that are read, and whether they are all there is.

    Each is a file, where in it to read, and at most how much of it, in bytes as stored.
    """
    size = sum(file.text_bytes for file in files)
    if size <= _PIECE * _PLACES:
        return [(file, file.as_block(), math.inf) for file in files if file.stop], True
    starts = [0, *accumulate(file.text_bytes for file in files)]
    pieces: dict[tuple[int, int], tuple[InputFile, BlockSpec, float]] = {}
    times: Counter[tuple[int, int]] = Counter()
    for number in range(_PLACES):
        place = (2 * number + 1) * size // (2 * _PLACES)
        at = bisect_right(starts, place) - 1
        file, left = files[at], _PIECE
        if file.text_bytes <= _PIECE:  # with the small ones that follow it
            while at < len(files) and files[at].text_bytes <= left:
                left -= files[at].text_bytes
                pieces[at, 0] = files[at], files[at].as_block(), math.inf
                at += 1
        elif file.read_through or file.format == WHOLE_FILES:
            times[at, 0] += 1
            pieces[at, 0] = file, file.as_block(), _PIECE * times[at, 0]
        else:  # on a grid, so that pieces do not overlap
            step = max(1, file.stop * _PIECE // file.text_bytes)
            start = (place - starts[at]) * file.stop // file.text_bytes // step * step
            spec = file.as_block(start, min(start + step, file.stop))
            pieces[at, start] = file, spec, math.inf
    return list(pieces.values()), False


@dataclass(frozen=True)
class Figures:
    """What the sample says of the whole input: all of it is like what was read."""

    documents: int
    tokens: int  # with special ones, after texts are cut
    vectors: int
    records: int  # documents and what is rejected
    mean_length: float  # tokens of a document
    p95_length: int
    cut_texts: float  # share of the texts that are cut
    cut_tokens: float  # share of the tokens that are lost with it
    unknown: float  # share of [UNK] in the tokens of the sample
    exact: bool  # whether the sample is the whole input
    sampled_documents: int
    sampled_share: float


class _Sample:
    """Reads and tokenizes a sample of a run's input, the same one every time; adds it up."""

    def __init__(self, run: EmbedRun) -> None:
        self._run, tokenizer = run, load_tokenizer(run.work.bundle)
        self.blocks: list[TokenBlock] = []
        self.seconds, self.text_bytes, self.exact = 0.0, 0, True  # `seconds` of tokenizing
        self._read = 0.0
        for size, block in self._parts():
            self._read += size
            if isinstance(block, TokenBlock):
                self.blocks.append(block)
                continue
            self.text_bytes += sum(map(len, block.texts))
            started = time.perf_counter()
            self.blocks.append(token_block(block, tokenizer, run.work.token_spec))
            self.seconds += time.perf_counter() - started

    def _parts(self) -> Iterator[tuple[float, DocumentBlock | TokenBlock]]:
        """The parts of the sample, and how much of the input each is."""
        run, table = self._run, self._run.work.table
        if table is not None:
            self._size = float(table.rows)
            self.exact = table.rows <= _TABLE_ROWS
            for rows in sample_rows(table, _TABLE_ROWS):
                yield rows.part.records, rows
            return
        self._size = float(sum(file.text_bytes for file in run.source.files))
        pieces, self.exact = pieces_of(run.source.files)
        for file, spec, most in pieces:
            read = 0.0
            for size, block in self._of_piece(file, spec):
                yield size, block
                read += size
                if read >= most:
                    break

    def _of_piece(
        self, file: InputFile, spec: BlockSpec
    ) -> Iterator[tuple[float, DocumentBlock | TokenBlock]]:
        run = self._run
        if run.work.reading is not None:
            size = run.source.bytes / max(run.source.documents, 1)
            for tokens in example_blocks(spec, run.work.reading, _EXAMPLE_DOCS, _PIECE, ()):
                yield size * (len(tokens) + len(tokens.part.rejected)), tokens
            return
        share = file.text_bytes / file.stop  # of Parquet, whose parts are counted in rows
        if spec.compression is not None:
            share = _stored_share(spec)
        for part in parts_of(spec, _MOST_DOCS, _PIECE, run.work.columns):
            size = share * sum(content.size for content in part.contents)
            yield size, parse_part(spec, part, run.work.columns, time.perf_counter())

    def figures(self) -> Figures:
        """What the sample says; with `--limit` of the first records alone."""
        run, blocks = self._run, self.blocks
        lengths = np.concatenate([np.empty(0, np.int32), *(block.num_tokens for block in blocks)])
        full = sum(int(block.num_tokens_full.sum()) for block in blocks)
        cut = sum(int(block.truncated.sum()) for block in blocks)
        rejected = sum(len(block.part.rejected) for block in blocks)
        unknown = [block.part.unknown for block in blocks]
        tokens, documents = int(lengths.sum()), len(lengths)
        vectors = sum(_vectors(run, block) for block in blocks)
        records, files = documents + rejected, run.source.files
        weight = 1.0 if self.exact or not self._read else self._size / self._read
        # The listing tells how many records such files have; an empty one is rejected unread.
        empty = sum(file.format == WHOLE_FILES and not file.stop for file in files)
        counted_files = all(file.footer is not None or file.format == WHOLE_FILES for file in files)
        by_records = weight
        if files and counted_files and records and not self.exact:
            by_records = (run.source.documents - empty) / records
        total = records * by_records + empty
        limit = run.options.limit
        limited = 1.0 if limit is None or total <= limit else limit / total
        return Figures(
            documents=round(documents * by_records * limited),
            tokens=round(tokens * weight * limited),
            vectors=round(vectors * weight * limited),
            records=round(total * limited),
            mean_length=tokens / max(documents, 1),
            p95_length=int(np.quantile(lengths, 0.95, method="higher")) if documents else 0,
            cut_texts=cut / max(documents, 1),
            cut_tokens=(full - tokens) / max(full, 1),
            unknown=sum(one.unknown for one in unknown)
            / max(sum(one.tokens for one in unknown), 1),
            exact=self.exact,
            sampled_documents=documents,
            sampled_share=1.0 if self.exact else min(self._read / max(self._size, 1), 1.0),
        )


def _vectors(run: EmbedRun, block: TokenBlock) -> int:
    """How many vectors of texts the documents of a block get."""
    layout = block.layout
    if layout.chunks is not None:
        return len(layout.chunks.texts.starts)
    if run.work.text_spec.pieces is not None and layout.windows is not None:
        return int(layout.windows.splits[-1])
    return len(block)


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


@dataclass(frozen=True)
class Speed:
    """What tokenizing and the model, one after the other, took for some tokens on this machine."""

    tokens_per_second: float
    seconds: float
    cores: int


@dataclass(frozen=True)
class Chips:
    """What a worker with an accelerator would do: nothing ran."""

    name: str
    chips: int
    tokens_per_second: float  # of all of them
    measured: bool  # on such a chip; else estimated by its compiler


@dataclass(frozen=True)
class Estimate:
    """Everything that `estimate` found, as its JSON has it."""

    files: int  # this and `bytes`: of the input as stored
    bytes: int
    figures: Figures
    output_files: int
    output_bytes: int  # about right
    speed: Speed | None  # of this machine, as `hours`; None: not measured
    accelerator: Chips | None  # with `--accelerator`, in place of `speed`
    hours: float | None
    cost: float | None  # takes `--price_per_hour`


def run_estimate(options: Options, flags: EstimateOptions) -> int:
    """Runs `estimate` with the options of `embed` and its own flags."""
    options = with_dates(options)
    if options.query is not None or (options.reads_table and options.limit is not None):
        raise UsageError(
            "estimate runs no query, which BigQuery would bill as a whole: give the table itself "
            "as --input, without --query and --limit"
        )
    if flags.price_per_hour is not None and not flags.seconds and options.accelerator is None:
        raise SettingError(
            "price_per_hour", "requires the hours, which seconds 0 does not measure", "seconds"
        )
    nowhere = os.path.join(tempfile.gettempdir(), _NOWHERE)
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
    state = OutputState(absolute(options.output or nowhere), f"--output {options.output}")
    source = find_source(options, state)
    work = plan_work(replace(options, skip_existing=()), job, source, state)
    run = EmbedRun(options, job, source, work, Target(state), Forecast())
    with RedactErrors("read the sample"):
        sample = _Sample(run)
    estimate = _estimate(run, sample, flags.price_per_hour, flags.seconds)
    if flags.json:
        answer_json(orjson.dumps(asdict(estimate)).decode())
    else:
        answer(*lines_of(estimate))
    return ExitCode.DONE


def _estimate(run: EmbedRun, sample: _Sample, price: float | None, seconds: float) -> Estimate:
    figures = sample.figures()
    chips = _chips(run)
    speed = None if run.job.accelerator else _speed(run, sample, seconds)
    known = chips or speed
    hours = None if known is None else figures.tokens / known.tokens_per_second / 3600
    text_bytes = round(sample.text_bytes * figures.documents / max(figures.sampled_documents, 1))
    output_files, output_bytes = _output(run, figures, text_bytes)
    return Estimate(
        files=1 if run.work.table is not None else len(run.work.planned.paths),
        bytes=run.source.bytes,
        figures=figures,
        output_files=output_files,
        output_bytes=output_bytes,
        speed=speed,
        accelerator=chips,
        hours=hours,
        cost=None if hours is None or price is None else hours * price,
    )


def _speed(run: EmbedRun, sample: _Sample, seconds: float) -> Speed | None:
    """The speed on documents of a sample, measured for so many seconds; None where that fails."""
    blocks = [block for block in sample.blocks if len(block)]
    if not blocks or not seconds:
        return None
    order = np.random.default_rng(0).permutation(len(blocks)).tolist()  # of all places
    handler = model_handler(run, run.work.bundle.path)
    try:
        model = handler.load_model()
        handler.run_inference(blocks[order[-1]], model)  # the first call fills caches
    except InputError as error:
        warn(f"note: the speed cannot be measured here: {hide_secrets(flag_message(error))}")
        return None
    done, started = 0, time.perf_counter()
    for number in cycle(order):
        handler.run_inference(blocks[number], model)
        done += int(blocks[number].num_tokens.sum())
        spent = time.perf_counter() - started
        if spent >= seconds:
            break
    cores = min(available_cores(), run.options.threads or available_cores())
    sampled = sum(int(block.num_tokens.sum()) for block in sample.blocks)
    return Speed(1 / (spent / done + sample.seconds / max(sampled, 1)), spent, cores)


def _chips(run: EmbedRun) -> Chips | None:
    """The speed of the accelerator of a run; None without one, or where it is not known."""
    name, precision = run.job.accelerator, run.job.precision
    if name is None:
        return None
    kind, chips = name.partition("-")[0], ACCELERATORS[name].chips
    speed = chip_speed(run.work.bundle.config, precision, kind)
    if speed is not None:
        return Chips(name, chips, chips * speed.tokens_per_second, speed.measured)
    if known := known_precisions(kind):
        advice = f"that in {' and '.join(known)} is: give --precision {known[0]}"
    else:
        advice = f"measure on such a machine, with --device {ACCELERATORS[name].device}"
    warn(f"note: the speed in {precision} on {kind} is not known; {advice}")
    return None


def _output(run: EmbedRun, figures: Figures, text_bytes: int) -> tuple[int, int]:
    """About how many files of vectors there will be, and their bytes."""
    widths = Widths.of(run.work.text_spec, run.work.vector_spec, run.work.bundle)
    size = estimated_size(figures.vectors, text_bytes, run.options, widths, figures.tokens)
    blocks = max(run.work.planned.blocks, -(-text_bytes // run.work.block_bytes))
    parts = max(blocks, math.ceil(figures.documents / run.work.part_docs))
    return parts * len(run.work.text_spec.kinds), size


def lines_of(estimate: Estimate) -> Iterator[str]:
    """An estimate for people."""
    figures, speed, chips = estimate.figures, estimate.speed, estimate.accelerator
    rejected = figures.records - figures.documents
    about = "" if figures.exact else "about "
    yield f"input: {counted(estimate.files, 'file')}, {shown_bytes(estimate.bytes)}"
    share = f"{100 * min(figures.sampled_share, 0.99):.2g}%"
    how = "everything was read" if figures.exact else f"{share} was read"
    yield (
        f"documents: {about}{figures.documents:,}, about {counted(rejected, 'record')} rejected "
        f"({how}: {counted(figures.sampled_documents, 'document')})"
    )
    yield (
        f"tokens: {about}{figures.tokens:,}; a document {figures.mean_length:,.1f} on average, 95% "
        f"have up to {figures.p95_length:,}"
    )
    yield (
        f"cut: {100 * figures.cut_texts:.1f}% of the texts, {100 * figures.cut_tokens:.1f}% of the "
        f"tokens; [UNK]: {100 * figures.unknown:.2f}% of the tokens"
    )
    yield (
        f"output: {about}{figures.vectors:,} vectors in about "
        f"{counted(estimate.output_files, 'file')}, about {shown_bytes(estimate.output_bytes)}"
    )
    if speed is None and chips is None:
        yield "speed: not measured, so no hours"
        return
    hours = required(estimate.hours, "hours")
    duration = f"{hours:,.1f} hours" if hours >= 1 else f"{60 * hours:,.1f} minutes"
    if speed is not None:
        yield (
            f"this machine: {speed.tokens_per_second:,.0f} tokens/s on "
            f"{counted(speed.cores, 'core')} (measured, {speed.seconds:.1f} s), {duration} for all"
        )
    if chips is not None:
        source = "estimated by the compiler, not measured"
        if chips.measured:
            source = f"measured on one {chips.name.partition('-')[0].upper()}"
        yield (
            f"{chips.name}: {chips.tokens_per_second:,.0f} tokens/s on "
            f"{counted(chips.chips, 'chip')} ({source}), {duration} for all"
        )
    cost = estimate.cost
    yield "--price_per_hour gives the cost" if cost is None else f"cost: {cost:,.2f}"
