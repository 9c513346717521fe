"""An Airflow for the files that `make test-airflow` runs."""

import pytest

from tests.support.daily import Airflow


@pytest.fixture(scope="session")
def new_airflow(tmp_path_factory):
    return Airflow(tmp_path_factory.mktemp("airflow") / "new").migrated()
