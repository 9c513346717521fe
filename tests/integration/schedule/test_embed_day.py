"""A day is one run: compared with the days before it, the same run whenever it is run again."""

import re
import shutil

import pytest

from bert_embed.results.chain import earlier_runs
from bert_embed.results.run_record import read_record
from deploy.cron.embed_day import main
from tests.support.command import ROOT, record, rows
from tests.support.daily import DAYS, counts, state_of, write_day

pytestmark = pytest.mark.slow

CRON = ROOT / "deploy" / "cron"
TEXTS = (
    {"a": "red river", "b": "bank", "c": "of"},
    {"a": "red river", "b": "seven stars", "d": "money"},
    {"c": "of", "d": "money", "e": "vault"},
)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    for day, of_day in zip(DAYS, TEXTS, strict=True):
        write_day(folder, day, of_day)
    return folder


def runs(texts, output, model):
    def run(day, *flags, **changes):
        values = {"input": f"{texts}/{{day}}", "output": output} | changes
        words = [f"--{name}={value}" for name, value in values.items()]
        return main([*words, f"--day={day}", "--", f"--model={model}", "--report=false", *flags])

    return run


@pytest.fixture(scope="module")
def done(texts, tiny_bundle, tmp_path_factory):
    """The outputs of three days, in their order."""
    output = tmp_path_factory.mktemp("done")
    assert [runs(texts, output, tiny_bundle)(day) for day in DAYS] == [0, 0, 0]
    return output


@pytest.fixture
def vectors(tmp_path):
    return tmp_path / "vectors"


@pytest.fixture
def run_day(texts, vectors, tiny_bundle):
    return runs(texts, vectors, tiny_bundle)


def copy(done, vectors, *days):
    for day in days:
        shutil.copytree(done / day, vectors / day)


def compared_with(output):
    runs = earlier_runs(str(output), read_record(str(output)))
    return [run.output.rpartition("/")[2] for run in runs]


def test_a_day_embeds_what_no_day_before_has(done, vectors, run_day):
    """And is the same run where the output was moved."""
    outputs = [done / day for day in DAYS]
    assert [rows(each)["id"] for each in outputs] == [["a", "b", "c"], ["b", "d"], ["e"]]
    assert [compared_with(each) for each in outputs] == [[], [*DAYS[:1]], [*DAYS[:2]]]
    copy(done, vectors, *DAYS)
    before = state_of(vectors)
    assert run_day(DAYS[1]) == 0
    assert state_of(vectors) == before


def test_a_day_again_changes_nothing_whatever_was_run_since(done, vectors, run_day):
    """The third day ran before the second was there; filling that in makes it no other run."""
    copy(done, vectors, DAYS[0])
    assert run_day(DAYS[2]) == run_day(DAYS[1]) == 0
    assert compared_with(vectors / DAYS[1]) == compared_with(vectors / DAYS[2]) == [DAYS[0]]
    before = state_of(vectors)
    assert [run_day(day) for day in DAYS] == [0, 0, 0]
    assert state_of(vectors) == before


@pytest.mark.parametrize("file", ["settings.example.sh", "settings.container.example.sh"])
def test_the_flags_of_the_examples_delete_nothing_that_a_day_does_not_bring_again(
    tmp_path, vectors, run_day, file
):
    """A tenth of the day before is as little as --max_deleted takes for gone by default."""
    texts = {str(number): f"river {number}" for number in range(10)}
    write_day(tmp_path / "parts", DAYS[0], texts)
    del texts["9"]
    write_day(tmp_path / "parts", DAYS[1], texts)
    flags = re.search(r"^FLAGS=\((.*)\)$", (CRON / file).read_text("utf-8"), re.M)[1].split()
    flags = flags[flags.index("minilm") + 1 :]
    for day in DAYS[:2]:
        assert run_day(day, *flags, input=f"{tmp_path}/parts/{{day}}") == 0
    assert not [*vectors.glob("*/deleted")]


def test_fewer_days_are_compared_with_if_so_asked(done, vectors, run_day):
    copy(done, vectors, DAYS[0])
    assert run_day(DAYS[1], earlier=0) == 0
    assert counts(vectors / DAYS[1]) == (3, 3, 0, 0)
    assert run_day(DAYS[2], earlier=1) == 0  # across the 29th of February
    assert compared_with(vectors / DAYS[2]) == [DAYS[1]]
    assert rows(vectors / DAYS[2])["id"] == ["c", "e"]


