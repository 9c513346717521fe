"""A run that embedded nothing does not pass for a good one, and does not keep its folder."""

import json

import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from bert_embed.transforms.output_folder import OutputFolder
from tests.support.command import embed, flags_of, record, rows


@pytest.fixture
def text(tmp_path):
    """Records of which the default column is no text."""
    path = tmp_path / "in.jsonl"
    lines = [json.dumps({"id": str(n), "text": n, "body": f"the river {n}"}) for n in range(30)]
    path.write_text("\n".join(lines))
    return path


def test_all_rejected_is_exit_3_with_the_main_reason(tmp_path, tiny_bundle, text, capsys):
    output = tmp_path / "out"
    for again in (False, True):
        assert embed(output, tiny_bundle, text) == 3
        captured = capsys.readouterr()
        (reason,) = record(output)["rejected"]
        assert "nothing was embedded: 30 of 30 records were rejected, most for: " in captured.err
        assert f"most for: {reason};" in captured.err
        assert ("nothing to do" in captured.out) == again
    assert record(output)["status"] == "refused"
    assert record(output)["error"].startswith("nothing was embedded: 30 of 30 records were")


def test_more_than_one_in_a_hundred_is_refused_unless_allowed(tmp_path, tiny_bundle, capsys):
    """The default; what was written is whole, and the same command with more allowed accepts it."""
    path, output = tmp_path / "in.jsonl", tmp_path / "out"
    texts = [n if n == 7 else f"the river {n}" for n in range(50)]
    path.write_text("".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in enumerate(texts)))
    words = ["embed", *flags_of(output, tiny_bundle, path)]
    for _ in range(2):
        assert main(words) == 3
        said = capsys.readouterr()
        assert said.err.splitlines()[-1] == (
            "error: 1 of 50 records was rejected, --max_rejected allows 1%: rejected/ has them "
            "with their reasons; --max_rejected 1 accepts the run, whose vectors are kept"
        )
        assert "50 records: 49 embedded, 1 rejected" in said.out
        assert "Traceback" not in said.err
        assert "note:" not in said.err
    assert record(output)["status"] == "refused"
    assert record(output)["error"] == said.err.splitlines()[-1].removeprefix("error: ")
    assert len(bert_embed.read(output)[0]) == 49
    assert main(["verify", str(output)]) == 0
    assert main(["search", str(output), "the river"]) == 0
    files = {path: path.stat().st_mtime_ns for path in output.rglob("part-*")}
    assert main([*words, "--max_rejected=1"]) == 0
    assert record(output)["status"] == "done"
    assert record(output).get("error") is None
    assert {path: path.stat().st_mtime_ns for path in output.rglob("part-*")} == files
    assert main([*words, "--max_rejected=0"]) == 3  # judged anew, though it is done
    assert record(output)["status"] == "done"
    path.write_text("".join(json.dumps({"id": n, "text": "the river"}) + "\n" for n in range(99)))
    with path.open("a") as file:
        file.write('{"id": 99, "text": 7}\n')
    assert main([*words, "--overwrite"]) == 0  # 1 of 100


@pytest.mark.parametrize(("allowed", "code"), [("100%", 0), ("99%", 3), ("30", 3)])
def test_it_can_be_allowed(tmp_path, tiny_bundle, text, allowed, code):
    assert embed(tmp_path / "out", tiny_bundle, text, max_rejected=allowed) == code


@pytest.mark.parametrize(("allowed", "code"), [("29%", 0), ("28.99%", 3), ("29", 0), ("28", 3)])
def test_a_share_is_exact(tmp_path, tiny_bundle, allowed, code):
    path = tmp_path / "in.jsonl"
    texts = [n if n < 29 else f"the river {n}" for n in range(100)]
    path.write_text("".join(json.dumps({"id": n, "text": t}) + "\n" for n, t in enumerate(texts)))
    assert embed(tmp_path / "out", tiny_bundle, path, max_rejected=allowed) == code


