"""A day is one run: compared with the days before it, the same run whenever it is run again."""

import json
import re
import shutil

import pytest

from bert_embed.results.chain import EarlierLists
from bert_embed.results.run_record import read_record
from deploy.cron.embed_day import main
from tests.support.command import ROOT, record, rows
from tests.support.daily import DAYS, counts, state_of, write_day

pytestmark = pytest.mark.slow

CRON = ROOT / "deploy" / "cron"

FIRST = {"a": "red river", "b": "bank", "c": "of"}
SECOND = {"a": "red river", "b": "seven stars", "d": "money"}
THIRD = {"c": "of", "d": "money", "e": "vault"}


@pytest.fixture
def corpus(tmp_path):
    for day, texts in zip(DAYS, (FIRST, SECOND, THIRD), strict=True):
        write_day(tmp_path / "texts", day, texts)
    return tmp_path


@pytest.fixture
def run_day(corpus, tiny_bundle):
    def run(day, *flags, **changes):
        values = {"input": f"{corpus}/texts/{{day}}", "output": f"{corpus}/vectors"} | changes
        words = [f"--{name}={value}" for name, value in values.items()]
        return main([*words, f"--day={day}", "--", f"--model={tiny_bundle}", *flags])

    return run


def compared_with(output):
    runs = EarlierLists().of(str(output), read_record(str(output)))
    return [run.output.rpartition("/")[2] for run in runs]


def test_a_day_embeds_what_no_day_before_has(corpus, run_day):
    assert [run_day(day) for day in DAYS] == [0, 0, 0]
    outputs = [corpus / "vectors" / day for day in DAYS]
    assert [rows(each)["id"] for each in outputs] == [["a", "b", "c"], ["b", "d"], ["e"]]
    assert [compared_with(each) for each in outputs] == [[], [*DAYS[:1]], [*DAYS[:2]]]


def test_a_day_again_changes_nothing_whatever_was_run_since(corpus, run_day):
    """The third day ran before the second was there; filling that in makes it no other run."""
    assert run_day(DAYS[0]) == run_day(DAYS[2]) == 0
    assert run_day(DAYS[1]) == 0
    assert compared_with(corpus / "vectors" / DAYS[1]) == [DAYS[0]]
    assert compared_with(corpus / "vectors" / DAYS[2]) == [DAYS[0]]
    before = state_of(corpus / "vectors")
    assert [run_day(day) for day in DAYS] == [0, 0, 0]
    assert state_of(corpus / "vectors") == before


@pytest.mark.parametrize("file", ["settings.example.sh", "settings.container.example.sh"])
def test_the_flags_of_the_examples_delete_nothing_that_a_day_does_not_bring_again(
    corpus, run_day, file
):
    """A tenth of the day before is as little as --max_deleted takes for gone by default."""
    texts = {str(number): f"river {number}" for number in range(10)}
    write_day(corpus / "parts", DAYS[0], texts)
    del texts["9"]
    write_day(corpus / "parts", DAYS[1], texts)
    flags = re.search(r"^FLAGS=\((.*)\)$", (CRON / file).read_text("utf-8"), re.M)[1].split()
    flags = flags[flags.index("minilm") + 1 :]
    for day in DAYS[:2]:
        assert run_day(day, *flags, input=f"{corpus}/parts/{{day}}") == 0
    assert not [*corpus.glob("vectors/*/deleted")]


def test_the_output_may_be_moved_between_days(corpus, run_day):
    assert run_day(DAYS[0]) == run_day(DAYS[1]) == 0
    shutil.move(corpus / "vectors", corpus / "moved")
    before = state_of(corpus / "moved")
    assert run_day(DAYS[1], output=corpus / "moved") == 0
    assert state_of(corpus / "moved") == before
    assert run_day(DAYS[2], output=corpus / "moved") == 0
    assert rows(corpus / "moved" / DAYS[2])["id"] == ["e"]


def test_fewer_days_are_compared_with_if_so_asked(corpus, run_day):
    assert run_day(DAYS[0]) == run_day(DAYS[1], earlier=0) == 0
    assert counts(corpus / "vectors" / DAYS[1]) == (3, 3, 0, 0)
    assert run_day(DAYS[2], earlier=1) == 0  # across the 29th of February
    assert compared_with(corpus / "vectors" / DAYS[2]) == [DAYS[1]]
    assert rows(corpus / "vectors" / DAYS[2])["id"] == ["c", "e"]


