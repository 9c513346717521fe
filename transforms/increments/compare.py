"""Compares the keys of the input with those of earlier outputs and with each other."""

from dataclasses import dataclass

import apache_beam as beam

from transforms.increments.check_ids import CheckIds
from transforms.increments.read_keys import KeySettings, ReadKeys
from transforms.increments.skip_existing import SkipExisting
from transforms.records.spec import BlockSpec
from transforms.records.step import Step


@dataclass
class CompareKeys(Step):
    """Adds to BlockSpecs which documents to skip, and checks the ids of the input.

    Gives a dict: `specs`, the BlockSpecs with the documents to skip, and `facts`, dicts to
    be added to the run's record.

    Attributes:
        settings: How keys are compared.
    """

    settings: KeySettings

    def expand(self, specs: beam.PCollection[BlockSpec]):  # a dict has no type Beam would check
        keys = specs | "ReadKeys" >> beam.ParDo(ReadKeys(self.settings))
        facts = [specs.pipeline | "NoFacts" >> beam.Create([], reshuffle=False)]
        if self.settings.check_ids:
            facts.append((specs, keys) | "CheckIds" >> CheckIds(self.settings))
        if self.settings.earlier:
            found = (specs, keys) | "SkipExisting" >> SkipExisting(self.settings)
            specs = found["specs"]
            facts += [found["facts"]] if self.settings.list_removed else []
        return {"specs": specs, "facts": facts | beam.Flatten()}