def test_a_folder_whose_name_is_a_pattern_has_its_days_compared(tmp_path, run_day):
    output = tmp_path / "[v]"
    assert run_day(DAYS[0], output=output) == run_day(DAYS[1], output=output) == 0
    assert rows(output / DAYS[1])["id"] == ["b", "d"]


def test_an_output_of_before_the_first_day_may_be_named_in_the_flags(tmp_path, vectors, run_day):
    assert run_day(DAYS[1], output=tmp_path / "base") == 0
    flags = [f"--skip_existing={tmp_path}/base/{DAYS[1]}"]
    assert run_day(DAYS[0], *flags) == run_day(DAYS[2], *flags) == 0
    assert rows(vectors / DAYS[2])["id"] == ["e"]
    before = state_of(vectors)
    assert run_day(DAYS[2], *flags) == 0
    assert state_of(vectors) == before


def test_a_day_waits_for_its_input(tmp_path, texts, vectors, run_day, capsys):
    assert run_day("2024-03-02") == 66
    assert f"2024-03-02 has no {texts}/2024-03-02; a day with" in capsys.readouterr().err
    (tmp_path / "2024-03-03").mkdir()
    assert run_day("2024-03-03", input=f"{tmp_path}/{{day}}") == 66
    assert f"2024-03-03 has no file in {tmp_path}/2024-03-03; a day" in capsys.readouterr().err
    ready = f"{tmp_path}/{{day}}.ready"
    assert run_day(DAYS[0], ready=ready) == 66
    assert not vectors.exists()
    (tmp_path / f"{DAYS[0]}.ready").touch()
    assert run_day(DAYS[0], ready=ready) == 0


def test_a_day_that_is_replaced_compares_with_the_days_of_now(
    tmp_path, done, texts, vectors, run_day, capsys
):
    own = {"input": f"{shutil.copytree(texts, tmp_path / 'texts')}/{{day}}"}
    assert run_day(DAYS[1], **own) == 0
    copy(done, vectors, DAYS[0])
    write_day(tmp_path / "texts", f"{DAYS[1]}/late", {"f": "seven"})
    assert run_day(DAYS[1], **own) == 2
    assert "holds another run" in capsys.readouterr().err
    assert run_day(DAYS[1], "--overwrite", **own) == 0
    assert compared_with(vectors / DAYS[1]) == [DAYS[0]]
    assert rows(vectors / DAYS[1])["id"] == ["f", "b", "d"]


NONE = ["2026-02-30", "20260102", "2026-1-2", "../2026-01-02", "2026-01-02/x", "today", ""]


@pytest.mark.parametrize(
    ("day", "changes", "flags", "message"),
    [
        (DAYS[0], {"input": "/data/texts"}, [], "must say with {day} where the date stands"),
        (DAYS[0], {"earlier": "some"}, [], "EARLIER must be all or a number of days"),
        (DAYS[0], {}, ["--poling=cls"], "did you mean --pooling"),
        *((day, {}, [], f"--day must be a date such as 2026-01-02, got {day!r}") for day in NONE),
    ],
)
def test_wrong_settings_are_named(vectors, run_day, capsys, day, changes, flags, message):
    assert run_day(day, *flags, **changes) == 2
    assert message in capsys.readouterr().err
    assert not vectors.exists()


def test_blocks_that_were_left_out_of_a_day_stay_out(vectors, run_day):
    assert run_day(DAYS[0], "--skip_blocks=0") == 3  # its only block: nothing was embedded
    assert counts(vectors / DAYS[0]) == (3, 0, 0, 3)
    before = state_of(vectors)
    assert run_day(DAYS[0]) == 3
    assert state_of(vectors) == before
    assert run_day(DAYS[0], "--overwrite", "--prompt=of {day}: ") == 0
    assert rows(vectors / DAYS[0])["id"] == ["a", "b", "c"]
    found = record(vectors / DAYS[0])["options"]["prompt"]
    assert found == f"of {DAYS[0]}: ", "flags may hold the date"


def test_days_lie_in_cloud_storage(texts, run_day, gcs):
    gcs.client.bucket("daily-vectors").create()
    places = {"input": gcs.put_folder(texts, "daily-texts", "t") + "/{day}"}
    places["output"] = "gs://daily-vectors/v"
    assert [run_day(day, **places) for day in DAYS[:2]] == [0, 0]
    there = gcs.root / "daily-vectors" / "v"
    assert counts(there / DAYS[1]) == (3, 2, 1, 0)
    before = state_of(there)
    assert run_day(DAYS[0], **places) == 0
    assert state_of(there) == before
    assert run_day("2024-03-02", **places) == 66
