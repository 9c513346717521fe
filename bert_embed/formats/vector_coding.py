"""Decodes the stored numbers of a run's files, and says which file is damaged."""

import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from bert_embed.formats.number_types import INTEGER_DTYPES, restored, stored_type, stored_width
from bert_embed.storage.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa

# A file of a run has about 128 MiB. A file that declares more than this is not read, because a few
# bytes of Parquet can declare any number of rows.
_MOST_BYTES = 8 << 30
# What damaged bytes make Arrow, orjson, zlib and NumPy raise. Arrow's errors of a file's contents
# are OSErrors, too, without the number that an error of the system has.
_DAMAGE = (ArithmeticError, EOFError, LookupError, OSError, TypeError, ValueError, zlib.error)


@contextmanager
def damage_named(path: Path | str) -> Iterator[None]:
    """Raises InputError, which names the file, where its bytes are not what a run wrote."""
    try:
        yield
    except _DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # no permission, a stale handle, too many open files: the bytes may be whole
        raise InputError(
            f"{path} is damaged: `bert-embed verify --repair` writes a file of a run again"
        ) from error


@dataclass(frozen=True)
class Coding:
    """How the vectors of a run are stored.

    Attributes:
        dtype: Output type.
        width: Numbers of a vector.
    """

    dtype: str
    width: int

    def vectors(
        self, values: np.ndarray, scale: np.ndarray | None, present: np.ndarray
    ) -> np.ndarray:
        """Returns float32 `[rows, width]` from the values of present rows, NaN for others."""
        rows = values.reshape(int(present.sum()), stored_width(self.dtype, self.width))
        vectors = restored(rows, scale, self.dtype, self.width)
        if present.all():
            return vectors
        spread = np.full((len(present), self.width), np.nan, np.float32)
        spread[present] = vectors
        return spread

    def of_lists(
        self, lists: Sequence[Sequence[float] | None], scales: Sequence[float | None]
    ) -> np.ndarray:
        """Returns vectors of JSON, which has stored integers, or the numbers of other types."""
        coding = self if self.dtype in INTEGER_DTYPES else Coding("float32", self.width)
        values = [each for each in lists if each is not None]
        present = np.array([each is not None for each in lists], bool)
        return coding.vectors(
            np.array(values, stored_type(coding.dtype)),
            np.array([each for each in scales if each is not None], np.float32),
            present,
        )

    def of_column(self, column: "pa.Array", scale: "pa.Array | None") -> np.ndarray:
        """Returns vectors of a column of Parquet, in which a missing one may be an empty list."""
        # to_numpy would import pandas where it is installed: a third of a second.
        present = np.from_dlpack(column.value_lengths().fill_null(0)) > 0
        scales = None if scale is None else np.from_dlpack(scale.fill_null(np.nan))[present]
        return self.vectors(np.from_dlpack(column.flatten()), scales, present)


def check_size(file: "pa.parquet.ParquetFile") -> None:
    """Raises InputError if a footer declares far too many bytes or rows."""
    found = file.metadata
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    kind = (
        file.schema_arrow.field("embedding").type
        if "embedding" in file.schema_arrow.names
        else None
    )
    width = getattr(kind, "list_size", 0)
    size = max(sum(group.total_byte_size for group in groups), found.num_rows * (16 + 4 * width))
    if size > _MOST_BYTES:
        raise InputError(f"declares {size:,} bytes")


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yields the objects of JSON lines."""
    if path.stat().st_size > _MOST_BYTES:
        raise InputError("too large to be a file of a run")
    with path.open("rb") as file:
        for line in file:
            yield orjson.loads(line)


def example_columns(
    path: Path, coding: Coding, kinds: Mapping[str, type]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Reads a TFRecord file of vectors of texts as a whole.

    Args:
        path: `.tfrecord` or `.tfrecord.gz`.
        coding: How its vectors are stored.
        kinds: The type of each further feature, `int`, `float` or `bytes`.

    Returns:
        float32 `[records, width]`, and the values of each further feature, which are empty where
        the records do not have it.
    """
    from bert_embed.formats.tfrecord import unframed

    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    records = [record.data for some in unframed([data]) for record in some]
    return decoded_examples(records, coding, kinds)


def decoded_examples(
    records: Sequence[bytes | None], coding: Coding, kinds: Mapping[str, type]
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Decodes records as `example_columns` does; None is one whose checksum differs."""
    from bert_embed.formats.tf_example import decode_records

    if None in records:
        raise InputError("a checksum differs")
    floats = coding.dtype == "float32"
    wanted = {**kinds, "scale": float, "embedding": float if floats else bytes}
    columns, readable = decode_records([each for each in records if each is not None], wanted)
    if len(readable) < len(records):
        raise InputError("a record is not a tf.train.Example")
    values = columns["embedding"].values
    if not floats:
        stored = stored_type(coding.dtype).newbyteorder("<")
        values = np.frombuffer(b"".join(values.tolist()), stored)
    scale = columns["scale"].values if len(columns["scale"].values) else None
    vectors = coding.vectors(values, scale, np.ones(len(records), bool))
    return vectors, {name: columns[name].values for name in kinds}
