"""Has Beam remember what it works out anew, and equal, in every pipeline of a process."""

import copy
import sys
from argparse import Namespace
from collections.abc import Sequence
from inspect import Signature
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms import core, userstate
from apache_beam.transforms.userstate import StateSpec, TimerSpec
from apache_beam.typehints import decorators

_inspected = decorators.get_signature
_of_functions: WeakKeyDictionary[FunctionType, Signature] = WeakKeyDictionary()
_of_methods: WeakKeyDictionary[FunctionType, Signature] = WeakKeyDictionary()
_searched = userstate.get_dofn_specs
_specs: WeakKeyDictionary[type | FunctionType, tuple[set[StateSpec], set[TimerSpec]]] = (
    WeakKeyDictionary()
)
_parsed_new = PipelineOptions.__init__
_parsed: dict[tuple[type[PipelineOptions], tuple[str, ...]], Namespace] = {}


def remember() -> None:
    """Makes a small run in this process take a third of its CPU time.

    Beam inspects each method of each DoFn several times a run, and builds a parser of the command
    line for each look at an option: 300 times for a pipeline of 50 transforms. The commands that
    tests start as processes, and `make test-lowest`, run Beam as it is.
    """
    core.get_signature = decorators.get_signature = _signature
    userstate.get_dofn_specs = _dofn_specs
    PipelineOptions.__init__ = _parse_once


def _signature(function: Any) -> Signature:
    """A function never has another signature than before; as a method a parameter less."""
    known, key = _of_functions, function
    if isinstance(function, MethodType):
        known, key = _of_methods, function.__func__
    if not isinstance(key, FunctionType):
        return _inspected(function)
    if key not in known:
        known[key] = _inspected(function)
    return known[key]


def _dofn_specs(dofn: core.DoFn) -> tuple[set[StateSpec], set[TimerSpec]]:
    """State and timers are parameters of methods, or of the function that a DoFn was made of."""
    key = dofn._fn if isinstance(dofn, core.CallableWrapperDoFn) else type(dofn)
    if not isinstance(key, type | FunctionType):
        return _searched(dofn)
    if key not in _specs:
        _specs[key] = _searched(dofn)
    states, timers = _specs[key]
    return set(states), set(timers)


def _parse_once(
    options: PipelineOptions, flags: Sequence[str] | None = None, **overrides: Any
) -> None:
    """Equal words are equal options of a class; lists among them are each instance's own."""
    words = tuple(sys.argv[1:] if flags is None else flags)
    if isinstance(flags, str) or (type(options), words) not in _parsed:
        _parsed_new(options, flags, **overrides)
        _parsed[type(options), words] = copy.deepcopy(options._visible_options)
        return
    options._flags = flags
    options._visible_options = copy.deepcopy(_parsed[type(options), words])
    options._all_options = {**vars(options._visible_options), **overrides}
