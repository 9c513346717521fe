"""Runs `estimate`: says what `embed` with the same flags would take, and writes nothing."""

import math
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain, cycle

import numpy as np
import orjson

from bert_embed.backends.choose import model_backend
from bert_embed.backends.processor import available_cores
from bert_embed.base.errors import InputError, counted, required
from bert_embed.pipeline.commands.estimate_sample import Measured, Sample, Stratum, sample_of
from bert_embed.pipeline.console import answer, hide_secrets, warn
from bert_embed.pipeline.errors import ExitCode, UsageError, flag_message, usage_errors
from bert_embed.pipeline.options.command_line import EstimateOptions
from bert_embed.pipeline.options.embed import Options
from bert_embed.pipeline.run.graph import model_handler
from bert_embed.pipeline.run.output import OutputState
from bert_embed.pipeline.run.plan import EmbedRun, Widths, estimated_size
from bert_embed.pipeline.run.prepare import planned_run, with_dates
from bert_embed.pipeline.runners.beam import configure_storage
from bert_embed.pipeline.runners.options import RunnerOptions
from bert_embed.storage.files import absolute
from bert_embed.transforms.redact import RedactErrors

_SIGMAS = 2.0  # 95 of 100 samples lie within


@dataclass(frozen=True)
class Figure:
    """A number and its error; the truth lies within it in about 95 of 100 samples."""

    value: float
    error: float | None = 0.0  # 0 where everything was read; None where nothing tells it

    def __str__(self) -> str:
        if self.error == 0:
            return f"{round(self.value):,}"
        if self.error is None:
            return f"about {round(self.value):,}"
        share = 100 * self.error / self.value if self.value else 100.0
        return f"{round(self.value):,} ± {share:.1f}%"


@dataclass(frozen=True)
class Figures:
    """What the sample says of the whole input."""

    documents: Figure
    tokens: Figure  # with special ones, after texts are cut
    vectors: Figure
    records: Figure  # documents and what is rejected
    text_bytes: float
    mean_length: float  # tokens of a document
    p95_length: int
    cut_texts: float  # share of the texts that are cut
    cut_tokens: float  # share of the tokens that are lost with it
    equal_texts: float  # share of the sampled texts that are equal to another one of the sample
    unknown: float  # share of [UNK] in the tokens of the sample
    exact: bool  # whether the sample is the whole input
    sampled_documents: int
    sampled_share: float


def figures_of(sample: Sample, limit: int | None) -> Figures:
    """The figures of a sample; `limit` is the most records that the run reads."""
    totals, variances, known = np.zeros(6), np.zeros(6), True
    text_bytes = size = read = 0.0
    for stratum, measured in sample.strata:
        total, variance, tells = _stratum_totals(stratum, measured)
        totals, variances, known = totals + total, variances + variance, known and tells
        size += stratum.size
        read += min(stratum.size, sum(piece.size for piece in measured))
        text_bytes += sum(
            _weight(stratum, measured, piece) * piece.text_bytes for piece in measured
        )
    if limit is not None and totals[1] > limit:
        totals, variances = totals * limit / totals[1], variances * (limit / totals[1]) ** 2
    errors = [_SIGMAS * math.sqrt(variance) if known else None for variance in variances.tolist()]
    documents, records, tokens, _, _, vectors = map(Figure, totals.tolist(), errors)
    lengths, weights = _lengths(sample)
    pieces = [piece for _, measured in sample.strata for piece in measured]
    hashes = np.concatenate([np.empty(0, np.int64), *chain(*(piece.hashes for piece in pieces))])
    text_tokens = sum(piece.text_tokens for piece in pieces)
    _, _, kept_tokens, full_tokens, cut_texts, _ = totals.tolist()
    return Figures(
        documents=documents,
        tokens=tokens,
        vectors=vectors,
        records=records,
        text_bytes=text_bytes,
        mean_length=kept_tokens / max(documents.value, 1),
        p95_length=_percentile(lengths, weights, 0.95),
        cut_texts=cut_texts / max(documents.value, 1),
        cut_tokens=(full_tokens - kept_tokens) / max(full_tokens, 1),
        equal_texts=1 - len(np.unique(hashes)) / max(len(hashes), 1) if len(hashes) else 0.0,
        unknown=sum(piece.unknown for piece in pieces) / max(text_tokens, 1),
        exact=all(stratum.exact for stratum, _ in sample.strata),
        sampled_documents=len(lengths),
        sampled_share=read / size if size else 1.0,
    )


def _weight(stratum: Stratum, measured: list[Measured], piece: Measured) -> float:
    """How many pieces of the whole a measured one stands for."""
    if stratum.exact or not piece.size:
        return 1.0
    return stratum.size * piece.times / (piece.size * sum(other.times for other in measured))