def test_an_output_of_before_the_first_day_may_be_named_in_the_flags(corpus, run_day):
    assert run_day(DAYS[1], output=corpus / "base") == 0
    flags = [f"--skip_existing={corpus}/base/{DAYS[1]}"]
    assert run_day(DAYS[0], *flags) == run_day(DAYS[2], *flags) == 0
    assert rows(corpus / "vectors" / DAYS[2])["id"] == ["e"]
    before = state_of(corpus / "vectors")
    assert run_day(DAYS[2], *flags) == 0
    assert state_of(corpus / "vectors") == before


def test_a_day_waits_for_its_input(corpus, run_day, capsys):
    assert run_day("2024-03-02") == 66
    assert f"2024-03-02 has no {corpus}/texts/2024-03-02" in capsys.readouterr().err
    ready = f"{corpus}/texts/{{day}}/.ready"
    assert run_day(DAYS[0], ready=ready) == 66
    assert not (corpus / "vectors").exists()
    (corpus / "texts" / DAYS[0] / ".ready").touch()
    assert run_day(DAYS[0], ready=ready) == 0


def test_a_day_waits_for_the_days_before_it(corpus, run_day, capsys):
    assert run_day(DAYS[0]) == 0
    path = corpus / "vectors" / DAYS[0] / "run.json"
    done = path.read_bytes()
    path.write_text(json.dumps(json.loads(done) | {"status": "failed"}))
    assert run_day(DAYS[1]) == 69
    assert f"{DAYS[0]} comes before {DAYS[1]} and is not finished" in capsys.readouterr().err
    assert not (corpus / "vectors" / DAYS[1]).exists()
    assert run_day(DAYS[0]) == run_day(DAYS[1]) == 0


def test_a_day_that_is_replaced_compares_with_the_days_of_now(corpus, run_day, capsys):
    assert run_day(DAYS[1]) == 0
    assert run_day(DAYS[0]) == 0
    write_day(corpus / "texts", f"{DAYS[1]}/late", {"f": "seven"})
    assert run_day(DAYS[1]) == 2
    assert "holds another run" in capsys.readouterr().err
    assert run_day(DAYS[1], "--overwrite") == 0
    assert compared_with(corpus / "vectors" / DAYS[1]) == [DAYS[0]]
    assert rows(corpus / "vectors" / DAYS[1])["id"] == ["f", "b", "d"]


NO_DAYS = ["2026-02-30", "20260102", "2026-1-2", "../2026-01-02", "2026-01-02/x", "today", ""]


@pytest.mark.parametrize(
    ("day", "changes", "flags", "message"),
    [
        (DAYS[0], {"input": "/data/texts"}, [], "must say with {day} where the date stands"),
        (DAYS[0], {"earlier": "some"}, [], "EARLIER must be all or a number of days"),
        (DAYS[0], {}, ["--poling=cls"], "did you mean --pooling"),
        *(
            (day, changes, [], f"--day must be a date such as 2026-01-02, got {day!r}")
            for day in NO_DAYS
            for changes in ({}, {"earlier": 1})
        ),
    ],
)
def test_wrong_settings_are_named(corpus, run_day, capsys, day, changes, flags, message):
    assert run_day(day, *flags, **changes) == 2
    assert message in capsys.readouterr().err
    assert not (corpus / "vectors").exists()


def test_blocks_that_were_left_out_of_a_day_stay_out(corpus, run_day):
    assert run_day(DAYS[0], "--skip_blocks=0") == 3  # its only block: nothing was embedded
    assert counts(corpus / "vectors" / DAYS[0]) == (3, 0, 0, 3)
    before = state_of(corpus / "vectors")
    assert run_day(DAYS[0]) == 3
    assert state_of(corpus / "vectors") == before
    assert run_day(DAYS[0], "--overwrite", "--prompt=of {day}: ") == 0
    assert rows(corpus / "vectors" / DAYS[0])["id"] == ["a", "b", "c"]
    found = record(corpus / "vectors" / DAYS[0])["options"]["prompt"]
    assert found == f"of {DAYS[0]}: ", "flags may hold the date"


def test_days_lie_in_cloud_storage(corpus, run_day, gcs):
    places = {"input": gcs.put_folder(corpus / "texts", "daily-texts", "t") + "/{day}"}
    gcs.client.bucket("daily-vectors").create()
    places["output"] = "gs://daily-vectors/v"
    assert [run_day(day, **places) for day in DAYS] == [0, 0, 0]
    there = gcs.root / "daily-vectors" / "v"
    assert counts(there / DAYS[2]) == (3, 1, 2, 0)
    before = state_of(there)
    assert [run_day(day, **places) for day in (DAYS[0], DAYS[2])] == [0, 0]
    assert state_of(there) == before
    assert run_day("2024-03-02", **places) == 66
