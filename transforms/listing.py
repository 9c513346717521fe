"""Lists the files of an input with their formats and compressions."""

import base64
import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import astuple, dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from itertools import chain, compress, takewhile

import orjson
import pyarrow as pa

from bert_embed.base.errors import InputError, SettingError, StorageError
from bert_embed.base.json import is_torn
from bert_embed.base.threads import in_parallel
from bert_embed.results.names import BLOCK_RECORDS, DELETED, RUN_FILE, parse_name
from bert_embed.results.run_record import read_packed, write_packed
from bert_embed.storage.files import (
    FileInfo,
    absolute,
    files_in,
    for_each,
    holds_files,
    is_remote,
    join,
    list_files,
    names_in,
    read_bytes,
    size_of,
)
from bert_embed.storage.local import fixed_folder, is_folder, is_glob, matching, names_by_file
from bert_embed.transforms.examples import are_settings
from bert_embed.transforms.output_folder import LISTING, REJECTED, SETTINGS_FILE, OutputFolder
from bert_embed.transforms.parts import (
    COMPRESSIONS,
    EACH_FILE,
    FORMATS,
    WHOLE_FILES,
    Footer,
    InputFile,
    RowGroup,
)
from bert_embed.transforms.read.columns import PLAIN, Columns
from bert_embed.transforms.read.parquet import with_footers
from bert_embed.transforms.read.reader import parts_of
from bert_embed.transforms.read.streams import look_inside

