"""Plan and account of large corpora.

The files are not there, their listing is made up; cutting it into blocks, the hash of it, the
sum of block records and the verdict are the real ones. Each case runs in a process of its own,
which tells processor seconds and the peak of its memory. `block_records` is on the disk: the
records of a tenth as many finished blocks, which the next attempt finds.
"""

import pickle
import resource
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

from benchmarks import measure
from bert_embed.storage.local import FileInfo
from bert_embed.transforms.ledger import (
    BegunBlocks,
    BlockRecord,
    Totals,
    begun_blocks,
    block_record_bytes,
    finished_blocks,
    verdict,
)
from bert_embed.transforms.listing import listing_digest
from bert_embed.transforms.output_folder import OutputFile, OutputFolder, part_name
from bert_embed.transforms.parts import BlockSpec, InputFile, plan_blocks
from bert_embed.transforms.plan import planned_work

_BLOCK = 1 << 20
_RUN = "0" * 32
_PARTIAL = 1000  # block records that one worker sums before its sum goes to the account


def scale_plan(name: str, files: int = 1_000_000, cases: Sequence[str] | None = None) -> None:
    """Runs the cases, each in a process of its own, for its peak of memory."""
    found = {case: measure.apart(_case, case, files) for case in cases or CASES}
    results = {
        f"{case}: {step}": {"cpu_s": seconds, "peak_mib": peak, "largest_mb": size / 1e6}
        for case, steps in found.items()
        for step, (seconds, peak, size) in steps.items()
    }
    columns = {
        "case, step": "{name}",
        "processor s": "{cpu_s:.1f}",
        "peak MiB so far": "{peak_mib:,.0f}",
        "largest element, MB": "{largest_mb:,.2f}",
    }
    measure.report({"benchmark": name, "files": files}, columns, results)


class Steps:
    """What each step took: processor seconds, MiB at most until then, bytes of its element."""

    def __init__(self) -> None:
        self.taken: dict[str, list[float]] = {"start-up": [time.process_time(), _peak(), 0]}

    @contextmanager
    def step(self, name: str) -> Iterator[list[float]]:
        """Measures a step; the element that it gives is put into the list that it yields."""
        start, sizes = time.process_time(), [0.0]
        yield sizes
        self.taken[name] = [time.process_time() - start, _peak(), max(sizes)]


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def listed(sizes: Iterable[int], name: Callable[[int], str] = "{:08d}".format) -> list[InputFile]:
    """A listing of files in Cloud Storage that are not there."""
    infos = (
        FileInfo(f"gs://bucket/corpus/part-{name(n)}.jsonl", size, 1.7e9 + n / 1000, n)
        for n, size in enumerate(sizes)
    )
    return [InputFile(info, "jsonl", None, info.size) for info in infos]


def _random_name(number: int) -> str:
    return sha256(b"%d" % number).hexdigest()


def plan_and_account(files: Callable[[], list[InputFile]]) -> dict[str, list[float]]:
    """Plans a corpus, sums the records that its blocks would have, and holds them against it."""
    steps = Steps()
    with steps.step("listing, held"):
        every = files()
    with steps.step("hash of the listing"):
        listing_digest(every)
    with steps.step("plan") as size:
        for spec in plan_blocks(every, _BLOCK):
            if spec.number % 1000 == 0:
                size.append(len(pickle.dumps(spec)))
        planned = planned_work(every, plan_blocks(every, _BLOCK))
    with steps.step("plan, as the account gets it") as size:
        size.append(len(pickle.dumps(planned)))
    with steps.step("account: block records summed, a worker at a time") as size:
        sums = list(_sums(plan_blocks(every, _BLOCK), size))
    with steps.step("account: sums of all workers") as size:
        total = Totals()
        for one in sums:
            total.add(one)
        size.append(len(pickle.dumps(total)))
    with steps.step("account: verdict"):
        problems = verdict(planned, total).problems
    if problems:
        raise RuntimeError("; ".join(problems))
    return steps.taken


def _sums(specs: Iterable[BlockSpec], size: list[float]) -> Iterator[Totals]:
    total = Totals()
    for count, spec in enumerate(specs, 1):
        total.add(_record(spec))
        if count % _PARTIAL == 0:
            size.append(len(pickle.dumps(total)))
            yield total
            total = Totals()
    yield total


def _record(spec: BlockSpec, size: int = 15_000_000) -> BlockRecord:
    covered = {piece.file: piece.stop - piece.start for piece in spec.slices}
    seconds = {"read": 0.1, "tokenize": 0.2, "infer": 60.0, "write": 0.1}
    return BlockRecord(
        block=spec.number,
        part=0,
        last=True,
        records=10_000,
        covered=covered,
        end_of_file=None,
        embedded=10_000,
        tokens=200_000,
        length_bins=[1000] * 10,
        files={_name(spec): OutputFile(size, "AAAAAA==", 10_000)},
        seconds=seconds,
    )


def _name(spec: BlockSpec) -> str:
    return f"embeddings/part-{part_name(spec.number, 0)}.parquet"


def finished_records(files: int) -> dict[str, list[float]]:
    """An attempt that finds all blocks done: the listing of their records, and reading them."""
    with tempfile.TemporaryDirectory(dir="build") as folder:
        output = OutputFolder(folder)
        output.prepare()
        (Path(folder) / "embeddings").mkdir()
        specs = list(plan_blocks(listed([_BLOCK] * files), _BLOCK))
        for spec in specs:
            output.write_block_record(spec.number, 0, block_record_bytes(_record(spec, 0), _RUN))
            (Path(folder) / _name(spec)).touch()
        steps = Steps()
        with steps.step("block records listed, for the workers") as size:
            begun = [some for some in begun_blocks(output, specs) if isinstance(some, BegunBlocks)]
            size.append(max(len(pickle.dumps(some)) for some in begun))
        with steps.step("block records read, by all workers"):
            found = sum(
                spec.complete for some in begun for spec, _ in finished_blocks(output, _RUN, some)
            )
        if found != files:
            raise RuntimeError("a finished block was not found")
        return steps.taken


CASES: dict[str, Callable[[int], dict[str, list[float]]]] = {
    "blocks": lambda files: plan_and_account(lambda: listed([_BLOCK] * files)),
    "packed": lambda files: plan_and_account(lambda: listed([1000] * files)),
    "random names": lambda files: plan_and_account(lambda: listed([_BLOCK] * files, _random_name)),
    "block_records": lambda files: finished_records(files // 10),
}


def _case(name: str, files: int) -> dict[str, list[float]]:
    return CASES[name](files)
