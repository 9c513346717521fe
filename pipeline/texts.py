"""Finds texts of documents that an output does not hold, in the input of its run."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa

from bert_embed.base.errors import error_text
from bert_embed.pipeline.options.flags import looks_like_table
from bert_embed.pipeline.report.sample import Run, Sample
from bert_embed.pipeline.run.columns import recorded_columns
from bert_embed.results.names import parse_name
from bert_embed.results.run_record import RunRecord
from bert_embed.search.nearest import Hit
from bert_embed.storage.files import absolute, is_remote
from bert_embed.transforms.listing import list_input, listing_digest
from bert_embed.transforms.parts import BlockSpec, plan_blocks
from bert_embed.transforms.read.reader import document_blocks

_MOST_BYTES = 128 << 20  # of an input that are read again for a report
_REQUEST_BYTES = 256 << 10  # what a store sends in the time that it takes to answer
_Hits = list[list[Hit]]
_Key = tuple[int, int, str]  # block, part and id of a document


def sample_texts(
    run: Run, sample: Sample, tell: Callable[[str], object] | None = None
) -> list[str | None] | None:
    """The texts of a sample: those that the output holds, else read from the input of its run.

    None where there are none to show; of a large input it is some. A BigQuery table is not read.
    """
    if sample.texts is not None:
        return sample.texts
    none: list[Any] = [None] * len(sample)
    places = sample.files, sample.ids, sample.starts or none, sample.stops or none
    hits = [Hit(0.0, "", file, 0, *place) for file, *place in zip(*places, strict=True)]
    [found], problem = texts_of_input([hits], run.record, run.folder.path, _MOST_BYTES)
    if problem is not None and tell is not None:
        tell(f"note: no texts are shown: {problem}")
    texts = [hit.text for hit in found]
    return texts if any(texts) else None


def texts_of_input(
    hits: _Hits, record: RunRecord, folder: str, most: int | None = None
) -> tuple[_Hits, str | None]:
    """Adds texts by planning and reading the blocks of documents again; says why there are none.

    Where there are no hits nothing is read. The plan is the same every time, so a file's name gives
    its block. Of several documents with one id in a part, none can be told from the others. Of
    blocks with more than `most` bytes together, only some are read, evenly spread, and none of many
    small objects of a store.
    """
    source, keeps = record.input, "`--keep_text` of embed keeps texts"
    if not any(hits):
        return hits, None
    if record.query_rows is not None or any(map(looks_like_table, source.patterns)):
        return hits, f"the run read BigQuery; {keeps}"
    if not source.listing:
        return hits, f"an export does not know where in the input its documents are; {keeps}"
    try:
        listing = list_input(source.patterns, source.format, absolute(folder))
        if any(file.format == "tfrecord" for file in listing.files):
            return hits, "the run read examples; `--keep_text` of tokenize and embed keeps texts"
        if listing_digest(listing.files) != source.listing:
            return hits, "the run's input has changed or is missing; `--keep_text` keeps texts"
        columns = recorded_columns(record, listing.files)
        files = listing.first(source.limit, columns)
        # Nobody shows the extra ones, but their bytes decide where Parquet's parts end.
        if names := source.extra_columns:
            columns = replace(columns, extra=pa.schema([(name, pa.string()) for name in names]))
    except (ValueError, OSError) as error:
        return hits, f"the run's input cannot be read: {error_text(error)}"
    wanted = {key for hit in itertools.chain.from_iterable(hits) if (key := _key(hit))}
    last = {block: part for block, part, _ in sorted(wanted)}  # part of each block
    cut = record.files
    texts: dict[_Key | None, str | None] = {}
    specs = [spec for spec in plan_blocks(files, cut.block_bytes) if spec.number in last]
    if specs and most is not None and not (specs := _some(specs, cut.block_bytes, most)):
        return hits, f"the run read too many small objects; {keeps}"
    for spec in specs:
        for block in document_blocks(spec, columns, cut.part_docs, cut.block_bytes, {}):
            for document, text in zip(block.ids.to_pylist(), block.texts, strict=True):
                key = spec.number, block.part.number, document
                if key in wanted:
                    texts[key] = text if texts.get(key, text) == text else None
            if block.part.number >= last[spec.number]:
                break

    def with_text(hit: Hit) -> Hit:
        text = texts.get(_key(hit))
        return replace(hit, text=None if text is None else text[hit.start : hit.stop])

    shown = [list(map(with_text, few)) for few in hits]
    if texts and not any(texts.values()):
        return shown, "several documents of a part have these ids"
    return shown, None


def _some(specs: list[BlockSpec], block_bytes: int, most: int) -> list[BlockSpec]:
    """Blocks of about so many bytes together, evenly spread; none if one takes `most` requests."""
    read, requests = 0, list[int]()
    for spec in specs:
        size = sum(piece.info.size for piece in spec.slices)
        read += size if spec.compression else min(size, block_bytes)
        requests.append(sum(is_remote(piece.info.path) for piece in spec.slices))
    step = max(1, -(-max(read, sum(requests) * _REQUEST_BYTES) // most))
    pairs = zip(specs[::step], requests[::step], strict=True)
    return [spec for spec, count in pairs if count <= most // _REQUEST_BYTES]


def _key(hit: Hit) -> _Key | None:
    name = parse_name(hit.file)
    return name and (name.block, name.part, str(hit.id))
