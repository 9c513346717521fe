"""Pipelines of tests, and a Beam that remembers what it works out anew, and equal, in each."""

import bz2
import copy
import functools
import importlib.metadata
import pickle
import sys
import threading
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FunctionType, MethodType, SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import apache_beam as beam
from apache_beam.internal import cloudpickle_pickler, pickler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.worker import statecache, statesampler
from apache_beam.transforms import core, userstate
from apache_beam.transforms.userstate import StateSpec, TimerSpec
from apache_beam.typehints import decorators

from bert_embed.pipeline.runners.beam import BeamFlags


def collect(
    folder: Path, elements: Sequence[Any], transform: beam.PTransform, *flags: str
) -> list[list[Any]]:
    """Gives the transform the elements, and returns its collections, each as a list."""
    options = PipelineOptions(["--runner=FnApiRunner", *flags])
    with beam.Pipeline(options=options) as pipeline:
        made = pipeline | beam.Create(list(elements), reshuffle=False) | transform
        collections = [made] if isinstance(made, beam.PCollection) else list(made)
        for number, collection in enumerate(collections):
            _ = (
                collection
                | f"List {number}" >> beam.combiners.ToList()
                | f"Keep {number}" >> beam.Map(_keep, str(folder / f"collection-{number}"))
            )
    return [
        pickle.loads((folder / f"collection-{number}").read_bytes())
        for number in range(len(collections))
    ]


def _keep(elements: list[Any], path: str) -> None:
    Path(path).write_bytes(pickle.dumps(elements))


_pickled = pickler.roundtrip
_searched = userstate.get_dofn_specs
_specs: WeakKeyDictionary[Any, tuple[set[StateSpec], set[TimerSpec]]] = WeakKeyDictionary()
_parsed_new = PipelineOptions.__init__
_parsed: dict[tuple[type[PipelineOptions], tuple[str, ...]], Namespace] = {}
_option_names: dict[type[PipelineOptions], list[str]] = {}
_warned: set[tuple[str, ...]] = set()
_all_options = PipelineOptions.get_all_options


def remember() -> None:
    """Makes a small run in this process take a third of its CPU time.

    Beam inspects each method of each DoFn several times a run, and builds a parser of the command
    line for each look at an option: 300 times for a pipeline of 50 transforms. Commands that tests
    start as `fresh` processes, the workers of runners, and `make test-lowest`, run Beam as it is.
    """
    core.get_signature = decorators.get_signature = _once(decorators.get_signature)
    core.get_function_args_defaults = _once(core.get_function_args_defaults, _lists)
    decorators.IOTypeHints.from_callable = staticmethod(_once(decorators.IOTypeHints.from_callable))
    userstate.get_dofn_specs = _dofn_specs
    PipelineOptions.__init__ = _parse_once
    PipelineOptions._visible_option_list = _names
    PipelineOptions.get_all_options = _warn_once
    BeamFlags.of = _flags_of
    core._get_function_body_without_inners = _body
    # Stacks and sources, for messages about types.
    decorators.IOTypeHints._make_origin = classmethod(lambda *_, **__: [])
    importlib.metadata.version = functools.cache(importlib.metadata.version)
    pickler.roundtrip = _as_pickled
    # Level 9 clears megabytes for each of the forty small pickles of a run.
    cloudpickle_pickler.bz2 = SimpleNamespace(
        compress=lambda data, compresslevel: bz2.compress(data, 1), decompress=bz2.decompress
    )
    # How long each step took, which nobody asks: a thread for each bundle, and a wait for its end.
    statesampler.StateSampler.start = _sample
    statesampler.StateSampler.stop = lambda sampler: statesampler.set_current_tracker(None)
    # It would walk through the names of all modules, to see whether a cache is full.
    statecache.get_deep_size = lambda *objects: 64


def _once(look: Callable[[Any], Any], given: Callable[[Any], Any] = lambda found: found) -> Any:
    """Looks at a function once; as a method it has a parameter less."""
    functions: WeakKeyDictionary[FunctionType, Any] = WeakKeyDictionary()
    methods: WeakKeyDictionary[FunctionType, Any] = WeakKeyDictionary()

    def look_once(function: Any) -> Any:
        known, key = functions, function
        if isinstance(function, MethodType):
            known, key = methods, function.__func__
        if not isinstance(key, FunctionType):
            return look(function)
        if key not in known:
            known[key] = look(function)
        return given(known[key])

    return look_once


def _lists(found: tuple[list[Any], list[Any]]) -> tuple[list[Any], list[Any]]:
    names, defaults = found
    return list(names), list(defaults)


def _as_pickled(value: Any) -> Any:
    """What its pickle gives; of a DoFn one is made later, and this only shows that it can be.

    Not of one whose class a function makes: its timers are then looked for in a copy of the class.
    """
    if isinstance(value, core.DoFn) and "<locals>" not in type(value).__qualname__:
        return value
    return type(value)() if isinstance(value, list | dict) and not value else _pickled(value)


def _dofn_specs(dofn: core.DoFn) -> tuple[set[StateSpec], set[TimerSpec]]:
    """State and timers are parameters of methods, or of the function that a DoFn was made of."""
    key = dofn._fn if isinstance(dofn, core.CallableWrapperDoFn) else type(dofn)
    if not isinstance(key, type | FunctionType):
        return _searched(dofn)
    if isinstance(key, FunctionType) and not key.__defaults__ and not key.__kwdefaults__:
        key = key.__code__  # which a function that is made in each run shares with those before
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
        _parsed[type(options), words] = _copied(options._visible_options)
        return
    visible = _copied(_parsed[type(options), words])
    everything = {**vars(visible), **overrides}
    vars(options).update(_flags=flags, _visible_options=visible, _all_options=everything)


def _copied(values: Namespace) -> Namespace:
    copied = Namespace()
    for name, value in vars(values).items():
        vars(copied)[name] = copy.deepcopy(value) if isinstance(value, list | dict) else value
    return copied


def _names(options: PipelineOptions) -> list[str]:
    if type(options) not in _option_names:
        names = sorted(name for name in vars(options._visible_options) if name[0] != "_")
        _option_names[type(options)] = names
    return _option_names[type(options)]


def _warn_once(options: PipelineOptions, *, display_warnings: bool = False, **settings: Any) -> Any:
    """Of options that no class knows Beam warns by looking at all, at the start of each run."""
    if display_warnings and (words := tuple(options._flags)) in _warned:
        return {}
    if display_warnings:
        _warned.add(words)
    return _all_options(options, display_warnings=display_warnings, **settings)


def _sample(sampler: statesampler.StateSampler) -> None:
    sampler.tracked_thread = threading.current_thread()
    statesampler.set_current_tracker(sampler)


_flags_new = functools.lru_cache(BeamFlags.of)


def _flags_of(words: Sequence[str]) -> BeamFlags:
    return _flags_new(tuple(words))


_bodies: WeakKeyDictionary[CodeType, str] = WeakKeyDictionary()
_read_body = core._get_function_body_without_inners


def _body(function: FunctionType) -> str:
    """Where a function returns and yields, Beam reads in its source."""
    if function.__code__ not in _bodies:
        _bodies[function.__code__] = _read_body(function)
    return _bodies[function.__code__]
