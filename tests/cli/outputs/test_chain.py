"""Each run of a chain costs the same, and what it keeps of the others is never taken for wrong."""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from bert_embed.results.chain import earlier_runs
from bert_embed.results.run_record import read_record
from tests.support.command import embed, flip, record, rows
from tests.support.daily import some_texts, write
from tests.support.servers.gcs import behind

pytestmark = pytest.mark.slow

DAYS = 6
MOST, MOST_OF_NOTHING = 30, 10  # requests of an increment, and of a command that finds it done


@contextmanager
def opens(folder: Path) -> Iterator[list[str]]:
    """The files below a folder that this process opens, temporary ones apart."""
    found: list[str] = []
    places = [f"{folder}/"]

    def note(event, arguments):
        name = str(arguments[0]) if event == "open" else ""
        if name.startswith(tuple(places)) and "/.tmp-" not in name:
            found.append(name)

    sys.addaudithook(note)  # which stays, and sees nothing once no place is watched
    yield found
    places.clear()


def texts_of(number: int) -> dict[str, str]:
    """The corpus of a day: some texts are new, one has changed and one is gone."""
    texts = some_texts(12) | {f"new{n}": f"the river bank {n}" for n in range(number)}
    texts["d1"] = f"a vault of day {number}"
    texts.pop(f"d{number + 2}", None)
    return texts


def run_day(folder: Path, model: str, number: int, place: str | None = None, **more: object) -> int:
    """Embeds the corpus of a day, of which the runs in a folder may have a part."""
    path = folder / f"{number}.jsonl"
    source = path if path.exists() else write(path, texts_of(number))
    flags = {"max_deleted": "100%", "report": "false"} | more
    if number:
        flags |= {"skip_existing": f"{place or folder}/runs/day*"}
    return embed(f"{place or folder}/runs/day{number}", model, source, **flags)


@pytest.fixture(scope="module")
def days_and_opens(tiny_bundle, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chain")
    opened = []
    for number in range(DAYS):
        with opens(folder / "runs") as of_day:
            assert run_day(folder, tiny_bundle, number) == 0
        opened.append(of_day)
    return folder, opened


@pytest.fixture
def chain(days_and_opens, tmp_path):
    """A chain of runs, to change; where it was made there is none meanwhile."""
    folder = days_and_opens[0]
    shutil.copytree(folder, tmp_path / "kept")
    yield folder
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "kept", folder)


def next_day(folder: Path, model: str) -> None:
    """Embeds one day more, which must find what is new by the texts of both days."""
    before, after = texts_of(DAYS - 1), texts_of(DAYS)
    assert run_day(folder, model, DAYS) == 0
    output = folder / f"runs/day{DAYS}"
    assert sorted(rows(output)["id"]) == sorted(a for a in after if before.get(a) != after[a])
    deleted = pq.read_table(output / "deleted")["id"].to_pylist()
    assert deleted == sorted(before.keys() - after.keys())
    ids, _ = bert_embed.read(folder / "runs")
    assert sorted(ids) == sorted(after)


