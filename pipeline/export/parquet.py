"""Writes the newest rows of runs as one output, of another number type or fewer numbers."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from xxhash import xxh3_128_hexdigest

from bert_embed.backends.runner import finish as finished_vectors
from bert_embed.base.json import json_bytes
from bert_embed.models.heads.head import EMBEDDING, PIECES, SCALE
from bert_embed.models.heads.kinds import ROW_KINDS
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.export.folder import rows_of_files
from bert_embed.pipeline.export.source import ExportSource
from bert_embed.results.columns import encoded
from bert_embed.results.files import FORMATS, Rows
from bert_embed.results.names import kinds_of
from bert_embed.results.run_record import Goal, RunRecord, change_record, now, read_record
from bert_embed.settings import VectorSpec
from bert_embed.storage.files import list_files
from bert_embed.transforms.ledger import (
    BlockRecord,
    Totals,
    Verdict,
    block_record,
    block_record_bytes,
    finished_parts,
    listing_hash,
)
from bert_embed.transforms.output_folder import STATE, OutputFile, OutputFolder
from bert_embed.transforms.parts import BlockSpec, Part

_MEGABYTES = 128  # of a file's vectors as float32


def parquet(source: ExportSource) -> str:
    """Exports as an output that search, `read` and embed take; returns what to say."""
    from bert_embed.transforms.reconcile import finish  # Beam

    dest, settings = source.options.dest, _settings(source)
    rows = rows_of_files(source.width or 1, _MEGABYTES)
    record = _record(source, settings, -(-source.rows // rows))
    folder = OutputFolder(dest)
    with folder.held(alone=True):
        present = read_record(dest)
        others = (file.path.removeprefix(f"{dest}/") for file in list_files(f"{dest}/"))
        strange = present is None and not all(name.startswith(f"{STATE}/") for name in others)
        if strange or (present is not None and present.run != record.run):
            raise UsageError(f"{dest} holds something else than this export; choose another DEST")
        sizes, parts = folder.listed()
        there = f"{listing_hash(sizes):016x}", len(parts)
        if present and present.is_done and there == (present.numbers.listing, record.plan.blocks):
            return source.said(False)
        folder.prepare()
        change_record(dest, lambda running: running or record)
        totals = Totals()
        for number, (_, batches) in enumerate(source.cut(rows)):
            spec = BlockSpec(number, record.files.format, ())
            written = finished_parts(folder, record.run, spec).get(0)
            if written is None:
                written = _written(folder, number, source, settings, [*batches])
                folder.write_block_record(number, 0, block_record_bytes(written, record.run))
            totals.add(written)
        finish(dest, record, Verdict(totals, ()), time.time())
    return source.said(True)


def _settings(source: ExportSource) -> dict[str, Any]:
    """What the output says of its vectors: what a run of these settings would."""
    options, settings = source.options, dict(source.outputs[0].settings)
    is_cut = options.dim is not None and options.dim != settings.get("dim")
    stored = settings["output_dtype"]
    decoded = options.output_dtype in (None, "float32", stored)
    if stored != "float32" and (is_cut or not decoded):
        raise UsageError(
            f"{source.place} holds {stored} vectors, which were rounded: they become float32 only, "
            "and --dim takes float32"
        )
    typed = [name for name, kind in ROW_KINDS.items() if kind.has_dtype]
    of_dtype = "output_dtype", source.dtype != stored, typed
    for flag, is_asked, taken in (("dim", is_cut, ["dense"]), of_dtype):
        if is_asked and not {*taken} & {*source.kinds}:
            raise UsageError(
                f"--{flag} is for {' and '.join(taken)} vectors, {source.place} holds "
                f"{' and '.join(source.kinds)} ones"
            )
    width = settings["shape"][-1]
    if is_cut and options.dim > width:
        raise UsageError(f"--dim must be between 1 and {width} for {source.place}")
    if is_cut:
        settings |= {"dim": options.dim, "shape": [*settings["shape"][:-1], options.dim]}
        settings.pop("dim_last", None)  # as `embed --dim`, which scales what it cut
    if kinds_of(settings) != source.kinds:  # those of tokens and words are left out
        settings |= {"granularity": ["sentence"], "token_shape": None}
        settings |= {} if source.kinds == ("dense",) else {"vectors": list(source.kinds)}
    return settings | {"output_dtype": source.dtype}


def _record(source: ExportSource, settings: dict[str, Any], blocks: int) -> RunRecord:
    """The record of the output while it is written; its input is that of all runs."""
    last = source.records[-1]
    patterns = dict.fromkeys(name for one in source.records for name in one.input.patterns)
    # Without a listing: its blocks are those of no input, which has no place of its documents.
    read = replace(last.input, patterns=tuple(patterns), listing="", paths=None, skip_existing=None)
    identity = source.identity | {"dim": settings.get("dim"), "output_dtype": source.dtype}
    return replace(
        last,
        status="running",
        run=xxh3_128_hexdigest(json_bytes(identity)),
        started=now(),
        ended=None,
        error=None,
        job=None,
        vectors=settings,
        input=read,
        files=replace(last.files, format="parquet"),
        plan=Goal(blocks, None, source.rows),
        table=None,
        loads={},
        result=None,
    )


def _written(
    folder: OutputFolder,
    number: int,
    source: ExportSource,
    settings: Mapping[str, Any],
    batches: list[Rows],
) -> BlockRecord:
    """Writes a part; returns its record, in which a document counts where its first row is."""
    columns = pa.concat_tables([batch.columns for batch in batches])
    names, files = columns.column_names, dict[str, OutputFile]()
    piece = next((name for name in PIECES if name in names), None)
    facts = [name for name in names if name not in ("id", EMBEDDING, SCALE)]
    for kind in source.kinds:
        if kind == "dense" and EMBEDDING in names:  # as they are stored
            vectors = columns.select([EMBEDDING, SCALE])
        else:
            made = (_columns(source, settings, kind, batch) for batch in batches)
            vectors = pa.concat_tables(map(pa.table, made))
        parts = columns.select(["id"]), vectors, columns.select(facts)
        table = pa.table(
            {
                one.name: column
                for some in parts
                for one, column in zip(some.schema, some.columns, strict=True)
            }
        )
        write = FORMATS["parquet"].writer(table.combine_chunks(), ROW_KINDS[kind], settings)
        place = ROW_KINDS[kind].place(piece)
        files |= folder.write(place, number, 0, ".parquet", write, table.num_rows)

    def numbers(name: str) -> np.ndarray:
        return columns[name].to_numpy() if name in names else np.zeros(len(columns), np.int32)

    is_first = np.ones(len(columns), bool) if piece is None else numbers(piece) == 0
    of_rows = numbers("num_tokens")
    # Behind the first number: tokens of a document that the part before begins.
    tokens = np.bincount(np.cumsum(is_first), of_rows)[1:].astype(np.int32)
    full = numbers("num_tokens_full" if "num_tokens_full" in names else "num_tokens")
    counted = block_record(
        Part(number, 0, records=len(tokens)),
        tokens,
        numbers("truncated")[is_first].astype(bool),
        files,
        full_tokens=int(full.sum()),
    )
    return replace(counted, tokens=int(of_rows.sum()))


def _columns(
    source: ExportSource, settings: Mapping[str, Any], kind: str, batch: Rows
) -> dict[str, Any]:
    """The columns of the vectors of a batch, of which `dim` cuts dense ones."""
    vectors = source.vectors(batch)[kind]
    before = source.outputs[0].settings["shape"][-1]
    if kind == "dense" and settings["shape"][-1] != before:
        spec = VectorSpec(dim=settings["dim"], normalize=settings["normalize"])
        vectors = finished_vectors(spec, vectors, before, lambda layer: layer)
    return encoded(ROW_KINDS[kind], vectors, settings)
