"""A run that embedded nothing does not pass for a good one, and does not keep its folder."""

import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from bert_embed.transforms.output_folder import OutputFolder
from tests.support.command import embed, flags_of, record, rows, write_json
from tests.support.outputs import contents


@pytest.fixture
def text(tmp_path):
    """Records of which the default column holds no text."""
    records = ({"id": str(n), "text": None, "body": f"the river {n}"} for n in range(30))
    return write_json(tmp_path / "in.jsonl", *records)


def test_all_rejected_is_exit_3_with_the_main_reason(run, text):
    for again in (False, True):
        output = run(text, code=3)
        (reason,) = record(output)["rejected"]
        assert "nothing was embedded: 30 of 30 records were rejected, most for: " in run.err
        assert f"most for: {reason};" in run.err
        assert ("nothing to do" in run.out) == again
    assert record(output)["status"] == "refused"
    assert record(output)["error"].startswith("nothing was embedded: 30 of 30 records were")
    for allowed, code in (("30", 3), ("99%", 3), ("100%", 0)):
        run(text, code=code, max_rejected=allowed)


def test_more_than_one_in_a_hundred_is_refused_unless_allowed(tmp_path, tiny_bundle, command):
    """The default; what was written is whole, and the same command with more allowed accepts it."""
    path, output = tmp_path / "in.jsonl", tmp_path / "out"
    texts = [n if n == 7 else f"the river {n}" for n in range(50)]
    write_json(path, *({"id": n, "text": text} for n, text in enumerate(texts)))
    words = ["embed", *flags_of(output, tiny_bundle, path)]
    for _ in range(2):
        said = command(*words, code=3)
        assert said.err.splitlines()[-1] == (
            "error: 1 of 50 records was rejected, --max_rejected allows 1%: rejected/ has them "
            "with their reasons; --max_rejected 1 accepts the run, whose vectors are kept"
        )
        assert "50 records: 49 embedded, 1 rejected" in said.out
        assert "Traceback" not in said.err
        notes = [line for line in said.err.splitlines() if line.startswith("note:")]
        assert all("name no pooling" in line for line in notes)
    assert record(output)["status"] == "refused"
    assert record(output)["error"] == said.err.splitlines()[-1].removeprefix("error: ")
    assert len(bert_embed.read(output)[0]) == 49
    command("verify", output)
    command("search", output, "the river")
    files = {path: path.stat().st_mtime_ns for path in output.rglob("part-*")}
    command(*words, "--max_rejected=1")
    assert record(output)["status"] == "done"
    assert record(output).get("error") is None
    assert {path: path.stat().st_mtime_ns for path in output.rglob("part-*")} == files
    command(*words, "--max_rejected=0", code=3)  # judged anew, though it is done
    assert record(output)["status"] == "done"
    write_json(path, *({"id": n, "text": "the river" if n else 7} for n in range(100)))
    command(*words, "--overwrite")  # 1 of 100


def test_the_advice_on_cut_texts_can_be_followed(run, command, tmp_path, tiny_bundle):
    source = {"in.jsonl": [{"text": "river " * 90, "b": "bank"}]}
    more = "--long_text window{} reads whole texts, a larger --max_seq_length more\n"
    run(source)
    assert more.format(" or --chunk tokens") in run.out
    run(source, "pairs", text_b_column="b")
    assert "vectors: a larger --max_seq_length reads more\n" in run.out
    places = {"input": tmp_path / "in.jsonl", "output": tmp_path / "examples"}
    said = command("tokenize", **places, model=tiny_bundle)
    assert more.format("") in said.out
    assert "name no pooling" not in said.err


def test_the_corrected_command_takes_the_folder(run, text):
    """Unless another command may write to it."""
    output = run(text, code=3)
    before = contents(output)
    with OutputFolder(str(output)).held():
        run(text, code=1, text_column="body")
    assert "another command writes to" in run.err
    before.pop("_state/lock", None)
    assert before.items() <= contents(output).items()
    run(text, text_column="body")
    assert len(rows(output)["id"]) == 30
    # That one is another matter.
    run(text, code=2, text_column="id")


def test_of_two_corrected_commands_at_once_one_is_refused(run, tiny_bundle, text, monkeypatch):
    """The first one runs after the second has read the record, and before it is alone."""
    output = run(text, code=3)
    held = OutputFolder.held

    def after_the_first(folder, alone=False):
        monkeypatch.setattr(OutputFolder, "held", held)
        assert embed(output, tiny_bundle, text, text_column="body") == 0
        return held(folder, alone)

    monkeypatch.setattr(OutputFolder, "held", after_the_first)
    run(text, code=2, text_column="id")
    assert "holds another run" in run.err
    assert len(rows(output)["id"]) == 30
    assert main(["verify", str(output)]) == 0


def test_blank_lines_are_not_held_against_it(run):
    run({"blank.txt": "\n\n\n"}, "blank")
    run({"bad.txt": b"\n\ncaf\xe9\n"}, "bad", code=3)
    wanted = "1 of 1 record (beside 2 blank lines) was rejected, most for: invalid UTF-8"
    assert wanted in run.err