def test_an_increment_opens_as_many_files_whatever_its_number(days_and_opens, tiny_bundle):
    folder, opened = days_and_opens
    counts = [len(of_day) for of_day in opened]
    assert len(set(counts[2:])) == 1
    assert max(counts) <= MOST
    assert not any(f"/day{number}/" in name for name in opened[-1] for number in range(DAYS - 2))
    sizes = {(folder / f"runs/day{number}/run.json").stat().st_size // 100 for number in (2, 3, 4)}
    assert len(sizes) == 1
    with opens(folder / "runs") as again:
        assert run_day(folder, tiny_bundle, DAYS - 1) == 0
    assert len(again) <= MOST_OF_NOTHING
    kept = [(folder / f"runs/day{number}/_state/keys").exists() for number in range(DAYS)]
    assert kept == [False] * (DAYS - 2) + [True] * 2  # a copy of all ids each
    # The record counts the others and names the newest.
    places = [str(folder / f"runs/day{number}") for number in range(DAYS)]
    named = record(Path(places[-1]))["input"]["skip_existing"]
    assert (named["runs"], named["newest"]["output"]) == (DAYS - 1, places[-2])
    runs = earlier_runs(places[-1], read_record(places[-1]))
    assert [run.output for run in runs] == places[:-1]
    assert main(["verify", places[-1]]) == 0


def test_a_chain_on_a_store(tmp_path, gcs, monkeypatch, tiny_bundle):
    bucket, counts = gcs.client.create_bucket("chain"), []
    first = {"skip_existing": "gs://chain/runs"}
    assert run_day(tmp_path, tiny_bundle, 0, "gs://chain", **first) == 2
    bucket.blob("runs/.keep").upload_from_string("")  # as the placeholder of a console
    assert run_day(tmp_path, tiny_bundle, 0, "gs://chain", **first) == 0
    with behind(gcs, monkeypatch) as proxy:
        for number in (0, 1, 2, 3, 4, 4):
            proxy.forget()
            assert run_day(tmp_path, tiny_bundle, number, "gs://chain") == 0
            counts.append(len(proxy.asked))
    assert counts[3] == counts[4] <= MOST
    assert counts[5] <= MOST_OF_NOTHING


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def of_another(path: Path) -> None:
    """What the same file of the run before it holds, which continues others."""
    shutil.copy(str(path).replace("day5", "day4"), path)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *(("earlier.json.zst", damage) for damage in (Path.unlink, of_another)),
        *(("keys.json.zst", damage) for damage in (cut, of_another)),
        *(("keys/0000000.parquet", damage) for damage in (flip, of_another)),
    ],
)
def test_what_is_kept_of_others_may_be_lost_or_wrong(chain, tiny_bundle, name, damage):
    damage(chain / f"runs/day5/_state/{name}")
    with opens(chain / "runs") as opened:
        next_day(chain, tiny_bundle)
    assert len(opened) > MOST
    if damage is of_another:
        with opens(chain / "runs") as opened:  # the next has what it needs again
            assert run_day(chain, tiny_bundle, DAYS + 1) == 0
        assert len(opened) <= MOST


def test_other_runs_than_those_that_were_kept(chain, tiny_bundle, tmp_path):
    """An earlier run is written again, added between others, changed or removed."""
    runs = chain / "runs"
    shutil.rmtree(runs / "day0")
    assert run_day(chain, tiny_bundle, 0) == 0  # the same run, at another time
    for _ in range(2):  # first as the newest of all, then as another than day5 knows
        with opens(runs) as opened:
            next_day(chain, tiny_bundle)
        assert len(opened) > MOST
        shutil.rmtree(runs / f"day{DAYS}")
        os.utime(runs / "day0/run.json", (0, 0))

    texts = write(tmp_path / "other.jsonl", {"d3": "another river", "mine": "a bank"})
    assert embed(runs / "day5x", tiny_bundle, texts, report="false") == 0
    assert run_day(chain, tiny_bundle, DAYS) == 0
    assert {"d3"} < set(rows(runs / f"day{DAYS}")["id"])  # its newest text is that of day5x
    assert "mine" in pq.read_table(runs / f"day{DAYS}/deleted")["id"].to_pylist()
    shutil.rmtree(runs / f"day{DAYS}")
    (runs / "day5x").rename(runs / "day2x")
    os.utime(runs / "day2x/run.json", (0, 0))  # day5 stays the newest
    assert run_day(chain, tiny_bundle, DAYS) == 0
    assert "d3" in rows(runs / f"day{DAYS}")["id"]  # no later one has it: it did not change
    shutil.rmtree(runs / f"day{DAYS}")


def test_readers_do_without_the_lists(chain):
    """Where the newest that each names is read, too."""
    for path in (chain / "runs").glob("*/_state/earlier.json.zst"):
        path.unlink()
    assert sorted(bert_embed.read(chain / "runs")[0]) == sorted(texts_of(DAYS - 1))
    last = str(chain / f"runs/day{DAYS - 1}")
    with pytest.raises(bert_embed.InputError, match=r"day5/_state/earlier.json.zst is missing or"):
        earlier_runs(last, read_record(last))


def test_each_of_many_beside_each_other_is_looked_at_once_for_doubles(tmp_path, run):
    """As where each day names the first alone."""
    first = run({"0.jsonl": [{"id": "a", "text": "a bank"}]}, "runs/0")
    for number in range(1, 7):
        texts = [{"id": one, "text": f"a river {one}"} for one in ("a", "new", f"b{number}")]
        run({f"{number}.jsonl": texts}, f"runs/{number}", skip_existing=first, report="false")
    twice = "2 documents of both are given twice"
    with opens(tmp_path / "runs") as opened, pytest.warns(UserWarning, match=twice) as told:
        bert_embed.read(tmp_path / "runs")
    assert max(opened.count(name) for name in opened if "/embeddings/part-" in name) <= 4
    both = [f"{tmp_path}/runs/{n} and {tmp_path}/runs/{n + 1} continue" for n in range(1, 6)]
    assert [str(one.message).partition(" the same")[0] for one in told] == both
