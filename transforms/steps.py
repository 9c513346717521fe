"""What the Beam steps of a run share: base, labels, coder, reading, metrics, errors, progress.

Of errors texts are left out; progress is what this process does now, for people who watch.

The metrics count the record of each part once its files are written, twice where a bundle is
retried: they are for watching. The exact counts are in run.json.
"""

import logging
import pickle
import re
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.utils.interactive_utils import is_in_ipython

from bert_embed.base.arrays import take
from bert_embed.base.errors import StepError
from bert_embed.transforms.blocks import DocumentBlock, TokenBlock, nbytes
from bert_embed.transforms.ledger import SUMMED, BlockRecord, finished_parts, is_complete
from bert_embed.transforms.output_folder import OutputFolder
from bert_embed.transforms.parts import BLOCK_SKIPPED, BlockSpec, Rejected, block_place

_LOG = logging.getLogger(__name__)


class Step(beam.PTransform):
    """A transform whose settings are the fields of a dataclass."""

    def __post_init__(self) -> None:
        super().__init__()


class BlockCoder(beam.coders.Coder):
    """Pickles blocks, as Beam does by itself, but estimates their size without pickling them.

    Beam encodes every element to measure it, also between fused steps: for a block of vectors that
    took a tenth of the time around the model.
    """

    def encode(self, value: Any) -> bytes:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def decode(self, encoded: bytes) -> Any:
        return pickle.loads(encoded)

    def estimate_size(self, value: Any) -> int:
        return nbytes(value)

    def is_deterministic(self) -> bool:
        return False


def passed_as_block(block: type) -> None:
    """Has Beam pass records of this type by `BlockCoder`, in pipelines that are built from now."""
    beam.coders.registry.register_coder(block, BlockCoder)


NAMESPACE = "bert_embed"
_OTHERWISE = ("embedded", "blank")  # counted as `documents` and by the reason


def count_block_record(record: BlockRecord) -> None:
    """Adds a part to the counters, and its seconds to the distribution of block seconds."""
    counts = {name: getattr(record, name) for name in SUMMED if name not in _OTHERWISE}
    _count({**counts, "parts": 1, "documents": record.embedded}, record.rejected)
    milliseconds = round(1000 * sum(record.seconds.values()))
    Metrics.distribution(NAMESPACE, "block_milliseconds").update(milliseconds)


def count_documents(embedded: int, truncated: int, rejected: Mapping[str, int]) -> None:
    """Adds a batch of another pipeline to the counters; `rejected` has how many by reason."""
    _count({"documents": embedded, "truncated": truncated}, rejected)


def _count(counts: Mapping[str, int], rejected: Mapping[str, int]) -> None:
    names = ((re.sub("[^a-z0-9]+", "_", why.lower()).strip("_"), why) for why in rejected)
    by_reason = {f"rejected_{name}": rejected[why] for name, why in names}
    for name, count in {**counts, "rejected": sum(rejected.values()), **by_reason}.items():
        Metrics.counter(NAMESPACE, name).inc(count)


@contextmanager
def without_cell_labels() -> Iterator[None]:
    """Leaves the numbers of notebook cells out of the labels of pipelines that are built meanwhile.

    Beam imports its DataFrames for them, in IPython at every step: with pandas 3 this fails, and
    with older ones it loads JavaScript of other hosts into the notebook.
    """
    of_beam = beam.pipeline.alter_label_if_ipython
    beam.pipeline.alter_label_if_ipython = _same_label
    try:
        yield
    finally:
        beam.pipeline.alter_label_if_ipython = of_beam


def mend_cell_labels() -> None:
    """Leaves these numbers out for good where Beam cannot make them, which fails every pipeline."""
    if not is_in_ipython():
        return
    try:
        import apache_beam.runners.interactive.interactive_environment  # noqa: F401
    except (AttributeError, ImportError):  # pandas 3 lacks what Beam's DataFrames are made of
        beam.pipeline.alter_label_if_ipython = _same_label


def _same_label(transform: Any, inputs: Any) -> None:
    """Changes nothing; takes what Beam's function takes."""


