"""Reads machines and prices, and computes hours and cost."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import yaml

from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.estimate.speed import Speed
from bert_embed.storage.files import read_bytes

PACKAGED = Path(__file__).with_name("prices.yaml")
_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Processor:
    """How fast a core is of a processor that `bert_embed.engines.processor.name` names so."""

    processor: str
    core_speed: float
    basis: str


@dataclass(frozen=True)
class Machine:
    """A machine: what an hour costs, and how fast one of its vCPUs is."""

    name: str
    vcpus: int
    memory_gb: float
    hour: float
    vcpu_speed: float
    basis: str


@dataclass(frozen=True)
class Dataflow:
    """What Dataflow takes for an hour of its workers, and which machine they are."""

    machine: str
    vcpu_hour: float
    memory_gb_hour: float
    disk_gb: float
    disk_gb_hour: float


@dataclass(frozen=True)
class Prices:
    """The content of a file of prices."""

    path: str
    date: str
    currency: str
    region: str
    sources: list[str]
    processors: list[Processor]
    other_processor: Processor
    machines: list[Machine]
    dataflow: Dataflow | None

    def core(self, name: str) -> Processor:
        """The processor of this machine, or what stands for any other."""
        found = (each for each in self.processors if each.processor == name)
        return next(found, self.other_processor)


@dataclass(frozen=True)
class Cost:
    """What one machine would take and cost; several of them take less time for the same money.

    Attributes:
        name: Of the machine or service.
        tokens_per_second: Of one machine.
        hours: That one machine takes.
        cost: Of these hours.
        basis: Where its speed relative to others comes from.
    """

    name: str
    tokens_per_second: float
    hours: float
    cost: float
    basis: str


def read_prices(path: str | None) -> Prices:
    """The prices in a file, None for the packaged one.

    Raises:
        UsageError: It cannot be read, or is no file of prices; the message names the key.
    """
    place = str(PACKAGED) if path is None else path
    try:
        data = read_bytes(place)
        if data is None:
            raise FileNotFoundError(f"{place} is not there")
        found = yaml.safe_load(data)
    except (OSError, ValueError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        raise UsageError(f"--prices {place} cannot be read: {why}") from error
    if not isinstance(found, dict):
        raise UsageError(f"--prices {place} must hold keys such as machines, as the packaged file")
    other = found.get("other_processor")
    other = {"processor": ""} | other if isinstance(other, dict) else other
    dataflow = found.get("dataflow")
    return Prices(
        path=place,
        date=str(_value(place, found, "date")),
        currency=str(_value(place, found, "currency")),
        region=str(_value(place, found, "region")),
        sources=[str(each) for each in found.get("sources") or ()],
        processors=[_row(place, Processor, each) for each in found.get("processors") or ()],
        other_processor=_row(place, Processor, other),
        machines=[_row(place, Machine, each) for each in _value(place, found, "machines")],
        dataflow=None if dataflow is None else _row(place, Dataflow, dataflow),
    )


def _value(place: str, found: dict[str, Any], name: str) -> Any:
    if found.get(name) is None:
        raise UsageError(f"--prices {place} has no {name}; copy it from the packaged file")
    return found[name]


def _row(place: str, kind: type[_Row], found: Any) -> _Row:
    """A row of the file: every field has its name and type, and numbers are above zero."""
    what = kind.__name__.lower()
    values: dict[str, Any] = {}
    for each in fields(kind):  # type: ignore[arg-type]
        value = found.get(each.name) if isinstance(found, dict) else None
        if value is None:
            raise UsageError(f"--prices {place}: a {what} has no {each.name}")
        number = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        if each.type is not str and not number:
            raise UsageError(f"--prices {place}: {each.name} of a {what} must be above 0")
        values[each.name] = str(value) if each.type is str else value
    return kind(**values)


def costs(prices: Prices, speed: Speed, tokens: float) -> Iterator[Cost]:
    """What each machine would take: this machine's speed a core, scaled by the file's ratios."""
    core = speed.tokens_per_second / speed.cores / prices.core(speed.processor).core_speed
    for machine in prices.machines:
        rate = core * machine.vcpu_speed * machine.vcpus
        hours = tokens / rate / 3600
        yield Cost(machine.name, rate, hours, hours * machine.hour, machine.basis)
        dataflow = prices.dataflow
        if dataflow is not None and dataflow.machine == machine.name:
            hour = (
                machine.vcpus * dataflow.vcpu_hour
                + machine.memory_gb * dataflow.memory_gb_hour
                + dataflow.disk_gb * dataflow.disk_gb_hour
            )
            name = f"Dataflow, {machine.name}"
            yield Cost(name, rate, hours, hours * hour, machine.basis)
