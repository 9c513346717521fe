"""Runs `estimate`: says what `embed` with the same flags would take, and writes nothing."""

import io
import math
import os
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import accumulate, chain, cycle, groupby, islice
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import orjson

from bert_embed.backends.choose import model_backend
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
from bert_embed.transforms.blocks import DocumentBlock, TokenBlock, join, take
from bert_embed.transforms.parts import WHOLE_FILES, BlockSpec, InputFile, Part
from bert_embed.transforms.read.reader import example_blocks, parse_part, parts_of
from bert_embed.transforms.read.streams import decompressed
from bert_embed.transforms.redact import RedactErrors
from bert_embed.transforms.tokenize import token_block

_PIECE, _ROWS = 16 << 10, 256  # bytes, or rows of Parquet, at each place
_PLACES = 128  # in each kind of files; what is not larger than all pieces is read as a whole
_HEAD_PART = 64 << 10  # bytes of text for each place in a file that is read from its start
_RATIO_BYTES = 4 << 20  # of text from which the compression is measured: bzip2 has large blocks
_LITTLE = 1 << 10
_TABLE_ROWS = 20_000
_SPEED_BYTES = 256 << 10  # of text on which the model is measured
_CORE_BYTES = 8 << 10  # of it for each core in a block: some batches each
_EXAMPLE_DOCS = 64  # in a part of a file of examples
_MOST_DOCS = 1 << 30  # no part ends before its bytes
_NOWHERE = "bert-embed-estimate"  # stands for the output, which need not be given
_BUSY = 0.7  # share of the cores: an idle machine of few gives the model more


class Piece(NamedTuple):
    """What is read at one place, or from the beginning of a file for all places in it."""

    file: InputFile
    start: int = 0
    stop: int | None = None  # None: its end
    parts: int | None = None  # how many of its first parts; None: all

    @property
    def spec(self) -> BlockSpec:
        """How it is read."""
        return self.file.as_block(self.start, self.stop)


def kind_of(file: InputFile) -> str:
    """How a file is sampled: by its rows, as a whole, from its beginning, or by its bytes."""
    if file.footer is not None:
        return "rows"
    if file.format == WHOLE_FILES:
        return "files"
    return "through" if file.read_through else "bytes"


def pieces_of(kind: str, files: list[InputFile]) -> tuple[list[Piece], bool]:
    """The pieces of the files of a kind, at even distances, and whether they are all there is."""
    size, unit = sum(file.stop for file in files), _ROWS if kind == "rows" else _PIECE
    if size <= unit * _PLACES:
        return [Piece(file) for file in files if file.stop], True
    starts = [0, *accumulate(file.stop for file in files)]
    pieces: dict[Piece, None] = {}
    heads: Counter[int] = Counter()
    for number in range(_PLACES):
        place = (2 * number + 1) * size // (2 * _PLACES)
        at = bisect_right(starts, place) - 1
        file = files[at]
        if file.stop <= unit:  # with those that follow it
            pieces[Piece(file)] = None
            left = unit - file.stop
            for other in files[at + 1 :]:
                if (left := left - other.stop) < 0:
                    break
                pieces[Piece(other)] = None
        elif kind == "files":
            pieces[Piece(file)] = None
        elif kind == "through":
            heads[at] += 1
        else:  # on a grid, so that pieces do not overlap
            start = (place - starts[at]) // unit * unit
            pieces[Piece(file, start, min(start + unit, file.stop))] = None
    return [*pieces, *(Piece(files[at], parts=times) for at, times in heads.items())], False


