"""What takes one output takes several: of each document the newest version counts, once."""

import re
import shutil

import numpy as np
import pytest

import bert_embed
from bert_embed.base.errors import InputError
from bert_embed.pipeline.commands import search
from tests.support.command import block_records, say_status
from tests.support.daily import THREE_DAYS, embed_days

# Monday has the second still, Wednesday the newest of the others.
NEWEST = [("2", "monday"), ("1", "wednesday"), ("3", "wednesday"), ("4", "wednesday")]
IDS = [name for name, _ in NEWEST]
OF_TWO_DAYS = {("1", "tuesday"), ("2", "monday"), ("3", "monday")}
TEXTS = ["two", "the first of all", "three, written again", "four"]


@pytest.fixture(scope="module")
def days(tiny_bundle, tmp_path_factory):
    """An output a day, each of what the days before it lack."""
    return embed_days(tmp_path_factory.mktemp("days"), tiny_bundle, granularity="sentence,word")


def names(days):
    return [str(days / day) for day in THREE_DAYS]


def test_read_gives_the_newest_of_each_document_once(days, tiny_bundle):
    expected = bert_embed.load(tiny_bundle).encode(TEXTS)
    for folders in (days, f"{days}/*", names(days), [*names(days), days]):
        ids, vectors = bert_embed.read(folders)
        assert ids == IDS
        np.testing.assert_allclose(vectors, expected, atol=1e-4)
    pieces = list(bert_embed.read_batches(days, rows=1))
    assert [ids for ids, _ in pieces] == [[name] for name in IDS]
    words = list(bert_embed.read_words(days))
    assert [document.id for document in words] == IDS
    assert words[2].texts == ["three", ",", "written", "again"]
    assert bert_embed.read(days / "tuesday")[0] == ["1"]


def found(outputs, query, k=9):
    """Ids and days of the hits."""
    (hits,) = bert_embed.nearest(list(map(str, outputs)), [query], k)
    return [(hit.id, hit.folder.rpartition("/")[2]) for hit in hits]


def test_search_finds_the_newest_of_each_document_alone(days, run, tiny_bundle):
    for outputs in (names(days), names(days)[::-1]):
        hits = found(outputs, "the first of all")
        assert sorted(hits) == sorted(NEWEST)
        assert hits[0] == ("1", "wednesday")
    encoder = bert_embed.load(tiny_bundle, normalize=True)
    # Of some queries the best hits are old versions, whose places others take.
    for query in ("three two two", "three the", "the first, written again"):
        cosines = encoder.encode(TEXTS) @ encoder.encode(query)
        of_place = dict(zip(NEWEST, cosines.tolist(), strict=True))
        for k in (1, 2, 3):
            scores = [of_place[place] for place in found(names(days), query, k)]
            assert scores == pytest.approx(sorted(cosines)[: -k - 1 : -1], abs=1e-5)
    assert len(found([days / "monday"], "two")) == 3
    # One that knows of no other shows all of its own.
    apart = run(days.parent / "tuesday.jsonl", "apart/tuesday", granularity="sentence,word")
    assert len(found([days / "monday", apart], "two")) == 6
    assert set(found(names(days)[:2], "two")) == OF_TWO_DAYS


def in_progress(output, data=True):
    """Has the parts of a complete run be unfinished, perhaps without data; what finishes them."""
    say_status(output, "running")
    paths = [*block_records(output), *(output.glob("*/part-*") if data else [])]
    hidden = {path: path.read_bytes() for path in paths}
    for path in paths:
        path.unlink()
    return lambda: [path.write_bytes(content) for path, content in hidden.items()]


def test_a_part_that_is_finished_meanwhile_hides_no_document(days, tmp_path, monkeypatch):
    wednesday, nearest = tmp_path / "wednesday", search.nearest
    shutil.copytree(days / "wednesday", wednesday)
    finish = in_progress(wednesday)

    def nearest_then_finished(folder, *words, **settings):
        hits = nearest(folder, *words, **settings)
        if folder == str(wednesday):
            finish()
        return hits

    monkeypatch.setattr(search, "nearest", nearest_then_finished)
    assert set(found([*names(days)[:2], wednesday], "two")) == OF_TWO_DAYS


