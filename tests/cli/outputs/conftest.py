"""Two days of a corpus and the output of the first, which the tests of this folder share."""

import shutil
from pathlib import Path

import pytest

from tests.support.command import embed
from tests.support.daily import two_days


@pytest.fixture(scope="session")
def days(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return two_days(tmp_path_factory.mktemp("days"))


@pytest.fixture(scope="session")
def first_day(
    days: tuple[Path, Path], tiny_bundle: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    output = tmp_path_factory.mktemp("first_day") / "one"
    assert embed(output, tiny_bundle, days[0]) == 0
    return output


@pytest.fixture
def one(first_day: Path, tmp_path: Path) -> Path:
    """The output of the first day, for a test to change."""
    return shutil.copytree(first_day, tmp_path / "one")