# Not text: in a folder such files are skipped.
OTHER_FORMATS = {".avro", ".orc", ".xlsx", ".pdf", ".docx", ".heic", ".ipynb"} | {
    *(".xz", ".lzma", ".lz4", ".zip", ".7z", ".br", ".snappy", ".tar", ".tgz", ".rar", ".jar"),
    *(".xls", ".doc", ".ppt", ".pptx", ".odt", ".ods", ".odp", ".epub", ".mobi", ".djvu"),
    *(".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".svg", ".ico", ".psd"),
    *(".mp3", ".wav", ".flac", ".ogg", ".m4a", ".mp4", ".mov", ".avi", ".mkv", ".webm"),
    *(".ttf", ".otf", ".woff", ".woff2", ".exe", ".dll", ".so", ".dylib", ".class"),
    *(".pyc", ".whl", ".deb", ".rpm", ".iso", ".dmg", ".db", ".sqlite", ".sqlite3"),
    *(".npy", ".npz", ".pkl", ".pickle", ".pt", ".pth", ".ckpt", ".safetensors", ".onnx", ".h5"),
    *(".hdf5", ".feather", ".arrow", ".gguf", ".bin", ".idx", ".z", ".lzo", ".sz", ".metadata"),
    *(".crdownload", ".partial", ".tmp", ".bak", ".swp", ".lock", ".dvc"),
    *(".md5", ".sha1", ".sha256", ".sha512", ".crc", ".sig", ".rds", ".rdata", ".dta", ".sav"),
}
_OTHER_DATA = {".arrow", ".feather", ".avro", ".orc"}  # of these, other files tell of data
HIDDEN = "_*"  # stands among suffixes for files with hidden names
OF_RUNS = "outputs of runs"  # likewise for the files of earlier runs
LINKS = "links"  # likewise for links to files that are read
_HIDING = ("_", ".")
_HIDDEN_ENDS = "_$folder$", "~"  # of folders, as Hadoop writes them to stores; of backups
_SHARD = re.compile(r"-\d+-of-\d+$")
# What programs put behind the suffix of Parquet for how its pages are compressed.
_OF_PAGES = re.compile(r"(\.(?:parquet|parq|pq))\.(?:gz|gzip|snappy|zstd?|br|brotli|lz4)$")
# What stands beside the files of a data set, as on the Hugging Face Hub: not part of it.
_BESIDE_DATA = re.compile(
    r"(readme|licen[cs]e|notice|citation|changelog|copying|authors|contribut(ing|ors)|version|requirements"
    r"|checksums?|(sha\d*|md5)sums?)([._-].*)?|(schema|load)\.sql"
    r"|(dataset_infos?|dataset_dict|features|metadata|package(-lock)?|tsconfig|schema|state|croissant"
    r"|datapackage|manifest)\.json|[\w-]*manifest"  # the latter as Redshift unloads it
)
# Of tables: the folder of the log, the ending of its files, and what reads them.
_TABLES = {
    "Delta Lake": ("_delta_log", "", "deltalake or Spark"),
    "Hudi": (".hoodie", "", "Spark"),
    "Iceberg": ("metadata", ".metadata.json", "pyiceberg"),
}
_MOST_FOLDERS = 100  # of a store, that are looked into for logs
_LOOKED_INTO = (".json", "")  # suffixes in a store
_FORMAT = 1  # of a listing in an output
_OF_JOBS = {"status", "run", "started", "versions"}  # keys of the records of all jobs
_COUNTED = 1 << 16  # records in memory while they are counted
_MOST_SETTINGS = 1 << 20  # bytes; a larger file with the name of settings or a record is text


@dataclass(frozen=True)
class Listing:
    """The files that are read, sorted by path, and how many are `skipped`: hidden or no text."""

    files: list[InputFile]
    skipped: dict[str, int]

    @property
    def suffixes(self) -> dict[str, int]:
        """The files that are read, by suffix, the most frequent first: how many."""
        suffixes = ("".join(_suffixes(file.info.path)) for file in self.files)
        return dict(Counter(suffixes).most_common())

    def first(self, limit: int | None, columns: Columns = PLAIN) -> list[InputFile]:
        """The files with what a plan needs, cut to their first `limit` records; None takes all.

        Files beyond are not looked into, but for a few footers of Parquet that were begun ahead.
        """
        some_have = any(file.format == "parquet" for file in self.files)
        described = with_footers(self.files, columns.text) if some_have else (f for f in self.files)
        with closing(described) as files:
            if limit is None:
                return list(files)
            limited, left = [], limit
            for file in files:
                cut, count = _limited(file, left, columns)
                limited.append(cut)
                left -= count
                if left <= 0:
                    break
        return limited


def _suffixes(path: str) -> tuple[str, str]:
    """A name's suffix in small letters, and that of its compression, "" for none.

    What Beam and TensorFlow put behind the suffix of a shard does not count.

    >>> _suffixes("out.csv-00000-of-00002.gz"), _suffixes("a.TFRecord.gz-00000-of-00001")
    (('.csv', '.gz'), ('.tfrecord', '.gz'))
    """
    name = _OF_PAGES.sub(r"\1", _SHARD.sub("", path.rsplit("/", 1)[-1].lower()))
    end = next((end for end in COMPRESSIONS if name.endswith(end)), "")
    stem = _SHARD.sub("", name.removesuffix(end))
    return "." + stem.rsplit(".", 1)[1] if "." in stem else "", end


def list_input(
    patterns: Sequence[str], input_format: str | None = None, output: str | None = None
) -> Listing:
    """Lists the files that the patterns name, sorted by path, each once.

    Files of a folder or glob that are hidden or not text are skipped, unless all of the latter are,
    and those of an earlier run's output in it; those below `output` are left out, as a run into a
    folder of its input would read itself. A file that links name, too, is read once. The format
    `EACH_FILE` makes a document of each file that would be read by lines.
    SettingError: a folder is a table with a log of its own, which says what belongs to it.
    """
    text = "text"
    if input_format == EACH_FILE:
        input_format, text = None, WHOLE_FILES
    infos: dict[str, FileInfo] = {}
    skipped: dict[str, str] = {}
    for pattern in patterns:
        files = _listed(pattern, output)
        _refuse_tables(pattern, files)
        files = _without(files, _of_runs(pattern, files), skipped)
        hidden = {file.path: HIDDEN for file in files if _is_hidden(file.path, pattern)}
        files = without_records(_without(files, hidden, skipped))
        if not files:
            raise _nothing_named(pattern, bool(hidden))
        if input_format != "text":
            beside = _beside_data(pattern, files, text == WHOLE_FILES, input_format is not None)
            files = _without(files, beside, skipped)
        if input_format is None:
            suffixes = ((file.path, _suffixes(file.path)[0]) for file in files)
            left = {path: suffix for path, suffix in suffixes if suffix in OTHER_FORMATS}
            files = _without(files, left if len(left) < len(files) else {}, skipped)
        infos.update((file.path, file) for file in files)
    for path in list(_other_names(infos)):
        del infos[path]
        skipped[path] = LINKS
    listed_infos = [infos[path] for path in sorted(infos)]
    looked = partial(_input_file, input_format=input_format, text=text)
    # Of a store the largest file of each suffix is looked into, and all if their names say little
    remote = [info for info in listed_infos if is_remote(info.path)]
    ones = {_suffixes(info.path): info for info in sorted(remote, key=lambda info: info.size)}

    def is_other(info: FileInfo) -> bool:
        end = _suffixes(info.path)
        return end[0] in _LOOKED_INTO or looked(info, {end}) != looked(info, ())

    looks = {*compress(ones, in_parallel(is_other, ones.values()))} if ones else set()
    looked = partial(looked, looks=looks)
    read = list(in_parallel(looked, listed_infos) if looks else map(looked, listed_infos))
    left_out = [suffix for path, suffix in skipped.items() if path not in infos]
    return Listing(read, dict(Counter(left_out).most_common()))


def _listed(pattern: str, output: str | None) -> list[FileInfo]:
    """The files that a pattern names, but for those below the output."""
    try:
        listed = list_files(pattern)
    except InputError as error:
        raise SettingError("input", str(error)) from error
    below = () if output is None else join(output, "")
    files = [info for info in listed if not info.path.startswith(below)]
    if listed and not files:
        raise SettingError(
            "input",
            f"{pattern} lies below output {output}, where a run reads nothing; choose an output "
            "beside the input",
            "output",
        )
    return files


def _without(
    files: Sequence[FileInfo], left: dict[str, str], skipped: dict[str, str]
) -> list[FileInfo]:
    skipped |= left
    return [file for file in files if file.path not in left]


def _of_runs(pattern: str, files: Sequence[FileInfo]) -> dict[str, str]:
    """Paths of files of outputs of runs, and what stands for them; SettingError if all are.

    An output is a folder that holds vectors of an earlier run, or what was made of them; not one
    of which the pattern names a folder or file, such as `runs/*/embeddings/*.parquet`.
    """
    place = absolute(pattern)
    spelled = place.split("/")
    folders = set[str]()
    for path in (file.path for file in files if file.path != place):
        above, _, name = path.rpartition("/")
        folder, _, kind = above.rpartition("/")
        if name == RUN_FILE:
            folders.add(f"{above}/")
        elif parse_name(f"{kind}/{name}") and kind not in spelled:
            folders.add(f"{folder}/")
    below = sorted(folder for folder in folders if folder.startswith(_base(pattern, folder)))
    outputs = tuple(compress(below, for_each(pattern, _is_output, below)))
    left = [file.path for file in files if file.path.startswith(outputs)]
    if left and len(left) == len(files):
        raise SettingError(
            "input",
            f"{pattern} names the output of a run, {outputs[0][:-1]}; give what it was made "
            f"from, or its files by their folder: {outputs[0]}embeddings/*",
        )
    return dict.fromkeys(left, OF_RUNS)


def _nothing_named(pattern: str, has_hidden: bool) -> SettingError:
    if has_hidden:
        return SettingError(
            "input",
            f"{pattern} names only hidden files, whose names, or folders, begin with _ or a dot, "
            "or end in ~; name such a file itself",
        )
    hint = "; stdin is not read, write it to a file first" if pattern == "-" else ""
    if is_glob(pattern) and any(map(is_folder, matching(pattern))):
        hint = f", but folders; {join(pattern, '**')} names the files below them"
    return SettingError("input", f"{pattern} names no file{hint}")


def _beside_data(
    pattern: str, files: Sequence[FileInfo], each_file: bool, is_forced: bool
) -> dict[str, str]:
    """Paths and names of files that tell of a data set among its files, unless they are named.

    Where each text file is a document, a README is one, too, but not JSON; `notice.csv` is data.
    """
    place, paths = absolute(pattern), [file.path for file in files]
    named = place.rpartition("/")[2].lower()
    if is_glob(named) and _BESIDE_DATA.match(named):
        return {}
    left, data = dict[str, str](), set[str]()
    for path in paths:
        suffix, name = _suffixes(path)[0], path.rpartition("/")[2]
        may_tell = suffix == ".json" or not (each_file or suffix in FORMATS)
        if path != place and may_tell and _BESIDE_DATA.fullmatch(name.lower()):
            left[path] = name
        else:
            data.add(suffix)
    is_all = each_file or is_forced
    of_data = data - OTHER_FORMATS if is_all else data & (FORMATS.keys() | _OTHER_DATA)
    return left if of_data else {}


def _other_names(paths: Iterable[str]) -> Iterator[str]:
    """Paths of files that have another one among them: that of the file itself, or the first link.

    One with the suffix of a format comes before, as caches link such names to files without one.
    """
    local_paths = (path for path in paths if not is_remote(path))
    for file, names in names_by_file(local_paths).items():
        names.sort(key=lambda name: (_suffixes(name)[0] not in FORMATS, name != file, name))
        yield from names[1:]


def _is_hidden(path: str, pattern: str) -> bool:
    """Whether Spark, Arrow and pandas hide a file below a folder or glob, by a name on its way.

    Names that the pattern spells out are not hidden, nor are partitions such as `_year=2024`.
    """
    place = absolute(pattern).rstrip("/")
    if path == place:
        return False
    below = path.removeprefix(_base(pattern, path)).split("/")
    spelled = [name for name in place.split("/") if name.startswith(_HIDING) or name.endswith("~")]
    return any(
        (name.startswith(_HIDING) or name.endswith(_HIDDEN_ENDS))
        and "=" not in name
        and not any(fnmatchcase(name, given) for given in spelled)
        for name in below
    )


def _is_output(folder: str) -> bool:
    """Whether a folder's run.json is that of a job that wrote vectors."""
    path = join(folder, RUN_FILE)
    try:
        size = size_of(path)
        if size is None or size >= _MOST_SETTINGS:
            return False
        data = read_bytes(path) or b""
        if is_torn(data):
            return bool(names_in(join(folder, BLOCK_RECORDS)))
        values = orjson.loads(data)
    except StorageError:
        raise
    except (OSError, ValueError):  # not to be read, or not ours
        return False
    return isinstance(values, dict) and values.keys() >= _OF_JOBS and "examples" not in values


def folder_above(patterns: Sequence[str], files: Sequence[InputFile]) -> str:
    """The folder, with a slash, of what the patterns name, or above all of it; "" of two stores."""
    paths = {file.info.path for file in files}
    folders = [
        fixed_folder(place) if is_glob(place) and place not in paths else place
        for place in (absolute(pattern).rstrip("/") for pattern in patterns)
    ]
    folders = [place.rpartition("/")[0] if place in paths else place for place in folders]
    shared = folders[0].split("/")
    for folder in folders[1:]:
        pairs = zip(shared, folder.split("/"), strict=False)
        shared = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    base = "/".join([*shared, ""])
    return base if not is_remote(patterns[0]) or base.count("/") > 2 else ""


def _base(pattern: str, path: str) -> str:
    """The folder of a pattern from which on names were found, with a slash."""
    place = absolute(pattern).rstrip("/")
    return f"{place if path.startswith(f'{place}/') else fixed_folder(place)}/"


def _refuse_tables(pattern: str, files: Sequence[FileInfo]) -> None:
    """Raises SettingError if files are those of a table, whose log may have removed some of them.

    The log lies among the files, or in a folder above them. In a store only the upper
    `_MOST_FOLDERS` are looked into, each of which takes requests.
    """
    paths = [file.path for file in files if file.path != absolute(pattern)]
    for kind, (log, ending, reader) in _TABLES.items():
        folders = _folders_above(pattern, paths, log.startswith("."))
        looked = partial(_has_log, log=log, ending=ending)
        among = re.compile(rf"(.*)/{re.escape(log)}/.*{re.escape(ending)}")
        roots = compress(folders, for_each(pattern, looked, folders))
        named = (match[1] for path in paths if (match := among.fullmatch(path)))
        if root := next(chain(roots, named), None):
            raise SettingError(
                "input",
                f"{root} is a table of {kind}: only its log says which files and rows belong to "
                f"it; let {reader} write it to Parquet, or name the files themselves",
            )


def _folders_above(pattern: str, paths: Sequence[str], hidden: bool) -> list[str]:
    """The folders in which files lie, upper ones first; a partition such as `year=2024` is none.

    Of a folder of a store all below is listed, but for `hidden` files: else only those above it
    are given.
    """
    above = set[str]()
    place = absolute(pattern).rstrip("/")
    for folder in {path.rpartition("/")[0] for path in paths}:
        if is_remote(pattern) and not hidden and f"{folder}/".startswith(f"{place}/"):
            folder = place.rpartition("/")[0]
        while folder not in above and not folder.endswith("/") and folder.strip("/"):
            above.add(folder)
            folder = folder.rpartition("/")[0]
    folders = sorted(
        (folder for folder in above if "=" not in folder.rpartition("/")[2]),
        key=lambda folder: (folder.count("/"), folder),
    )
    return folders[:_MOST_FOLDERS] if is_remote(pattern) else folders


def _has_log(folder: str, log: str, ending: str) -> bool:
    place = join(folder, log)
    with suppress(PermissionError):  # an account may be allowed to list the files alone
        if not ending:
            return holds_files(place)
        # A folder of this name is nothing special without its files
        return bool(files_in(place, lambda name: name.endswith(ending)))
    return False


def without_records(files: list[FileInfo]) -> list[FileInfo]:
    """Leaves out the records of runs that wrote examples, and what these runs rejected."""
    folders = [
        file.path.removesuffix(SETTINGS_FILE)
        for file in files
        if file.path.endswith(f"/{SETTINGS_FILE}")
        and file.size < _MOST_SETTINGS
        and are_settings(read_bytes(file.path))
    ]
    records = {f"{folder}{name}" for folder in folders for name in (SETTINGS_FILE, RUN_FILE)}
    others = tuple(f"{folder}{name}/" for folder in folders for name in (REJECTED, DELETED))
    return [file for file in files if file.path not in records and not file.path.startswith(others)]


def _input_file(
    info: FileInfo, looks: Collection[tuple[str, str]], input_format: str | None, text: str
) -> InputFile:
    """A file with its format and compression; of a store by its name unless `looks` has that."""
    suffix, end = _suffixes(info.path)
    compression = COMPRESSIONS.get(end)
    if input_format is None and suffix in OTHER_FORMATS:
        raise SettingError(
            "input",
            f"{info.path}: {suffix} files cannot be read; give text, JSON lines or CSV (each also "
            "as .gz, .bz2 or .zst) or Parquet, which pandas writes with df.to_parquet, or say "
            "input_format text if it holds plain text",
            "input_format",
        )
    if info.packed:
        raise SettingError(
            "input",
            f"{info.path} is stored with Content-Encoding gzip; give it a name that ends in .gz "
            "and no Content-Encoding",
        )
    kind = input_format or FORMATS.get(suffix, "text")
    kind = text if kind == "text" else kind
    if kind == "parquet":
        compression = None
    elif (suffix, end) in looks or not is_remote(info.path):
        kind, compression = look_inside(info, kind, compression, input_format is not None)
    return InputFile(info, kind, compression, info.size)


def listing_digest(files: Iterable[InputFile]) -> str:
    """A hash of names, sizes and times: another listing is another run."""
    digest = hashlib.sha256()
    for file in files:
        row = (file.info.path, file.info.size, repr(file.info.modified), file.format)
        digest.update(repr(row).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


@dataclass(frozen=True)
class StoredListing:
    """The files that are read, as an output keeps them; `digest` is of all that were listed."""

    digest: str
    files: list[InputFile]


def as_now(stored: StoredListing, files: Iterable[InputFile]) -> StoredListing | None:
    """A stored listing with its files as they were listed now; None if some may hold other bytes.

    They may have been written again: where a store tells that their bytes are the same. On disks
    only a second read of the input would tell.
    """
    infos = {file.info.path: file.info for file in files}
    now = []
    for file in stored.files:
        info = infos.get(file.info.path)
        if info is None or not info.has_bytes_of(file.info):
            return None
        now.append(replace(file, info=info))
    return StoredListing(stored.digest, now)


def write_listing(folder: OutputFolder, listing: StoredListing) -> None:
    """Keeps a listing in an output, where workers read it."""
    schemas: dict[pa.Schema, int] = {}
    rows = []
    for file in listing.files:
        footer = None
        if file.footer is not None:
            number = schemas.setdefault(file.footer.schema, len(schemas))
            footer = number, [(group.rows, group.size) for group in file.footer.groups]
        facts = file.format, file.compression, file.stop, file.records
        rows.append((astuple(file.info), *facts, footer))
    stored = {
        "format": _FORMAT,
        "digest": listing.digest,
        "files": rows,
        "schemas": [base64.b64encode(schema.serialize()).decode() for schema in schemas],
    }
    write_packed(folder.path_of(LISTING), stored)


def read_listing(folder: OutputFolder) -> StoredListing | None:
    """The listing in an output; None if there is none that this version can read."""
    stored = read_packed(folder.path_of(LISTING))
    if stored is None or stored.get("format") != _FORMAT:
        return None
    try:
        schemas = [
            pa.ipc.read_schema(pa.py_buffer(base64.b64decode(encoded)))
            for encoded in stored["schemas"]
        ]
        files = []
        for info, kind, compression, stop, records, footer in stored["files"]:
            if footer is not None:
                schema, sizes = footer
                footer = Footer(schemas[schema], tuple(RowGroup(*size) for size in sizes))
            file = InputFile(FileInfo(*info), kind, compression, stop, records, footer)
            files.append(file)
        return StoredListing(stored["digest"], files)
    except (KeyError, TypeError, ValueError, IndexError):
        return None


def _limited(file: InputFile, limit: int, columns: Columns) -> tuple[InputFile, int]:
    """A file cut to its first records, and how many it then has."""
    if file.format == WHOLE_FILES:
        return file, 1
    if file.format == "parquet":
        rows = min(file.stop, limit)
        return replace(file, stop=rows), rows
    whole = replace(replace(file, records=limit).as_block(), read_through=True)
    parts = parts_of(whole, _COUNTED, 1 << 20, columns)
    contents = [(content.count, content.size) for part in parts for content in part.contents]
    count, size = map(sum, zip(*contents, strict=True)) if contents else (0, 0)
    return replace(file, records=count) if file.read_through else replace(file, stop=size), count
