"""A job in which no element has the column fails; one that has it keeps the others apart."""

import apache_beam as beam
import pytest
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from bert_embed.transforms.adapters.embed_documents import EmbedDocuments


def run(elements, model, windows=None):
    with beam.Pipeline() as pipeline:
        made = pipeline | beam.Create(elements) | beam.Map(lambda one: TimestampedValue(one, 1))
        made = made if windows is None else made | beam.WindowInto(windows)
        _ = made | EmbedDocuments(model)


@pytest.mark.parametrize("windows", [None, FixedWindows(1)])
def test_a_job_without_the_column_fails(tiny_bundle, windows):
    message = "no element has the column text, all are rejected: it has body, id"
    with pytest.raises(Exception, match=message):
        run([{"body": "a river", "id": 1}, {"body": "a bank", "id": 2}], tiny_bundle, windows)


@pytest.mark.parametrize(
    "elements", [[], ["a river"], [{"text": None}], [{"body": 1}, {"text": "b"}]]
)
def test_any_other_job_ends_well(tiny_bundle, elements):
    run(elements, tiny_bundle)
