"""What takes one output takes several: of each document the newest version counts, once."""

import re
import shutil

import numpy as np
import pytest

import bert_embed
from bert_embed.base.errors import InputError
from bert_embed.pipeline.cli import main
from tests.support.daily import THREE_DAYS, in_progress, three_days
from tests.support.outputs import content_of

IDS = ["2", "1", "3", "4"]  # monday has the second still, wednesday the newest of the others
TEXTS = ["two", "the first of all", "three, written again", "four"]


@pytest.fixture(scope="module")
def days(tiny_bundle, tmp_path_factory):
    """An output a day, each of what the days before it lack."""
    folder = tmp_path_factory.mktemp("days")
    three_days(folder, folder / "out", tiny_bundle, granularity="sentence,word")
    return folder / "out"


def names(days):
    return [str(days / day) for day in THREE_DAYS]


@pytest.fixture
def refused(capsys):
    """Runs a command that is refused with this message."""

    def refuse(message, *words):
        capsys.readouterr()
        assert main(list(map(str, words))) == 2
        assert message in capsys.readouterr().err

    return refuse


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


@pytest.mark.parametrize("begun", [False, True])
def test_a_part_that_is_finished_meanwhile_changes_no_answer(days, tmp_path, begun):
    """Nor does a file that is there before its part is finished."""
    shutil.copytree(days / "wednesday", tmp_path / "wednesday")
    finish = in_progress(tmp_path / "wednesday", tmp_path / "aside", data=not begun)
    outputs = [*names(days)[:2], tmp_path / "wednesday"]
    words = [document.id for document in bert_embed.read_words(outputs, partial=True)]
    assert words == ["2", "3", "1"]
    pieces = bert_embed.read_batches(outputs, rows=1, partial=True)
    found = next(pieces)[0] if begun else []
    finish()
    assert found + [name for ids, _ in pieces for name in ids] == ["2", "3", "1"]
    assert bert_embed.read(outputs, partial=True)[0] == IDS


def test_a_run_that_lost_its_record_or_is_missing_is_not_left_out_unseen(
    days, run, tmp_path, refused
):
    folder = shutil.copytree(days, tmp_path / "days")
    more = {"skip_existing": folder, "granularity": "sentence,word"}
    (folder / "wednesday" / "run.json").rename(tmp_path / "run.json")
    for named in (folder, f"{folder}/*day"):
        with pytest.raises(InputError, match=r"wednesday holds .* but no run.json: copy the whole"):
            bert_embed.read(named)
        refused("wednesday holds ", "search", named, "river")
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
    with pytest.raises(InputError, match="nothing is not the output of a run"):
        bert_embed.read([days / "monday", tmp_path / "nothing"])
    with pytest.raises(ValueError, match="folder must name an output of a run"):
        bert_embed.read([])


def test_a_report_shows_several_outputs_once_they_are_merged(days, tiny_bundle, tmp_path, refused):
    merge = f"export {days} MERGED --to parquet"
    refused(
        f"holds several outputs, and a report shows one: merge them with `bert-embed {merge}`",
        "report",
        days,
    )
    three_days(tmp_path, tmp_path / "out", tiny_bundle, keep_text=True)
    assert main(["export", f"{tmp_path}/out", f"{tmp_path}/merged", "--to=parquet"]) == 0
    file = tmp_path / "page.html"
    assert main(["report", f"{tmp_path}/merged", f"--output={file}", "--projection=pca"]) == 0
    page = content_of(file.read_text("utf-8"))
    assert page["documents"]["ids"] == IDS
    assert page["documents"]["texts"] == TEXTS
    assert page["counts"]["embedded"] == len(IDS)


def test_outputs_whose_earlier_one_was_overwritten_are_refused(tmp_path, run, tiny_bundle, refused):
    three_days(tmp_path, tmp_path / "out", tiny_bundle)
    monday, tuesday, _ = names(tmp_path / "out")
    other = [{"id": "1", "text": "another"}, {"id": "5", "text": "five"}]
    run({"other.jsonl": other}, "out/monday", overwrite=True)
    problem = f"{tuesday} continues another run than {monday} holds now"
    with pytest.raises(InputError, match=re.escape(problem)):
        bert_embed.read([monday, tuesday])
    refused(problem, "search", monday, tuesday, "one")
    assert bert_embed.read(monday)[0] == ["1", "5"]
    assert bert_embed.read(tuesday)[0] == ["1"]


def test_a_copy_of_an_output_is_not_read_with_it(days, tmp_path, refused):
    folder = shutil.copytree(days, tmp_path / "out")
    (folder / "latest").symlink_to(folder / "wednesday")  # the same output, not a copy
    assert sorted(bert_embed.read(folder)[0]) == sorted(IDS)
    shutil.copytree(folder / "monday", folder / "monday.bak")
    problem = f"{folder}/monday.bak and {folder}/monday hold the same run: name one of them"
    with pytest.raises(InputError, match=re.escape(problem)):
        bert_embed.read(folder)
    refused(problem, "search", folder, "one")
    refused(problem, "export", folder, f"{tmp_path}/e", "--to=npy")
