"""An Airflow of each version, for the files that `make test-airflow` runs."""

import pytest

from tests.support.airflow import FOLDERS, Airflow


@pytest.fixture(scope="session")
def new_airflows(tmp_path_factory):
    """Airflows by version, nothing of which was used."""
    folder = tmp_path_factory.mktemp("airflow")
    return {version: Airflow(version, folder / version).migrated() for version in FOLDERS}
