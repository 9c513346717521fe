"""A text of a dozen blocks and its output, for this folder."""

import shutil
from pathlib import Path

import pytest

from tests.support.command import embed

LINES = 120  # the last is blank
SMALL = {"block_bytes": 300}


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
