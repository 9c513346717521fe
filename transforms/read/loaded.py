"""Makes extra columns what BigQuery loads from Parquet files, by its table of Parquet conversions.

See https://cloud.google.com/bigquery/docs/loading-data-cloud-storage-parquet#parquet_conversions
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bert_embed.base.arrays import splits_of, sums_of
from bert_embed.transforms.read.records import Documents

_DAYS = -719_162, 2_932_896  # of the years 1 to 9999, since 1970
_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000}
_STORED = {pa.float16(): pa.float32(), pa.uint64(): pa.int64()}


def loaded_type(kind: pa.DataType) -> pa.DataType:
    """The type in files for BigQuery of an extra column, of a type that `plain_type` gives.

    >>> loaded_type(pa.timestamp("ns", "UTC")), loaded_type(pa.list_(pa.float16()))
    (TimestampType(timestamp[us, tz=UTC]), ListType(list<item: float>))
    """
    if pa.types.is_list(kind):
        return pa.list_(loaded_type(kind.value_type))
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    return pa.time64("us") if pa.types.is_time(kind) else _STORED.get(kind, kind)


def loaded(documents: Documents) -> Documents:
    """Documents with extra columns of `loaded_type` whose values BigQuery loads; others count.

    A date or time outside the years 1 to 9999 becomes null, null elements of lists are left out.
    """
    if documents.extra is None:
        return documents
    columns, unfit = [], Counter(documents.unfit)
    for name, column in zip(documents.extra.column_names, documents.extra.columns, strict=True):
        values = column.combine_chunks()
        values, lost = (_filled if pa.types.is_list(values.type) else _in_range)(values)
        columns.append(values)
        unfit += Counter({name: lost})
    extra = pa.Table.from_arrays(columns, schema=documents.extra.schema)
    return replace(documents, extra=extra, unfit=unfit)


def _filled(lists: pa.ListArray) -> tuple[pa.ListArray, int]:
    """Lists without their null elements, and how many those are."""
    values = lists.flatten()
    if not values.null_count:
        return lists, 0
    kept = values.is_valid().to_numpy(zero_copy_only=False).astype(np.int64)
    lengths = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    splits = pa.array(splits_of(sums_of(kept, lengths)), pa.int32())
    filled = pa.ListArray.from_arrays(splits, values.drop_null(), lists.type, mask=lists.is_null())
    return filled, values.null_count


def _in_range(values: pa.Array) -> tuple[pa.Array, int]:
    """Dates and times in the years that BigQuery has, and how many are not; others as they are."""
    kind = values.type
    if pa.types.is_timestamp(kind):
        numbers, ticks = values.view(pa.int64()), _DAY[kind.unit]
    elif pa.types.is_date(kind):
        numbers, ticks = values.cast(pa.date32()).view(pa.int32()), 1
    else:
        return values, 0
    first, last = _DAYS
    fits = pc.and_(
        pc.greater_equal(numbers, first * ticks), pc.less(numbers, (last + 1) * ticks)
    ).fill_null(True)
    lost = len(values) - fits.true_count
    return (pc.if_else(fits, values, pa.scalar(None, kind)) if lost else values), lost
