"""Of outputs that continue each other, search shows the newest version of each document."""

import shutil

import pytest

import bert_embed
from bert_embed.pipeline.commands import search as search_command
from tests.support.command import embed
from tests.support.daily import THREE_DAYS, in_progress, three_days

NEWEST = {(1, "wednesday"), (2, "monday"), (3, "wednesday"), (4, "wednesday")}


@pytest.fixture(scope="module", params=["parquet", "jsonl"])
def days(request, tiny_bundle, tmp_path_factory):
    """An output a day, each of what the days before it lack, and one that knows of no other."""
    folder = tmp_path_factory.mktemp("days")
    flags = {"output_format": request.param, "id_column": "id"}
    three_days(folder, folder, tiny_bundle, **flags)
    apart = folder / "apart" / "tuesday"
    assert embed(apart, tiny_bundle, folder / "tuesday.jsonl", **flags) == 0
    return folder


def found(folders, query, k):
    """Ids and days of the hits."""
    (hits,) = bert_embed.nearest([str(folder) for folder in folders], [query], k)
    return [(int(hit.id), hit.folder.rpartition("/")[2]) for hit in hits]


def test_only_the_newest_version_is_found(days):
    folders = [days / day for day in THREE_DAYS]
    for outputs in (folders, folders[::-1]):
        hits = found(outputs, "the first of all", 9)
        assert len(hits) == len(NEWEST)
        assert set(hits) == NEWEST
        assert hits[0] == (1, "wednesday")


def test_old_versions_take_no_place_among_the_best(days, tiny_bundle):
    query = "the first, written again"  # whose best hit is tuesday's, which is old
    encoder = bert_embed.load(tiny_bundle)
    texts = [THREE_DAYS[day][number] for number, day in sorted(NEWEST)]
    cosines = encoder.encode(texts) @ encoder.encode(query)
    best = sorted(zip(-cosines, sorted(NEWEST), strict=True))
    for k in (1, 2):
        hits = found([days / day for day in THREE_DAYS], query, k)
        assert hits == [place for _, place in best[:k]]


def test_outputs_that_do_not_continue_each_other_show_all(days):
    assert len(found([days / "monday"], "two", 9)) == 3
    assert len(found([days / "monday", days / "apart" / "tuesday"], "two", 9)) == 6
    both = found([days / "monday", days / "tuesday"], "two", 9)
    assert set(both) == {(1, "tuesday"), (2, "monday"), (3, "monday")}


def test_a_part_that_is_finished_meanwhile_hides_no_document(days, tmp_path, monkeypatch):
    wednesday, nearest = tmp_path / "wednesday", search_command.nearest
    shutil.copytree(days / "wednesday", wednesday)
    finish = in_progress(wednesday, tmp_path / "aside")

    def nearest_then_finished(folder, *words, **settings):
        hits = nearest(folder, *words, **settings)
        if folder == str(wednesday):
            finish()
        return hits

    monkeypatch.setattr(search_command, "nearest", nearest_then_finished)
    outputs = [days / "monday", days / "tuesday", wednesday]
    assert set(found(outputs, "two", 9)) == {(1, "tuesday"), (2, "monday"), (3, "monday")}