def _stratum_totals(
    stratum: Stratum, measured: list[Measured]
) -> tuple[np.ndarray, np.ndarray, bool]:
    """The totals of a kind of files, float64 `[6]`, and their variances, if they are known."""
    # Pieces are chosen in proportion to their size, so the mean per byte, times all bytes, has no
    # bias. Places at equal distances err less than random ones, which the variance is of.
    if stratum.exact or not measured:
        return sum((piece.counts for piece in measured), np.zeros(6)), np.zeros(6), True
    used = [piece for piece in measured if piece.size]
    times = np.array([piece.times for piece in used], np.float64)
    density = np.stack([piece.counts / piece.size for piece in used])
    count = times.sum()
    mean = times @ density / count
    spread = times @ (density - mean) ** 2 / max(count - 1, 1) / count
    unread = max(0.0, 1 - sum(piece.size for piece in used) / stratum.size)
    total, variance = stratum.size * mean, stratum.size**2 * spread * unread
    if stratum.records is not None and total[1]:  # how many records there are is known
        total[:2] *= stratum.records / total[1]
        seen = sum(piece.counts[1] for piece in used)
        # One more than was seen: that a sample has no rejected record does not say that none is.
        rejected = ((1 - mean[0] / mean[1]) * seen + 1) / (seen + 2)
        variance[:2] = stratum.records**2 * rejected * (1 - rejected) / count, 0.0
    return total, variance, len(used) > 1


