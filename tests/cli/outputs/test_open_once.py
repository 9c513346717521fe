"""A command reads the run.json of its output once before its job starts."""

import sys

import pytest

from bert_embed.pipeline.cli import main
from tests.support.command import block_records, flags_of, record, say_status
from tests.support.loads import load

OPENED: list[tuple[str, bool]] = []  # paths that this process opened or renamed to; whether to read
_WATCHED: set[str] = set()


def _note(event, arguments):
    # What has no mode is opened to be locked, not to be read.
    if event == "open" and str(arguments[0]) in _WATCHED and arguments[1] is not None:
        OPENED.append((str(arguments[0]), "r" in arguments[1]))
    if event in ("os.rename", "os.link") and str(arguments[1]) in _WATCHED:
        OPENED.append((str(arguments[1]), False))


@pytest.fixture(scope="module", autouse=True)
def _hook():
    sys.addaudithook(_note)  # which stays, and sees nothing once no path is watched
    yield
    _WATCHED.clear()


@pytest.fixture
def reads_before_the_job(tmp_path):
    """A function: how often run.json was read before it was written, or if it never was."""
    path = str(tmp_path / "out" / "run.json")
    OPENED.clear()
    _WATCHED.add(path)

    def count():
        accesses = [reads for _, reads in OPENED]
        OPENED.clear()
        return accesses.index(False) if False in accesses else len(accesses)

    return count


@pytest.fixture
def words(tmp_path, tiny_bundle):
    (tmp_path / "in.txt").write_text("the river\nthe bank\n")
    return ["embed", *flags_of(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", block_bytes=10)]


def test_a_run_that_is_new_complete_refused_or_continued(
    words, tmp_path, run, reads_before_the_job
):
    for _ in range(2):
        assert main([*words, "--report=false"]) == 0
        assert reads_before_the_job() == 1
    run.refused(tmp_path / "in.txt", "holds another run", pooling="cls")
    assert reads_before_the_job() <= 2
    block_records(tmp_path / "out")[0].unlink()
    say_status(tmp_path / "out", "interrupted")
    reads_before_the_job()
    assert main([*words, "--report=false"]) == 0
    # Once more when it has the lock, and as it is changed if it is still what was read.
    assert reads_before_the_job() == 3
    assert record(tmp_path / "out")["counts"]["parts_reused"] == 1


def test_a_run_from_a_table_into_a_table(bigquery, tmp_path, tiny_bundle, reads_before_the_job):
    bigquery.client.create_dataset("test-project.open_once")
    rows = "SELECT CAST(n AS STRING) AS id, 'the river' AS text FROM UNNEST([1, 2]) AS n"
    bigquery.rows(f"CREATE TABLE `test-project.open_once.texts` AS {rows}")
    source = "test-project:open_once.texts"
    into = {"table": "test-project:open_once.vectors", "limit": 1}
    assert load(tmp_path / "out", tiny_bundle, source, **into) == 0
    assert reads_before_the_job() == 1
