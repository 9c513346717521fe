"""Imports Arrow and Beam without the optional packages that a command does not use."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

from bert_embed.pipeline.runners.options import DEFAULT_RUNNER

if TYPE_CHECKING:
    from bert_embed.pipeline.options.embed import Options

# Which Beam works without. google.cloud: clients of BigQuery, Dataflow, Pub/Sub and Storage.
_OPTIONAL = ("apitools", "google.cloud", "pandas", "pymongo")
_ANY_STORE = "://"


def leave_out_pandas() -> None:
    """Does without pandas, which Arrow and scikit-learn, for a report's map, import where it is.

    It takes 0.5 s and 40 MiB. For processes that are a command of ours from start to end.
    """
    sys.meta_path.insert(0, _Absent(("pandas",)))


def _import_arrow() -> None:
    """Imports Arrow as if pandas were not installed; the clients of services may use it."""
    import pyarrow as pa

    with _absent("pandas"):
        pa.array([], pa.string())  # Arrow's Python looks for pandas once,
        pa.scalar("")  # and its C++ does where it finds the type of a value


def import_beam(options: "Options") -> None:
    """Imports Beam for a run; of one on local files, as if its optional packages were missing.

    They take 2 s of processor time and 75 MiB. For processes that are a command of ours.
    """
    if options.job.name != DEFAULT_RUNNER.lower() or _uses_a_service(options):
        _import_arrow()
        return
    leave_out_pandas()
    with _absent(*_OPTIONAL):
        import apache_beam  # noqa: F401


def _uses_a_service(options: "Options") -> bool:
    return options.reads_table or options.loads_table or _ANY_STORE in repr(astuple(options))


@contextmanager
def _absent(*packages: str) -> Iterator[None]:
    """Makes imports of packages fail, but for modules that were imported before."""
    finder = _Absent(packages)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Absent(MetaPathFinder):
    """Answers for packages that are not installed."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self._packages = packages

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        """Finds nothing, and ends the search for these packages."""
        # A part of a package, too: start files of Python may have imported the name `google.cloud`.
        if any(f"{fullname}.".startswith(f"{name}.") for name in self._packages):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
