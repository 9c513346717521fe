"""Has Beam remember the signatures of functions, which it asks for again in every pipeline."""

from inspect import Signature
from types import FunctionType, MethodType
from typing import Any
from weakref import WeakKeyDictionary

from apache_beam.transforms import core
from apache_beam.typehints import decorators

_inspected = decorators.get_signature
_of_functions: WeakKeyDictionary[FunctionType, Signature] = WeakKeyDictionary()
_of_methods: WeakKeyDictionary[FunctionType, Signature] = WeakKeyDictionary()


def remember_signatures() -> None:
    """Makes a small run in this process take a third less time, which was `inspect.signature`.

    Beam inspects each method of each DoFn several times a run, in hundreds of runs a session. A
    function never has another signature than before; as a method it has one parameter less. The
    commands that tests start as processes, and `make test-lowest`, run Beam as it is.
    """
    core.get_signature = decorators.get_signature = _remembered


def _remembered(function: Any) -> Signature:
    known, key = _of_functions, function
    if isinstance(function, MethodType):
        known, key = _of_methods, function.__func__
    if not isinstance(key, FunctionType):
        return _inspected(function)
    if key not in known:
        known[key] = _inspected(function)
    return known[key]
