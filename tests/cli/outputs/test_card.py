"""`card` describes an output so that others can open it."""

import json

import datasets
import pytest
import yaml

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import embed


@pytest.fixture
def output(tmp_path, tiny_bundle):
    """A run of sentences and words, with two blocks."""
    texts = tmp_path / "in.jsonl"
    lines = [{"id": n, "text": "the bank of a river", "lang": "en"} for n in range(4)]
    texts.write_text("".join(json.dumps(each) + "\n" for each in lines))
    flags = {"granularity": "sentence,word", "extra_columns": "lang", "block_bytes": 100}
    assert embed(tmp_path / "out", tiny_bundle, texts, **flags) == 0
    return tmp_path / "out"


def test_the_card_leads_readers_to_each_kind_of_vectors(output, tmp_path, capsys):
    assert main(["card", str(output)]) == 0
    assert capsys.readouterr().out == f"wrote {output}/README.md\n"
    _, front, page = (output / "README.md").read_text("utf-8").split("---\n", 2)
    assert yaml.safe_load(front) == {
        "pretty_name": "out",
        "tags": ["embeddings", "bert"],
        "configs": [
            {"config_name": "embeddings", "data_files": "embeddings/*.parquet"},
            {"config_name": "words", "data_files": "words/*.parquet"},
        ],
    }
    assert "# out\n" in page
    assert "| documents | 4 of 4 records |" in page
    for kind in ("embeddings", "words"):
        cache = str(tmp_path / "cache")
        found = datasets.load_dataset(str(output), kind, split="train", cache_dir=cache)
        assert found["id"] == [0, 1, 2, 3] or found["id"] == ["0", "1", "2", "3"]
    assert len(bert_embed.read(output)[0]) == 4
    assert main(["verify", str(output)]) == 0


def test_a_card_of_no_vectors_says_so(tmp_path, tiny_bundle):
    (tmp_path / "in.jsonl").write_text("")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.jsonl") == 0
    assert main(["card", str(tmp_path / "out")]) == 0
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "\nNo embeddings: no text had any; `run.json` has everything about the run.\n" in card


@pytest.mark.parametrize(
    ("command", "kind"), [("card", "embeddings"), ("card", "words"), ("report", "embeddings")]
)
def test_an_output_that_lost_a_file_is_not_described(output, capsys, command, kind):
    next(output.glob(f"{kind}/*")).unlink()
    before = (output / "report.html").read_bytes()
    assert main([command, str(output)]) == 2
    assert f"{output}/{kind} holds 1 file" in capsys.readouterr().err
    assert not (output / "README.md").exists()
    assert (output / "report.html").read_bytes() == before


def test_only_a_complete_run_is_described(output, tmp_path, capsys):
    record = json.loads((output / "run.json").read_text())
    (output / "run.json").write_text(json.dumps(record | {"status": "failed"}))
    assert main(["card", str(output)]) == 2
    assert "is not the output of a complete run of `embed`" in capsys.readouterr().err
    assert main(["card", str(tmp_path / "other")]) == 2
    assert "it holds no run.json" in capsys.readouterr().err


def test_a_card_of_the_user_is_not_replaced(output, capsys):
    assert main(["card", str(output)]) == 0
    assert main(["card", str(output)]) == 0  # its own it replaces
    (output / "README.md").write_text("---\ntags: [bert]\n---\nmine\n")
    before = {path: path.read_bytes() for path in output.glob("*.*")}
    capsys.readouterr()
    assert main(["card", str(output)]) == 2
    told = capsys.readouterr().err
    assert told == (
        f"error: {output}/README.md is not one that `card` wrote; give it another name, then run "
        "`card` again\n"
    )
    assert {path: path.read_bytes() for path in output.glob("*.*")} == before


def test_a_card_whose_first_comment_is_removed_is_the_users(output):
    assert main(["card", str(output)]) == 0
    lines = (output / "README.md").read_text("utf-8").splitlines(keepends=True)
    assert lines[1].startswith("# bert-embed wrote this file")
    (output / "README.md").write_text("".join([lines[0], *lines[2:]]))
    assert main(["card", str(output)]) == 2


def test_a_file_that_cannot_be_read_is_named_in_one_sentence(output, capsys):
    (output / "README.md").mkdir()
    capsys.readouterr()
    assert main(["card", str(output)]) == 2
    assert capsys.readouterr().err == f"error: {output}/README.md: Is a directory\n"
