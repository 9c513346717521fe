"""Two days of a corpus, the output of the first, and one of many blocks, for this folder."""

import shutil
from pathlib import Path

import pytest

from tests.support.command import embed
from tests.support.daily import two_days

LINES = 120  # the last is blank
SMALL = {"block_bytes": 300}


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


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text of a dozen blocks."""
    path = tmp_path_factory.mktemp("corpus") / "in.txt"
    path.write_text("".join(f"{n} the bank of the river\n" for n in range(LINES - 1)) + "\n")
    return path


@pytest.fixture(scope="session")
def whole(corpus: Path, tiny_bundle: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its output, which no test changes."""
    output = tmp_path_factory.mktemp("whole") / "out"
    assert embed(output, tiny_bundle, corpus, **SMALL) == 0
    return output


@pytest.fixture
def output(whole: Path, tmp_path: Path) -> Path:
    """The same, for a test to change."""
    return shutil.copytree(whole, tmp_path / "out")