def _lengths(sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """int32 `[documents]`, the tokens of each sampled document; and float64, what it stands for."""
    lengths, weights = [np.empty(0, np.int32)], [np.empty(0)]
    for stratum, measured in sample.strata:
        for piece in measured:
            lengths += piece.lengths
            documents = sum(map(len, piece.lengths))
            weights.append(np.full(documents, _weight(stratum, measured, piece)))
    return np.concatenate(lengths), np.concatenate(weights)


def _percentile(lengths: np.ndarray, weights: np.ndarray, share: float) -> int:
    if not len(lengths):
        return 0
    order = np.argsort(lengths)
    sums = np.cumsum(weights[order])
    return int(lengths[order][np.searchsorted(sums, share * sums[-1])])


_NOWHERE = "bert-embed-estimate"  # stands for the output, which need not be given
_BUSY = 0.7  # share of the cores: an idle machine of few gives the model more


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
class Estimate:
    """Everything that `estimate` found, as its JSON has it."""

    files: int  # this and `bytes`: of the input as stored
    bytes: int
    figures: Figures
    output_files: int
    output_bytes: int  # about right
    speed: Speed | None  # of this machine, as `hours`; None: not measured
    hours: float | None
    cost: float | None  # takes `--price_per_hour`
    assumptions: list[str]


def run_estimate(options: Options, flags: EstimateOptions) -> int:
    """Runs `estimate` with the options of `embed` and its own flags."""
    options = with_dates(options)
    if options.query is not None or (options.reads_table and options.limit is not None):
        raise UsageError(
            "estimate runs no query, which BigQuery would bill as a whole: give the table itself "
            "as --input, without --query and --limit"
        )
    nowhere = os.path.join(tempfile.gettempdir(), _NOWHERE)
    job = RunnerOptions(
        device=options.device,
        engine=options.engine,
        precision=options.precision,
        threads=options.threads,
    )
    with usage_errors():
        configure_storage(options.job)
        found = OutputState(absolute(options.output or nowhere), f"--output {options.output}")
        run = planned_run(options, found, job)
        with RedactErrors("read the sample"):
            sample = sample_of(run)
    estimate = _estimate(run, sample, flags.price_per_hour, flags.seconds)
    if flags.json:
        answer(orjson.dumps(asdict(estimate)).decode())
    else:
        answer(*lines_of(estimate))
    return ExitCode.DONE


def _estimate(run: EmbedRun, sample: Sample, price: float | None, seconds: float) -> Estimate:
    figures = figures_of(sample, run.options.limit)
    speed = _speed(run, sample, seconds)
    hours = None if speed is None else figures.tokens.value / speed.tokens_per_second / 3600
    output_files, output_bytes = _output(run, figures)
    return Estimate(
        files=1 if run.table is not None else len(run.planned.paths),
        bytes=run.input_bytes,
        figures=figures,
        output_files=output_files,
        output_bytes=output_bytes,
        speed=speed,
        hours=hours,
        cost=None if hours is None or price is None else hours * price,
        assumptions=list(_assumptions(run, sample, figures, speed)),
    )


def _speed(run: EmbedRun, sample: Sample, seconds: float) -> Speed | None:
    """The speed on documents of a sample, measured for so many seconds; None where that fails."""
    blocks = [block for block in sample.blocks if len(block)]
    if not blocks or not seconds:
        return None
    handler = model_handler(run)
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
    tokens = sum(piece.counts[2] for _, measured in sample.strata for piece in measured)
    seconds_per_token = spent / done + sample.tokenize_seconds / max(float(tokens), 1)
    job = run.job
    device = model_backend(run.bundle.config, job.precision, job.device, job.engine)[1]
    return Speed(1 / seconds_per_token, done, spent, cores, used, device)


def _output(run: EmbedRun, figures: Figures) -> tuple[int, int]:
    """About how many files of vectors there will be, and their bytes."""
    widths = Widths.of(run.text_spec, run.vector_spec, run.bundle)
    vectors, text_bytes = round(figures.vectors.value), round(figures.text_bytes)
    tokens = round(figures.tokens.value)
    size = estimated_size(vectors, text_bytes, run.options, widths, tokens)
    blocks = max(run.planned.blocks, -(-text_bytes // run.request.block_bytes))
    parts = max(blocks, math.ceil(figures.documents.value / run.part_docs))
    return parts * len(run.text_spec.kinds), size


def _assumptions(
    run: EmbedRun, sample: Sample, figures: Figures, speed: Speed | None
) -> Iterator[str]:
    """A sentence for everything that was not measured."""
    if run.table is not None and not figures.exact:
        yield (
            f"{counted(sample.table_rows, 'row')} of the table, the first of each stream, are like "
            "the others; BigQuery bills reading them"
        )
    elif any(stratum.heads for stratum, _ in sample.strata):
        yield "large files that no reader can begin within are like their beginning"
    if run.reading is not None and not figures.exact:
        yield "the number of examples follows from the size of the first ones"
    if run.options.skip_existing:
        yield "--skip_existing is not considered: every document is counted as new"
    if figures.equal_texts and not figures.exact:
        yield (
            "equal texts in different parts of the input are not found by a sample; a run computes "
            "those of one block once"
        )
    yield "files and bytes of the output follow from the plan and usual sizes of rows"
    if speed is not None and speed.device == "cpu" and speed.cores_used < _BUSY * speed.cores:
        yield (
            f"the measurement used {speed.cores_used:.1f} of {counted(speed.cores, 'core')}, "
            "as on a busy machine, and the run uses no more"
        )
    if speed is not None:
        yield "reading and writing take no time beside tokenizing and the model; nor does starting"


def lines_of(estimate: Estimate) -> Iterator[str]:
    """An estimate for people; an asterisk marks what rests on an assumption."""
    figures = estimate.figures
    rejected = figures.records.value - figures.documents.value
    yield f"input: {counted(estimate.files, 'file')}, {estimate.bytes / 1e6:,.1f} MB"
    share = f"{100 * min(figures.sampled_share, 0.99):.2g}%"
    how = "everything was read" if figures.exact else f"{share} was read"
    yield (
        f"documents: {figures.documents}, about {counted(round(rejected), 'record')} rejected "
        f"({how}: {counted(figures.sampled_documents, 'document')})"
    )
    yield (
        f"tokens: {figures.tokens}; a document {figures.mean_length:,.1f} on average, 95% have up "
        f"to {figures.p95_length:,}"
    )
    if not figures.exact:
        yield "± is the error of sampling: 95 of 100 samples lie within it"
    yield (
        f"cut: {100 * figures.cut_texts:.1f}% of the texts, {100 * figures.cut_tokens:.1f}% of the "
        f"tokens; [UNK]: {100 * figures.unknown:.2f}% of the tokens"
    )
    yield (
        f"equal texts: {'' if figures.exact else 'at least '}{100 * figures.equal_texts:.1f}%"
        f"{'' if figures.exact else ' (within the sample)'}"
    )
    yield (
        f"output*: {figures.vectors} vectors in about {counted(estimate.output_files, 'file')}, "
        f"{estimate.output_bytes / 1e6:,.1f} MB"
    )
    yield from _speed_lines(estimate)
    yield "* rests on assumptions:"
    yield from (f"  - {assumption}" for assumption in estimate.assumptions)


def _speed_lines(estimate: Estimate) -> Iterator[str]:
    speed = estimate.speed
    if speed is None:
        yield "speed: not measured, so no hours"
        return
    hours = required(estimate.hours, "hours")
    duration = f"{hours:,.1f} hours" if hours >= 1 else f"{60 * hours:,.1f} minutes"
    yield (
        f"this machine: {speed.tokens_per_second:,.0f} tokens/s on {speed.cores} cores (measured, "
        f"{speed.seconds:.1f} s), {duration} for all"
    )
    if estimate.cost is not None:
        yield f"cost*: {estimate.cost:,.2f} by --price_per_hour"
    yield "N machines take an Nth of the hours for the same money"
