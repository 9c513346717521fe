"""Lists the files of an input with their formats and compressions."""

import hashlib
from collections.abc import Iterable, Sequence

from storage.errors import SettingError
from storage.files import FileInfo, join, list_files
from transforms.output_folder import SETTINGS_FILE
from transforms.plan.limit import limit_files
from transforms.plan.own_output import check_no_output
from transforms.read.encoding import check_stored_encoding
from transforms.read.tables.parquet_rows import with_footers
from transforms.records.spec import InputFile

FORMATS = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".tfrecord": "tfrecord",
}
OTHER_FORMATS = {".avro", ".orc", ".xlsx", ".pdf", ".docx"} | {
    *(".xz", ".lzma", ".lz4", ".zip", ".7z", ".br", ".snappy", ".tar", ".tgz"),
}
COMPRESSIONS = {".gz": "gzip", ".bz2": "bzip2", ".zst": "zstd"}


def input_files(
    patterns: Sequence[str],
    input_format: str | None = None,
    output: str | None = None,
    look_inside: bool = True,
) -> list[InputFile]:
    """Lists the files that the patterns name, sorted by path, each once.

    Args:
        patterns: Paths, folders and globs.
        input_format: Of all files, None for the suffix's.
        output: Files below are left out: a run into a folder of its input would read itself.
        look_inside: Whether to check that local files have a readable encoding, and that no output
            of another run is among them; not needed when a listing is repeated.

    Raises:
        ValueError: A pattern that names no file, the output of a run, or a file whose format or
            encoding cannot be read.
    """
    found: dict[str, FileInfo] = {}
    for pattern in patterns:
        listed = list_files(pattern)
        own = () if output is None else (join(output, ""),)
        files = [each for each in listed if not each.path.startswith(own)]
        if listed and not files:
            raise SettingError(
                "input",
                f"{pattern} lies below output {output}, where a run reads nothing; choose an "
                "output beside the input",
                "output",
            )
        if look_inside:
            check_no_output(pattern, files)
        files = without_records(files)
        if not files:
            raise SettingError("input", f"{pattern} names no file")
        found.update((each.path, each) for each in files)
    return [_input_file(found[path], input_format, look_inside) for path in sorted(found)]


def without_records(files: list[FileInfo]) -> list[FileInfo]:
    """Leaves out the record and reports of runs that wrote examples."""
    ends = "/" + SETTINGS_FILE
    folders = tuple(
        each.path.removesuffix(SETTINGS_FILE) for each in files if each.path.endswith(ends)
    )
    return [
        each
        for each in files
        if ".tfrecord" in each.path.rsplit("/", 1)[-1] or not each.path.startswith(folders)
    ]


def _input_file(info: FileInfo, input_format: str | None, look_inside: bool) -> InputFile:
    name = info.path.rsplit("/", 1)[-1].lower()
    compression = next((kind for end, kind in COMPRESSIONS.items() if name.endswith(end)), None)
    stem = name.rsplit(".", 1)[0] if compression else name
    suffix = "." + stem.rsplit(".", 1)[1] if "." in stem else ""
    if input_format is None and suffix in OTHER_FORMATS:
        raise SettingError(
            "input",
            f"{info.path}: {suffix} files cannot be read; give text, JSON lines or CSV (each also "
            "as .gz, .bz2 or .zst) or Parquet, or say input_format text if it holds plain text",
            "input_format",
        )
    kind = input_format or FORMATS.get(suffix, "text")
    if kind == "parquet":
        if compression is not None:
            raise SettingError(
                "input", f"{info.path} is compressed as a whole, unpack it: Parquet is"
            )
    elif look_inside and compression is None and kind != "tfrecord":
        check_stored_encoding(info.path)
    return InputFile(info, kind, compression, info.size)


def files_to_read(
    listed: Sequence[InputFile], text_column: str, limit: int | None = None
) -> list[InputFile]:
    """The files that `input_files` gave, with the facts that a plan needs.

    Of Parquet files the bytes of the text column count. A trial run reads `limit` records.

    Raises:
        ValueError: A file is not Parquet, or not CSV.
    """
    files = with_footers(listed, text_column)
    return files if limit is None else limit_files(files, limit)


def listing_digest(files: Iterable[InputFile]) -> str:
    """A hash of names, sizes and times: another listing is another run."""
    digest = hashlib.sha256()
    for file in files:
        row = (file.info.path, file.info.size, repr(file.info.modified), file.format)
        digest.update(repr(row).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