@pytest.mark.parametrize("begun", [False, True])
def test_a_part_that_is_finished_meanwhile_changes_no_answer(days, tmp_path, begun):
    """Nor does a file that is there before its part is finished."""
    shutil.copytree(days / "wednesday", tmp_path / "wednesday")
    finish = in_progress(tmp_path / "wednesday", data=not begun)
    outputs = [*names(days)[:2], tmp_path / "wednesday"]
    words = [document.id for document in bert_embed.read_words(outputs, partial=True)]
    assert words == ["2", "3", "1"]
    pieces = bert_embed.read_batches(outputs, rows=1, partial=True)
    found = next(pieces)[0] if begun else []
    finish()
    assert found + [name for ids, _ in pieces for name in ids] == ["2", "3", "1"]
    assert bert_embed.read(outputs, partial=True)[0] == IDS


def test_a_run_without_its_record_or_missing_is_not_left_out(days, run, tmp_path, command):
    folder = shutil.copytree(days, tmp_path / "days")
    more = {"skip_existing": folder, "granularity": "sentence,word"}
    (folder / "wednesday" / "run.json").rename(tmp_path / "run.json")
    for named in (folder, f"{folder}/*day"):
        with pytest.raises(InputError, match=r"wednesday holds .* but no run.json: copy the whole"):
            bert_embed.read(named)
        assert "wednesday holds " in command("search", named, "river", code=2).err
    run.refused(days.parent / "monday.jsonl", "wednesday holds ", **more)
    (tmp_path / "run.json").rename(folder / "wednesday" / "run.json")
    (folder / "tuesday").rename(tmp_path / "aside")
    with pytest.raises(InputError, match=r"wednesday continues .*out/tuesday, too, without which"):
        bert_embed.read(folder)
    message = "out/tuesday, too, without which documents that"
    run.refused(days.parent / "monday.jsonl", message, **more)
    assert bert_embed.read([folder, tmp_path / "aside"])[0] == IDS
    assert bert_embed.read([tmp_path / "aside", days / "wednesday"])[0] == ["1", "3", "4"]


def test_other_vectors_are_not_read_with_these(days, run, tmp_path):
    flags = {"pooling": "cls", "granularity": "sentence,word"}
    other = run(days.parent / "monday.jsonl", "other", **flags)
    with pytest.raises(InputError, match=r"pooling is \"cls\" there and \"mean\" here; take them"):
        bert_embed.read([days / "monday", other])
    for nothing in (tmp_path / "nothing", days / "monday" / "run.json" / "nothing"):
        with pytest.raises(InputError, match="nothing is not the output of a run"):
            bert_embed.read([days / "monday", nothing])
    with pytest.raises(ValueError, match="folder must name an output of a run"):
        bert_embed.read([])


def test_outputs_whose_earlier_one_was_overwritten_are_refused(tmp_path, run, tiny_bundle, command):
    monday, tuesday, _ = names(embed_days(tmp_path, tiny_bundle))
    other = [{"id": "1", "text": "another"}, {"id": "5", "text": "five"}]
    run({"other.jsonl": other}, "out/monday", overwrite=True)
    problem = f"{tuesday} continues another run than {monday} holds now"
    with pytest.raises(InputError, match=re.escape(problem)):
        bert_embed.read([monday, tuesday])
    assert problem in command("search", monday, tuesday, "one", code=2).err
    assert bert_embed.read(monday)[0] == ["1", "5"]
    assert bert_embed.read(tuesday)[0] == ["1"]


def test_a_copy_of_an_output_is_not_read_with_it(days, tmp_path, command):
    folder = shutil.copytree(days, tmp_path / "out")
    (folder / "latest").symlink_to(folder / "wednesday")  # the same output, not a copy
    assert sorted(bert_embed.read(folder)[0]) == sorted(IDS)
    shutil.copytree(folder / "monday", folder / "monday.bak")
    problem = f"{folder}/monday.bak and {folder}/monday hold the same run: name one of them"
    with pytest.raises(InputError, match=re.escape(problem)):
        bert_embed.read(folder)
    assert problem in command("search", folder, "one", code=2).err
    assert problem in command("export", folder, f"{tmp_path}/e", "--to=npy", code=2).err
