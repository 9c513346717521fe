"""Finished blocks: one listing of a run's reports in, what needs not be computed again out."""

from collections.abc import Iterable, Iterator

from transforms.accounting import BlockReport, is_complete, read_report, report_path
from transforms.block_spec import BlockSpec
from transforms.files import join, names_in, size_of, sizes_in
from transforms.parallel import in_parallel

# Reports that one worker reads while all others wait for the plan; of more, each block's are left
# to the worker that has the block.
_MOST_READ_HERE = 20_000


def complete_readers(
    output: str, run: str, specs: Iterable[BlockSpec]
) -> Iterator[tuple[BlockSpec, tuple[BlockReport, ...]]]:
    """Yields each reader with the reports of all its parts, none if one of them is still to do.

    The reports are found by one listing of `blocks/`, their files compared with one of the output
    folder; then only reports that are there are read, many at once. If there are very many, none is
    read here: whoever is to do a block looks for its reports first, on many workers.

    Args:
        output: Folder of the run.
        run: Its fingerprint; reports of another run do not count.
        specs: The plan.
    """
    parts = _listed_parts(output)
    if not 0 < len(parts) <= _MOST_READ_HERE:
        yield from ((spec, ()) for spec in specs)
        return
    sizes = sizes_in(output)

    def reports_of(spec: BlockSpec) -> tuple[BlockSpec, tuple[BlockReport, ...]]:
        done: dict[int, BlockReport] = {}
        for part in parts.get(spec.number, ()):
            if part % spec.stripes != spec.stripe:
                continue
            report = read_report(report_path(output, spec.number, part), run)
            if report is None or not _has_files(report, output, sizes):
                return spec, ()
            done[part] = report
        return spec, tuple(done.values()) if is_complete(spec, done) else ()

    yield from in_parallel(reports_of, specs)


def _listed_parts(output: str) -> dict[int, list[int]]:
    """Numbers of the parts that have a report, in order, by block."""
    parts: dict[int, list[int]] = {}
    for name in names_in(join(output, "blocks")):
        block, _, part = name.removesuffix(".json").partition("-")
        if name.endswith(".json") and block.isdecimal() and part.isdecimal():
            parts.setdefault(int(block), []).append(int(part))
    return parts


def _has_files(report: BlockReport, output: str, sizes: dict[str, int]) -> bool:
    """Whether the files of a part are all there in their full size."""
    for name, size in report.files.items():
        found = size_of(join(output, name)) if "/" in name else sizes.get(name)
        if found != size:
            return False
    return True
