"""What takes one output takes several: of each document the newest version counts, once."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import bert_embed
from bert_embed.base.errors import InputError
from bert_embed.pipeline.cli import main
from tests.support.command import embed
from tests.support.daily import THREE_DAYS, in_progress, three_days
from tests.support.outputs import content_of

IDS = ["2", "1", "3", "4"]  # monday has the second still, wednesday the newest of the others
TEXTS = ["two", "the first of all", "three, written again", "four"]


@pytest.fixture(scope="module", params=["parquet", "jsonl"])
def days(request, tiny_bundle, tmp_path_factory):
    """An output a day, each of what the days before it lack."""
    folder = tmp_path_factory.mktemp("days")
    flags = {"output_format": request.param, "granularity": "sentence,word"}
    three_days(folder, folder / "out", tiny_bundle, **flags)
    return folder / "out"


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


def test_files_of_a_run_in_progress_replace_nothing_until_they_are_finished(days, tmp_path):
    shutil.copytree(days / "wednesday", tmp_path / "wednesday")
    in_progress(tmp_path / "wednesday", tmp_path / "aside", data=False)
    outputs = [*names(days)[:2], tmp_path / "wednesday"]
    assert bert_embed.read(outputs, partial=True)[0] == ["2", "3", "1"]
    words = [document.id for document in bert_embed.read_words(outputs, partial=True)]
    assert words == ["2", "3", "1"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_part_that_is_finished_meanwhile_changes_no_answer(days, tmp_path, begun):
    shutil.copytree(days / "wednesday", tmp_path / "wednesday")
    finish = in_progress(tmp_path / "wednesday", tmp_path / "aside", data=not begun)
    outputs = [*names(days)[:2], tmp_path / "wednesday"]
    pieces = bert_embed.read_batches(outputs, rows=1, partial=True)
    found = next(pieces)[0] if begun else []
    finish()
    assert found + [name for ids, _ in pieces for name in ids] == ["2", "3", "1"]
    assert bert_embed.read(outputs, partial=True)[0] == IDS


def test_a_run_that_lost_its_record_is_not_left_out_unseen(days, tiny_bundle, tmp_path, capsys):
    shutil.copytree(days, tmp_path / "out")
    (tmp_path / "out" / "wednesday" / "run.json").unlink()
    for named in (f"{tmp_path}/out", f"{tmp_path}/out/*day"):
        with pytest.raises(InputError, match=r"wednesday holds .* but no run.json: copy the whole"):
            bert_embed.read(named)
        assert main(["search", named, "river"]) == 2
        assert "wednesday holds " in capsys.readouterr().err
    more = {"skip_existing": tmp_path / "out", "granularity": "sentence,word"}
    assert embed(tmp_path / "new", tiny_bundle, days.parent / "monday.jsonl", **more) == 2
    assert "wednesday holds " in capsys.readouterr().err


def test_an_output_that_is_missing_between_others_is_named(days, tiny_bundle, tmp_path, capsys):
    shutil.copytree(days, tmp_path / "out")
    (tmp_path / "out" / "tuesday").rename(tmp_path / "aside")
    with pytest.raises(InputError, match=r"wednesday continues .*out/tuesday, too, without which"):
        bert_embed.read(tmp_path / "out")
    flags = {"skip_existing": tmp_path / "out", "granularity": "sentence,word"}
    assert embed(tmp_path / "new", tiny_bundle, days.parent / "monday.jsonl", **flags) == 2
    assert "out/tuesday, too, without which documents that" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()
    assert bert_embed.read([tmp_path / "out", tmp_path / "aside"])[0] == IDS
    assert bert_embed.read([tmp_path / "aside", days / "wednesday"])[0] == ["1", "3", "4"]


def test_a_damaged_file_is_named_with_its_output(days, tmp_path, capsys):
    shutil.copytree(days, tmp_path / "out")
    path = next((tmp_path / "out" / "tuesday" / "embeddings").iterdir())
    path.write_bytes(path.read_bytes()[:-9] + b"?" * 9)
    for words in (["search", "the first"], ["report", f"--output={tmp_path}/report.html"]):
        assert main([words[0], f"{tmp_path}/out", words[1]]) == 2
        assert f"{path} is damaged" in capsys.readouterr().err


def test_other_vectors_are_not_read_with_these(days, tiny_bundle, tmp_path):
    other = tmp_path / "other"
    flags = {"pooling": "cls", "granularity": "sentence,word"}
    assert embed(other, tiny_bundle, days.parent / "monday.jsonl", **flags) == 0
    with pytest.raises(InputError, match=r"pooling is \"cls\" there and \"mean\" here; take them"):
        bert_embed.read([days / "monday", other])
    with pytest.raises(InputError, match="nothing is not the output of a run"):
        bert_embed.read([days / "monday", tmp_path / "nothing"])
    with pytest.raises(ValueError, match="folder must name an output of a run"):
        bert_embed.read([])


def test_export_takes_the_newest_of_each_document(days, tmp_path, capsys):
    ids, vectors = bert_embed.read(days)
    for number, folders in enumerate([[str(days)], [f"{days}/*"], names(days)]):
        dest = tmp_path / str(number)
        assert main(["export", *folders, str(dest), "--to", "npy"]) == 0
        assert pq.read_table(dest / "metadata_0000.parquet")["id"].to_pylist() == ids
        np.testing.assert_array_equal(np.load(dest / "emb_0000.npy"), vectors)
        assert main(["export", "--to=npy", *folders, str(dest)]) == 0
        assert "4 rows of 32 numbers, nothing to do" in capsys.readouterr().out
    words = tmp_path / "words"
    assert main(["export", str(days), str(words), "--to=npy", "--granularity=word"]) == 0
    rows = pq.read_table(words / "metadata_0000.parquet")
    assert list(dict.fromkeys(rows["id"].to_pylist())) == IDS
    assert main(["export", str(days), f"{days}/tuesday/x", "--to=npy"]) == 2
    assert "lies in the output itself" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "x"), "--to=npy"]) == 2
    assert "DIR or DEST is missing: give the output of a run, then DEST" in capsys.readouterr().err


def test_outputs_with_other_columns_are_not_exported_together(days, tiny_bundle, tmp_path, capsys):
    flags = {"granularity": "sentence,word", "keep_text": True}
    assert embed(tmp_path / "texts", tiny_bundle, f"{days.parent}/monday.jsonl", **flags) == 0
    both = [str(days / "tuesday"), str(tmp_path / "texts")]
    assert main(["export", *both, str(tmp_path / "x"), "--to=npy"]) == 2
    assert "has the columns id, text, but" in capsys.readouterr().err


def test_a_report_of_several_outputs_adds_them_up(days, tmp_path, capsys):
    file = tmp_path / "page.html"
    assert main(["report", str(days), f"--output={file}", "--projection=pca"]) == 0
    page = content_of(file.read_text("utf-8"))
    assert page["documents"]["ids"] == IDS
    assert page["documents"]["texts"] == TEXTS
    counts = page["counts"]
    assert (counts["records"], counts["embedded"], counts["skipped"]) == (10, 7, 3)
    assert [row["files"] for row in page["files"]] == names(days)
    assert sum(page["lengths"]["counts"]) == 7
    assert main(["report", str(days)]) == 2
    assert "--output FILE is missing, 3 outputs" in capsys.readouterr().err


def test_outputs_whose_earlier_one_was_overwritten_are_refused(tmp_path, tiny_bundle, capsys):
    three_days(tmp_path, tmp_path / "out", tiny_bundle)
    monday, tuesday, _ = names(tmp_path / "out")
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "1", "text": "another"}\n{"id": "5", "text": "five"}\n')
    assert embed(Path(monday), tiny_bundle, other, overwrite=True) == 0
    problem = f"{tuesday} continues another run than {monday} holds now"
    with pytest.raises(InputError, match=re.escape(problem)):
        bert_embed.read([monday, tuesday])
    capsys.readouterr()
    assert main(["search", monday, tuesday, "one"]) == 2
    assert problem in capsys.readouterr().err
    assert bert_embed.read(monday)[0] == ["1", "5"]
    assert bert_embed.read(tuesday)[0] == ["1"]


def test_a_copy_of_an_output_is_not_read_with_it(days, tmp_path, capsys):
    folder = tmp_path / "out"
    shutil.copytree(days, folder)
    (folder / "latest").symlink_to(folder / "wednesday")  # the same output, not a copy
    assert sorted(bert_embed.read(folder)[0]) == sorted(IDS)
    shutil.copytree(folder / "monday", folder / "monday.bak")
    problem = f"{folder}/monday.bak and {folder}/monday hold the same run: name one of them"
    with pytest.raises(InputError, match=re.escape(problem)):
        bert_embed.read(folder)
    for words in (
        ["search", str(folder), "one"],
        ["export", str(folder), f"{tmp_path}/e", "--to=npy"],
        ["report", str(folder), f"--output={tmp_path}/page.html"],
    ):
        assert main(words) == 2
        assert problem in capsys.readouterr().err


def test_a_report_says_nothing_of_texts_of_outputs_that_are_replaced(tmp_path, tiny_bundle, capsys):
    for name, text in (("1", "a red river"), ("2", "a bank")):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"id": "a", "text": text}))
        earlier = {"skip_existing": tmp_path / "out"} if name == "2" else {}
        source = tmp_path / f"{name}.jsonl"
        assert embed(tmp_path / "out" / name, tiny_bundle, source, **earlier) == 0
    (tmp_path / "1.jsonl").unlink()
    capsys.readouterr()
    assert main(["report", str(tmp_path / "out"), f"--output={tmp_path}/report.html"]) == 0
    assert main(["search", str(tmp_path / "out"), "a bank"]) == 0
    assert "no texts" not in capsys.readouterr().err
