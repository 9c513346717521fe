"""Says what a run reads and writes, as lineage names it."""

from collections.abc import Iterator

import pyarrow.parquet as pq

from bert_embed.models.heads.kinds import KINDS
from bert_embed.pipeline.lineage import Dataset, Datasets, fields_of
from bert_embed.pipeline.run.plan import EmbedRun
from bert_embed.results.formats import EXAMPLES, FORMATS
from bert_embed.results.run_record import RunRecord
from bert_embed.storage.files import join, names_in, open_raw
from bert_embed.transforms.bigquery.client import looks_like_table


def datasets_of(run: EmbedRun, record: RunRecord) -> Datasets:
    """The datasets of a run; those it has written with their columns and sizes once it is done."""
    query = run.options.query
    outputs = [*_folders(run, record), *_tables(record)]
    return Datasets([*_inputs(run, record)], outputs, query)


def _inputs(run: EmbedRun, record: RunRecord) -> Iterator[Dataset]:
    """What is read, and earlier outputs; the rows of a query are a table that expires."""
    read = record.input
    columns = {name: "string" for name in (read.text_column, read.text_b_column) if name}
    columns = {part: "string" for name in columns for part in name.split(",")}
    if read.id_column is not None:
        columns[read.id_column] = str(run.work.columns.id_type)
    columns |= read.extra_columns or {}
    numbers: dict[str, int | None] = {}
    if len(read.patterns) == 1:  # of several together, nobody knows which has how many
        rows = record.result.counts.records if record.result else None
        numbers = {
            "rows": rows,
            "bytes": read.bytes,
            "files": None if run.source.table else read.files,
        }
    places = () if run.options.query is not None else read.patterns
    for place in places:
        yield Dataset(place, **numbers, fields=columns)
    for earlier in read.earlier:
        place = earlier.output
        yield from (
            Dataset(place if looks_like_table(place) else join(place, name))
            for name in _names(run)[:1]
        )


def _names(run: EmbedRun) -> list[str]:
    """The folders of a run's vectors, or of its examples."""
    if run.kind == EXAMPLES:
        return [EXAMPLES]
    spec = run.work.text_spec
    return [KINDS[kind].place(spec.pieces) for kind in spec.kinds]


def _folders(run: EmbedRun, record: RunRecord) -> Iterator[Dataset]:
    written = record.result.written if record.result else {}
    for name in [*dict.fromkeys([*_names(run), *written])]:
        place = join(run.output, name)
        numbers = written.get(name)
        if numbers is None:
            yield Dataset(place)
            continue
        yield Dataset(place, numbers.rows, numbers.bytes, numbers.files, _columns(run, place))


def _columns(run: EmbedRun, folder: str) -> dict[str, str] | None:
    """The columns of the files in a folder, by the first of them; None if they do not say."""
    if FORMATS[run.options.output_format].suffix != ".parquet":
        return None
    name = min((name for name in names_in(folder) if name.endswith(".parquet")), default=None)
    if name is None:
        return None
    with open_raw(join(folder, name)) as file:
        return fields_of(pq.read_schema(file))


def _tables(record: RunRecord) -> Iterator[Dataset]:
    for kind, table in (record.table.tables if record.table else {}).items():
        load = record.loads.get(kind)
        yield Dataset(table, rows=None if load is None else load.documents)