def read_unfinished(
    elements: beam.PCollection,
    folder: OutputFolder,
    run: str,
    read: Callable[..., Iterator[DocumentBlock | TokenBlock]],
    block: type,
    spec_of: Callable[[Any], BlockSpec] | None = None,
) -> tuple[beam.PCollection, beam.PCollection]:
    """Reads blocks of any input, but for the parts that earlier attempts of the run finished.

    The plan holds back what was finished when it was made; this step looks again, because a bundle
    may be retried. `read` takes an element, a BlockSpec or what `spec_of` takes, and as `done`
    numbers of parts to leave out, and gives records of type `block`. Gives what was read, and
    finished BlockRecords.
    """
    passed_as_block(block)
    step = beam.ParDo(_Read(folder, run, read, spec_of))
    outputs = elements | "Read" >> step.with_outputs("finished", main="blocks")
    outputs.blocks.element_type = block
    return outputs.blocks, outputs.finished


@dataclass(eq=False)
class _Read(beam.DoFn):
    """Reads one block, which it logs; the only step that looks for finished parts."""

    folder: OutputFolder
    run: str
    read: Callable[..., Iterator[DocumentBlock | TokenBlock]]
    spec_of: Callable[[Any], BlockSpec] | None

    def process(
        self, element: Any
    ) -> Iterator[
        DocumentBlock | TokenBlock | beam.pvalue.TaggedOutput[Literal["finished"], BlockRecord]
    ]:
        spec = element if self.spec_of is None else self.spec_of(element)
        finished = finished_parts(self.folder, self.run, spec)
        for record in finished.values():
            yield beam.pvalue.TaggedOutput("finished", record)
        if not is_complete(spec, finished):
            done = {*spec.done, *finished}
            _LOG.info("block %d begins: %s", spec.number, block_place(spec))
            with RedactErrors("read"):
                yield from self.read(element, done=done)


def without_blocks(block: DocumentBlock, numbers: Collection[int]) -> DocumentBlock:
    """The part, all rejected if its block, which crashes workers, has such a number."""
    if block.part.block not in numbers:
        return block
    with RedactErrors("skip blocks"):
        columns = block.ids.to_pylist(), block.sources.to_pylist(), block.texts
        rejected = tuple(
            Rejected(document, source, "read", BLOCK_SKIPPED, text)
            for document, source, text in zip(*columns, strict=True)
        )
        part = replace(block.part, rejected=block.part.rejected + rejected)
        return replace(take(block, np.zeros(0, np.int64)), part=part)


_PACKAGE = __name__.partition(".")[0]
# Ours, and those of files and networks: they describe names and states, which users need to see.
_WITHOUT_TEXTS = (
    *(f"{_PACKAGE}.", "google.", "apache_beam.", "apitools.", "grpc.", "requests.", "urllib3."),
)


class RedactErrors:
    """Keeps the message of an error only if its class is ours, or that of a store's client.

    Others' messages often quote a value, and runners log them. Of such an error only kind and
    place are kept, in a StepError that names the step.
    """

    def __init__(self, step: str) -> None:
        self._step = step

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception):
            return
        if not has_own_words(error):
            raise StepError(f"{self._step}: {described(error)}") from None
        if not all(map(has_own_words, _causes(error))):
            # A traceback would show the message of the cause.
            error.__cause__, error.__context__ = None, None
            error.__suppress_context__ = True


def has_own_words(error: BaseException) -> bool:
    """Whether an error's class is ours, or that of a client of files and networks."""
    module = f"{type(error).__module__}."
    return isinstance(error, (OSError, MemoryError)) or module.startswith(_WITHOUT_TEXTS)


def described(error: BaseException) -> str:
    """Kind and places of an error, without its message."""
    every = [*traceback.walk_tb(error.__traceback__)]
    ours = [
        (frame, line)
        for frame, line in every
        if str(frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE
    ]
    places = [
        f"{'/'.join(Path(frame.f_code.co_filename).parts[-2:])}:{line}"
        for frame, line in ours[-1:] + every[-1:]
    ]
    module = type(error).__module__
    name = type(error).__name__ if module == "builtins" else f"{module}.{type(error).__name__}"
    return f"{name} at {', '.join(dict.fromkeys(places))} (its message may hold a text: not shown)"


def _causes(error: BaseException) -> Iterator[BaseException]:
    while (following := error.__cause__ or error.__context__) is not None:
        yield following
        error = following


_doing: list[str] = []  # what this process does now, in any thread; people see what began last


@contextmanager
def activity(name: str) -> Iterator[None]:
    """Names what this process does, such as "loading the model", until the block ends."""
    _doing.append(name)
    try:
        yield
    finally:
        _doing.remove(name)


def current_activity() -> str | None:
    """What this process does now; None if nothing that has a name."""
    return _doing[-1] if _doing else None
