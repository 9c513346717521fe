"""Defines Step, the base of transforms that are dataclasses."""

import apache_beam as beam


class Step(beam.PTransform):
    """A transform whose settings are the fields of a dataclass."""

    def __post_init__(self) -> None:
        super().__init__()
