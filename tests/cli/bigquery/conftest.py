"""The data set of a test."""

import itertools

import pytest

from tests.support.servers.bigquery import BigQueryServer

_NUMBERS = itertools.count()


@pytest.fixture
def dataset(bigquery: BigQueryServer) -> str:
    """The name of a data set of the test's own."""
    name = f"of_test_{next(_NUMBERS)}"
    bigquery.client.create_dataset(f"test-project.{name}")
    return name
