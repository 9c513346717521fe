"""The day of a run in its places."""

import datetime

import pytest

from bert_embed.pipeline.cli import main
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options.embed import Options
from bert_embed.pipeline.run.prepare import with_dates
from tests.support.command import flags_of, record

NIGHT = datetime.datetime(2026, 3, 1, 0, 30, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("gs://b/{today}/*.txt", "gs://b/2026-03-01/*.txt"),
        ("gs://b/{yesterday}/*.txt", "gs://b/2026-02-28/*.txt"),
        ("gs://b/{date:%Y/%m/%d}/{yesterday:%d}.txt", "gs://b/2026/03/01/28.txt"),
        ("p:set.table${yesterday:%Y%m%d}", "p:set.table$20260228"),
        ("gs://b/{a,b}/*.txt", "gs://b/{a,b}/*.txt"),
    ],
)
def test_days_of_utc(given, expected):
    places = {"input": (given, "x"), "output": given, "output_table": given}
    options = with_dates(Options(output_format="bigquery", **places), NIGHT)
    assert (options.input, options.output) == ((expected, "x"), expected)
    assert (options.output_table, options.query) == (expected, None)


@pytest.mark.parametrize(
    ("today", "again"),
    [
        (None, "2026-03-01"),  # of another day, which leaves the first unfinished
        ("2026-03-01", "2026-02-28"),
        ("02:17", "2026-02-28"),
    ],
)
def test_a_retry_after_midnight_may_keep_its_day(today, again):
    options = Options(input=("gs://b/{yesterday}/*.txt",), output="gs://b/c", today=today)
    days = {"03-01T02:17": "2026-02-28", "03-01T23:59": "2026-02-28", "03-02T00:30": again}
    for at, day in days.items():
        dated = with_dates(options, datetime.datetime.fromisoformat(f"2026-{at}+00:00"))
        assert (dated.input, dated.today) == ((f"gs://b/{day}/*.txt",), None)


def test_a_run_reads_and_writes_the_folders_of_its_day(tmp_path, run, tiny_bundle):
    now = datetime.datetime.now(datetime.UTC).year
    years = (now - 1, now, now + 1)  # which may begin meanwhile
    run.written({f"in-{year}.txt": "the bank\n" for year in years})
    for today in ("1 March", "2026-02-30", "25:00", "12:60", "737"):
        said = f"--today must be a day such as 2026-03-01, or a time such as '02:17', got '{today}'"
        run.refused(tmp_path, said, today=today)
    run(tmp_path / "in-{date:%Y}.txt", "{date:%Y}", today="00:01")
    (output,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert output.name in map(str, years)
    found = record(output)
    assert found["counts"]["embedded"] == 1
    assert found["options"]["output"] == str(output)
    assert "today" not in found["options"]
    flags = flags_of(tmp_path / "{date:%Y}", tiny_bundle, tmp_path / "in-{date:%Y}.txt")
    assert main(["estimate", "--seconds=0", *flags, "--today=00:01"]) == 0
    run.refused(tmp_path, "give {date} a format, such as {date:%Y/%m/%d}", "{date}")


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"input": ("gs://b/a", "gs://b/{Today}/*.txt")}, "{Today}"),
        ({"output": "gs://b/{days:%Y}"}, "{days}"),
        ({"skip_existing": ("gs://b/{day}",)}, "{day}"),
    ],
)
def test_another_word_in_braces_is_refused(change, word):
    options = Options(**({"input": ("gs://b/a",), "output": "gs://b/c"} | change))
    known = r"is none of {yesterday}, {today}, {date:FORMAT}$"
    with pytest.raises(UsageError, match=f"{word} {known}"):
        with_dates(options, NIGHT)


def test_files_may_have_words_in_braces(tmp_path, run):
    run.written({"{name} a/b.txt": "the bank\n"})
    assert record(run(tmp_path / "{name} a" / "*.txt"))["counts"]["embedded"] == 1
    run.refused(tmp_path / "{name} a", "{nam} is none of {yesterday}", "{nam}")