def test_the_corrected_command_takes_the_folder(tmp_path, tiny_bundle, text):
    assert embed(tmp_path / "out", tiny_bundle, text) == 3
    assert embed(tmp_path / "out", tiny_bundle, text, text_column="body") == 0
    assert len(rows(tmp_path / "out")["id"]) == 30
    # That one is another matter.
    assert embed(tmp_path / "out", tiny_bundle, text, text_column="id") == 2


def test_what_another_command_may_write_is_not_removed(tmp_path, tiny_bundle, text, capsys):
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, text) == 3
    before = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    with OutputFolder(str(output)).held():
        assert embed(output, tiny_bundle, text, text_column="body") == 1
    assert "another command writes to" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == before
    assert embed(output, tiny_bundle, text, text_column="body") == 0


def test_of_two_corrected_commands_at_once_one_is_refused(
    tmp_path, tiny_bundle, text, capsys, monkeypatch
):
    """The first one runs after the second has read the record, and before it is alone."""
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, text) == 3
    held = OutputFolder.held

    def after_the_first(folder, alone=False):
        monkeypatch.setattr(OutputFolder, "held", held)
        assert embed(output, tiny_bundle, text, text_column="body") == 0
        return held(folder, alone)

    monkeypatch.setattr(OutputFolder, "held", after_the_first)
    assert embed(output, tiny_bundle, text, text_column="id") == 2
    assert "holds another run" in capsys.readouterr().err
    assert len(rows(output)["id"]) == 30
    assert main(["verify", str(output)]) == 0


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_corrected_command_leaves_files_of_the_user(
    tmp_path, tiny_bundle, text, capsys, overwrite
):
    output, flags = tmp_path / "out", {"overwrite": True} if overwrite else {}
    assert embed(output, tiny_bundle, text, report="false") == 3
    (output / "report.html").write_text("my own")
    capsys.readouterr()
    assert embed(output, tiny_bundle, text, text_column="body", **flags) == 0
    assert (output / "report.html").read_text() == "my own"
    assert "report.html is not a report of this program" in capsys.readouterr().err
    assert main(["report", str(output)]) == 2
    assert "give it another name" in capsys.readouterr().err


def test_overwrite_removes_what_this_program_wrote(tmp_path, tiny_bundle, text):
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, text, text_column="body") == 0
    assert (output / "report.html").exists()
    assert embed(output, tiny_bundle, text, overwrite=True, report="false") == 3
    assert not (output / "report.html").exists()


def test_blank_lines_and_skipped_records_are_not_held_against_it(tmp_path, tiny_bundle, capsys):
    (tmp_path / "in.txt").write_text("\n\n\n")
    assert embed(tmp_path / "blank", tiny_bundle, tmp_path / "in.txt") == 0
    (tmp_path / "in.txt").write_text("one\ntwo\n")
    assert embed(tmp_path / "first", tiny_bundle, tmp_path / "in.txt") == 0
    earlier = {"skip_existing": tmp_path / "first"}
    assert embed(tmp_path / "second", tiny_bundle, tmp_path / "in.txt", **earlier) == 0
    assert record(tmp_path / "second")["counts"]["skipped"] == 2
    capsys.readouterr()
    (tmp_path / "in.txt").write_bytes(b"\n\ncaf\xe9\n")
    assert embed(tmp_path / "bad", tiny_bundle, tmp_path / "in.txt") == 3
    wanted = "1 of 1 record (beside 2 blank lines) was rejected, most for: invalid UTF-8"
    assert wanted in capsys.readouterr().err


def test_a_report_of_an_output_that_lost_a_file_is_not_written(tmp_path, tiny_bundle, text, capsys):
    output = tmp_path / "out"
    assert embed(output, tiny_bundle, text, text_column="body") == 0
    next(output.glob("embeddings/*")).unlink()
    before = (output / "report.html").read_bytes()
    assert main(["report", str(output)]) == 2
    assert f"{output}/embeddings holds " in capsys.readouterr().err
    assert (output / "report.html").read_bytes() == before
