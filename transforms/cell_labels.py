"""Leaves out the numbers of notebook cells that Beam puts into the labels of steps.

Beam imports its DataFrames for them, in IPython at every step: with pandas 3 this fails, and with
older ones it loads JavaScript of other hosts into the notebook.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apache_beam as beam
from apache_beam.utils.interactive_utils import is_in_ipython


@contextmanager
def without_cell_labels() -> Iterator[None]:
    """Leaves them out of pipelines that are built meanwhile."""
    kept = beam.pipeline.alter_label_if_ipython
    beam.pipeline.alter_label_if_ipython = _same_label
    try:
        yield
    finally:
        beam.pipeline.alter_label_if_ipython = kept


def mend_cell_labels() -> None:
    """Leaves them out for good where Beam cannot make them, which fails every pipeline."""
    if not is_in_ipython():
        return
    try:
        import apache_beam.runners.interactive.interactive_environment  # noqa: F401
    except (AttributeError, ImportError):  # pandas 3 lacks what Beam's DataFrames are made of
        beam.pipeline.alter_label_if_ipython = _same_label


def _same_label(transform: Any, inputs: Any) -> None:
    """Changes nothing; takes what Beam's function takes."""
