"""Finds the parts and blocks that earlier attempts finished."""

from collections.abc import Iterable, Iterator

from bert_embed.storage.files import size_of
from bert_embed.storage.parallel import in_parallel
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.records.report import BlockReport, read_report
from bert_embed.transforms.records.spec import BlockSpec

# Reports that one worker reads while all others wait for the plan; if there are more, the worker of
# each block reads those of its block.
MOST_READ_HERE = 20_000


def complete_readers(
    folder: OutputFolder, run: str, specs: Iterable[BlockSpec]
) -> Iterator[tuple[BlockSpec, tuple[BlockReport, ...]]]:
    """Yields each reader with the reports of all its parts, or none if a part is not finished.

    One listing finds the reports of the run, another checks their files; then the reports are read,
    many at once. If there are very many, none is read here: the worker of each block looks for its
    reports.
    """
    parts = _listed_parts(folder)
    if not 0 < len(parts) <= MOST_READ_HERE:
        yield from ((spec, ()) for spec in specs)
        return
    sizes = folder.data_files()

    def reports_of(spec: BlockSpec) -> tuple[BlockSpec, tuple[BlockReport, ...]]:
        done: dict[int, BlockReport] = {}
        for part in parts.get(spec.number, ()):
            if part % spec.stripes != spec.stripe:
                continue
            report = read_report(folder, spec.number, part, run)
            if report is None or not _has_files(report, sizes):
                return spec, ()
            done[part] = report
        return spec, tuple(done.values()) if is_complete(spec, done) else ()

    yield from in_parallel(reports_of, specs)


def _listed_parts(folder: OutputFolder) -> dict[int, list[int]]:
    """Numbers of the parts that have a report, in order, by block."""
    parts: dict[int, list[int]] = {}
    for block, part in folder.report_parts():
        parts.setdefault(block, []).append(part)
    return parts


def _has_files(report: BlockReport, sizes: dict[str, int]) -> bool:
    """Whether all files of a part exist in their full size."""
    return all(sizes.get(name) == file.bytes for name, file in report.files.items())


def finished_parts(folder: OutputFolder, run: str, spec: BlockSpec) -> dict[int, BlockReport]:
    """The reports that a reader's finished parts have of the run, by part number.

    A report does not count if one of its files is missing or cut: the part is written again.
    """
    found: dict[int, BlockReport] = {}
    number = spec.stripe
    while (report := read_report(folder, spec.number, number, run)) is not None:
        if all(size_of(folder.path_of(n)) == file.bytes for n, file in report.files.items()):
            found[number] = report
        if report.last:
            break
        number += spec.stripes
    return found


def is_complete(spec: BlockSpec, done: dict[int, BlockReport]) -> bool:
    """Whether a reader has all its parts, up to the last."""
    last = max(done, default=None)
    if last is None or not done[last].last:
        return False
    return len(done) == (last - spec.stripe) // spec.stripes + 1