@dataclass(frozen=True)
class Figures:
    """What the sample says of the whole input: all of it is like what was read."""

    documents: int
    tokens: int  # with special ones, after texts are cut
    vectors: int
    records: int  # documents and what is rejected
    text_bytes: int
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
        self._run, self._tokenizer = run, load_tokenizer(run.work.bundle)
        # documents, records, tokens, tokens if nothing were cut, cut documents, vectors, bytes
        self._totals = np.zeros(7)
        self._lengths: list[tuple[np.ndarray, float]] = []  # tokens of documents; what each is for
        self._text_tokens = self._unknown = self.sampled_tokens = 0
        self._size = self._read = 0.0
        self._kept: list[DocumentBlock] = []
        self._kept_bytes, self._every, self._seen = 0, 1, 0
        self._tokens: list[TokenBlock] = []
        self.exact, self.table_rows, self.has_heads = True, 0, False
        self.seconds = 0.0  # of tokenizing
        if run.work.table is not None:
            rows = run.work.table.rows
            blocks = [
                (block.part.records, block) for block in sample_rows(run.work.table, _TABLE_ROWS)
            ]
            self.table_rows = sum(size for size, _ in blocks)
            self._add(blocks, rows, self.table_rows == rows, rows)
            return
        files = sorted(run.source.files, key=kind_of)  # stable: in the listing's order
        for kind, group in groupby(files, kind_of):
            of_kind = list(group)
            pieces, exact = pieces_of(kind, of_kind)
            self.has_heads |= any(piece.parts for piece in pieces)
            size = sum(file.stop for file in of_kind)
            # An empty file, which has no piece, is a record that is rejected.
            empty = sum(not file.stop for file in of_kind) if kind == "files" else 0
            records = {"rows": size, "files": len(of_kind) - empty}.get(kind)
            self._add(chain.from_iterable(map(self._blocks, pieces)), size, exact, records)
            self._totals[1] += empty

    def _blocks(self, piece: Piece) -> Iterator[tuple[float, DocumentBlock | TokenBlock]]:
        """The parts of a piece, and what share of the files each is, in their unit."""
        run, spec = self._run, piece.spec
        ratio = 1.0
        if piece.parts is not None and spec.compression is not None and run.work.reading is None:
            ratio = _stored_share(spec)
        if run.work.reading is not None:
            size = run.source.bytes / max(run.source.documents, 1)
            examples = example_blocks(spec, run.work.reading, _EXAMPLE_DOCS, _HEAD_PART, ())
            for tokens in islice(examples, piece.parts):
                yield size * (len(tokens) + len(tokens.part.rejected)), tokens
            return
        parts = parts_of(spec, _MOST_DOCS, _HEAD_PART, run.work.columns)
        for part in islice(parts, piece.parts):
            size = ratio * sum(content.size for content in part.contents)
            yield size, parse_part(spec, part, run.work.columns, time.perf_counter())

    def _add(
        self,
        blocks: Iterable[tuple[float, DocumentBlock | TokenBlock]],
        size: float,
        exact: bool,
        records: int | None,
    ) -> None:
        """Adds the sample of one kind of files of a size; `records` are theirs, if listing told."""
        sums, read, lengths = np.zeros(7), 0.0, [np.empty(0, np.int32)]
        for block_size, block in blocks:
            read += block_size
            text_bytes = 0
            if isinstance(block, DocumentBlock):
                text_bytes = sum(map(len, block.texts))
                self._keep(block)
                started = time.perf_counter()
                block = token_block(block, self._tokenizer, self._run.work.token_spec)
                self.seconds += time.perf_counter() - started
            else:
                self._tokens = [*self._tokens[-3:], block]
            tokens, full = int(block.num_tokens.sum()), int(block.num_tokens_full.sum())
            rows = len(block) + len(block.part.rejected)
            cut, vectors = int(block.truncated.sum()), self._vectors(block)
            sums += np.array([len(block), rows, tokens, full, cut, vectors, text_bytes])
            lengths.append(block.num_tokens)
            self._text_tokens += block.part.unknown.tokens
            self._unknown += block.part.unknown.unknown
            self.sampled_tokens += tokens
        weight = 1.0 if exact or not read else size / read
        self._lengths.append((np.concatenate(lengths), weight))
        sums *= weight
        if records is not None and sums[1]:
            sums[:2] *= records / sums[1]
        self._totals += sums
        self._size += size
        self._read += size if exact else min(read, size)
        self.exact &= exact

    def _vectors(self, block: TokenBlock) -> int:
        """How many vectors of texts the documents get."""
        layout = block.layout
        if layout.chunks is not None:
            return len(layout.chunks.texts.starts)
        if self._run.work.text_spec.pieces is not None and layout.windows is not None:
            return int(layout.windows.splits[-1])
        return len(block)

    def figures(self) -> Figures:
        """What the sample says; with `--limit` of the first records alone."""
        totals, limit = self._totals, self._run.options.limit
        if limit is not None and totals[1] > limit:
            totals = totals * limit / totals[1]
        documents, records, tokens, full, cut, vectors, text_bytes = totals.tolist()
        lengths = np.concatenate([lengths for lengths, _ in self._lengths])
        weights = np.concatenate([np.full(len(n), weight) for n, weight in self._lengths])
        return Figures(
            documents=round(documents),
            tokens=round(tokens),
            vectors=round(vectors),
            records=round(records),
            text_bytes=round(text_bytes),
            mean_length=tokens / max(documents, 1),
            p95_length=_percentile(lengths, weights, 0.95),
            cut_texts=cut / max(documents, 1),
            cut_tokens=(full - tokens) / max(full, 1),
            unknown=self._unknown / max(self._text_tokens, 1),
            exact=self.exact,
            sampled_documents=len(lengths),
            sampled_share=self._read / self._size if self._size else 1.0,
        )

    def _keep(self, block: DocumentBlock) -> None:
        """Keeps every block, then every second, every fourth: some of all places."""
        if self._seen % self._every == 0 and len(block):
            self._kept.append(block)
            self._kept_bytes += sum(map(len, block.texts))
        self._seen += 1
        while self._kept_bytes > _SPEED_BYTES and len(self._kept) > 1:
            self._kept, self._every = self._kept[::2], 2 * self._every
            self._kept_bytes = sum(len(text) for block in self._kept for text in block.texts)

    def speed_blocks(self) -> list[TokenBlock]:
        """Small blocks of the documents that were kept, mixed: each is like the whole."""
        if not self._kept:
            return self._tokens
        bare = [replace(block, part=None) for block in self._kept]  # type: ignore[arg-type]
        whole = replace(join(bare), part=Part(0, 0))
        order = np.random.default_rng(0).permutation(len(whole))
        sizes = np.cumsum([len(whole.texts[row]) for row in order.tolist()])
        step = _CORE_BYTES * available_cores()
        groups = np.split(order, np.flatnonzero(np.diff(sizes // step)) + 1)
        blocks = (take(whole, rows) for rows in groups)
        return [token_block(block, self._tokenizer, self._run.work.text_spec) for block in blocks]


def _percentile(lengths: np.ndarray, weights: np.ndarray, share: float) -> int:
    if not len(lengths):
        return 0
    order = np.argsort(lengths)
    sums = np.cumsum(weights[order])
    return int(lengths[order][np.searchsorted(sums, share * sums[-1])])


class _Little(io.RawIOBase):
    """Gives a decompressor no more bytes than it needs, so that the file's position says what."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._raw.read(min(len(buffer), _LITTLE))
        buffer[: len(data)] = data
        return len(data)

    def tell(self) -> int:
        return self._raw.tell()


def _stored_share(spec: BlockSpec) -> float:
    """How many stored bytes a byte of a compressed file's text takes, by its first megabytes."""
    info, text_bytes = spec.slices[0].info, 0
    compression = required(spec.compression, "compression")
    with open_listed(info) as raw:
        little = cast("BinaryIO", _Little(raw))
        for data in decompressed(little, compression, info.path, _HEAD_PART):
            text_bytes += len(data)
            if text_bytes >= _RATIO_BYTES:
                break
        return raw.tell() / max(text_bytes, 1)


@dataclass(frozen=True)
class Speed:
    """What tokenizing and the model, one after the other, took for some tokens on this machine."""

    tokens_per_second: float
    tokens: int
    seconds: float
    cores: int
    cores_used: float  # on average: a busy machine gives fewer
    device: str


@dataclass(frozen=True)
class Chips:
    """What a worker with an accelerator would do: nothing ran."""

    name: str
    chips: int
    tokens_per_second: float  # of all of them
    like: str  # the model that was compiled or measured
    measured: bool  # on such a chip; else estimated by its compiler

    @property
    def source(self) -> str:
        """Where the figures are from."""
        if self.measured:
            return f"measured on one {self.name.partition('-')[0].upper()}"
        return "estimated by the compiler, not measured"


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
    hours_per_million: float | None  # documents
    cost_per_million: float | None
    assumptions: list[str]


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
    cost = None if hours is None or price is None else hours * price
    millions = figures.documents / 1e6
    output_files, output_bytes = _output(run, figures)
    return Estimate(
        files=1 if run.work.table is not None else len(run.work.planned.paths),
        bytes=run.source.bytes,
        figures=figures,
        output_files=output_files,
        output_bytes=output_bytes,
        speed=speed,
        accelerator=chips,
        hours=hours,
        cost=cost,
        hours_per_million=hours / millions if hours is not None and millions else None,
        cost_per_million=cost / millions if cost is not None and millions else None,
        assumptions=list(_assumptions(run, sample, figures, speed, chips)),
    )


def _speed(run: EmbedRun, sample: _Sample, seconds: float) -> Speed | None:
    """The speed on documents of a sample, measured for so many seconds; None where that fails."""
    blocks = [block for block in sample.speed_blocks() if len(block)]
    if not blocks or not seconds:
        return None
    handler = model_handler(run, run.work.bundle.path)
    try:
        model = handler.load_model()
        handler.run_inference(blocks[-1], model)  # the first call fills caches
    except InputError as error:
        warn(f"note: the speed cannot be measured here: {hide_secrets(flag_message(error))}")
        return None
    done, started, worked = 0, time.perf_counter(), time.process_time()
    for block in cycle(blocks):
        handler.run_inference(block, model)
        done += int(block.num_tokens.sum())
        spent = time.perf_counter() - started
        if spent >= seconds:
            break
    used = (time.process_time() - worked) / spent
    cores = min(available_cores(), run.options.threads or available_cores())
    seconds_per_token = spent / done + sample.seconds / max(sample.sampled_tokens, 1)
    job, config = run.job, run.work.bundle.config
    device = model_backend(config, job.precision, job.device, job.engine)[1]
    return Speed(1 / seconds_per_token, done, spent, cores, used, device)


def _chips(run: EmbedRun) -> Chips | None:
    """The speed of the accelerator of a run; None without one, or where it is not known."""
    name, precision = run.job.accelerator, run.job.precision
    if name is None:
        return None
    kind, chips = name.partition("-")[0], ACCELERATORS[name].chips
    speed = chip_speed(run.work.bundle.config, precision, kind)
    if speed is not None:
        rate = chips * speed.tokens_per_second
        return Chips(name, chips, rate, speed.like, speed.measured)
    if known := known_precisions(kind):
        advice = f"that in {' and '.join(known)} is: give --precision {known[0]}"
    else:
        advice = f"measure on such a machine, with --device {ACCELERATORS[name].device}"
    warn(f"note: the speed in {precision} on {kind} is not known; {advice}")
    return None


def _output(run: EmbedRun, figures: Figures) -> tuple[int, int]:
    """About how many files of vectors there will be, and their bytes."""
    widths = Widths.of(run.work.text_spec, run.work.vector_spec, run.work.bundle)
    size = estimated_size(figures.vectors, figures.text_bytes, run.options, widths, figures.tokens)
    blocks = max(run.work.planned.blocks, -(-figures.text_bytes // run.work.block_bytes))
    parts = max(blocks, math.ceil(figures.documents / run.work.part_docs))
    return parts * len(run.work.text_spec.kinds), size


def _assumptions(
    run: EmbedRun, sample: _Sample, figures: Figures, speed: Speed | None, chips: Chips | None
) -> Iterator[str]:
    """A sentence for everything that was not measured."""
    if run.work.table is not None and not figures.exact:
        yield (
            f"{counted(sample.table_rows, 'row')} of the table, the first of each stream, are like "
            "the others; BigQuery bills reading them"
        )
    elif sample.has_heads:
        yield "large files that no reader can begin within are like their beginning"
    if run.work.reading is not None and not figures.exact:
        yield "the number of examples follows from the size of the first ones"
    if run.options.skip_existing:
        yield "--skip_existing is not considered: every document is counted as new"
    yield "files and bytes of the output follow from the plan and usual sizes of rows"
    if speed is not None and speed.device == "cpu" and speed.cores_used < _BUSY * speed.cores:
        yield (
            f"the measurement used {speed.cores_used:.1f} of {counted(speed.cores, 'core')}, "
            "as on a busy machine, and the run uses no more"
        )
    if chips is not None:
        yield (
            f"the speed is {chips.source}, from the operations of {chips.like} in full rows of "
            "128 tokens; transfers, reading and tokenizing take no time beside it"
        )
    if speed is not None:
        yield "reading and writing take no time beside tokenizing and the model; nor does starting"


def lines_of(estimate: Estimate) -> Iterator[str]:
    """An estimate for people; an asterisk marks what rests on an assumption."""
    figures = estimate.figures
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
        f"output*: {about}{figures.vectors:,} vectors in about "
        f"{counted(estimate.output_files, 'file')}, {shown_bytes(estimate.output_bytes)}"
    )
    yield from _speed_lines(estimate)
    yield "* rests on assumptions:"
    yield from (f"  - {assumption}" for assumption in estimate.assumptions)


def _speed_lines(estimate: Estimate) -> Iterator[str]:
    speed, chips = estimate.speed, estimate.accelerator
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
        yield (
            f"{chips.name}*: {chips.tokens_per_second:,.0f} tokens/s on "
            f"{counted(chips.chips, 'chip')} ({chips.source}), {duration} for all"
        )
    if estimate.cost is not None:
        yield f"cost*: {estimate.cost:,.2f} by --price_per_hour"
    if estimate.hours_per_million is not None:
        money = estimate.cost_per_million
        price = "--price_per_hour gives the cost" if money is None else f"{money:,.4g} of cost"
        yield f"a million such documents*: {estimate.hours_per_million:,.3g} hours; {price}"
    yield "N machines take an Nth of the hours for the same money"
