"""A run like another one reads what that one read, by its record, and says what it will cost."""

import json

import pytest
import yaml

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import embed, record
from tests.support.models.tiny import bundle_of, write_tiny_huggingface

pytestmark = pytest.mark.slow

TEXTS = ["the bank of the river. money", "the vault", "people and water", "a red river. money"]


@pytest.fixture(scope="module")
def old(tiny_bundle, tmp_path_factory):
    """An output in chunks, with columns, a model's settings, and all else that may be given."""
    folder = tmp_path_factory.mktemp("like")
    lines = [
        json.dumps({"key": f"k{n}", "body": text, "lang": "en"}) for n, text in enumerate(TEXTS)
    ]
    (folder / "in.jsonl").write_text("\n".join(lines))
    flags = {"text_column": "body", "id_column": "key", "extra_columns": "lang", "keep_text": True}
    flags |= {"chunk": "sentence", "output_dtype": "int8", "pooling": "cls", "dim": 8}
    assert embed(folder / "old", tiny_bundle, folder / "in.jsonl", **flags) == 0
    return folder / "old"


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Another model."""
    return bundle_of(tmp_path_factory.mktemp("other"), write_tiny_huggingface, layers=3)


def settings(output):
    vectors = record(output)["vectors"]
    return {name: vectors.get(name) for name in ("chunk", "output_dtype", "pooling", "dim")}


def test_input_columns_and_chunks_are_taken_and_the_cost_is_said_first(old, tmp_path, capsys):
    new = tmp_path / "new"
    assert main(["embed", f"--like={old}", f"--output={new}"]) == 0
    shown = capsys.readouterr().err
    numbers = record(old)
    assert f"by {old}: about 4 documents, {numbers['tokens']:,} tokens, " in shown
    assert f" hours at the {numbers['tokens_per_second']:,.0f} tokens a second" in shown
    assert "other than" not in shown
    for name in ("input", "files", "vectors", "run"):
        assert record(new)[name] == numbers[name]
    assert bert_embed.read(new)[0] == bert_embed.read(old)[0]
    # The same again does nothing, and so does the command without `like`.
    assert main(["embed", f"--like={old}", f"--output={new}"]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_another_model_has_its_own_settings_and_flags_win(old, other, tmp_path, capsys):
    flags = {"like": str(old), "model": str(other), "output_dtype": "float16"}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(flags))
    outputs = [tmp_path / name for name in ("line", "yaml", "python")]
    words = [f"--{name}={value}" for name, value in flags.items()]
    assert main(["embed", *words, f"--output={outputs[0]}"]) == 0
    shown = capsys.readouterr().err
    differ = shown.partition(f"other than {old}: ")[2].splitlines()[0]
    assert "--pooling (there cls)" in differ
    assert "--output_dtype (there int8)" in differ
    assert "--dim (there 8)" in differ
    assert main(["embed", f"--config={tmp_path}/job.yaml", f"--output={outputs[1]}"]) == 0
    bert_embed.embed(output=outputs[2], show_progress=False, **flags)
    for output in outputs:
        assert settings(output) == {
            "chunk": "sentence",
            "output_dtype": "float16",
            "pooling": "mean",
            "dim": None,
        }
        assert record(output)["input"] == record(old)["input"]
        assert record(output)["run"] == record(outputs[0])["run"]
    found = bert_embed.compare(old, outputs[0])
    assert (found.pool, found.not_comparable) == (4, "the vectors are of different models")


def test_a_part_costs_a_part_and_a_dry_run_writes_nothing(old, tmp_path, capsys):
    words = [f"--like={old}", f"--output={tmp_path}/new", "--limit=2", "--dry_run"]
    assert main(["embed", *words]) == 0
    assert f"by {old}: about 2 documents, " in capsys.readouterr().out
    assert not (tmp_path / "new").exists()
    assert main(["estimate", f"--like={old}", "--seconds=0"]) == 0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"status": "running"}, "the run is not complete (status running)"),
        ({"options": {}}, "does not say what its run read: give --input"),
        ({"options": {"input": ["https://a/***"]}}, "hides a secret in --input: give it"),
        (
            {"options": {"input": ["/no/where.jsonl"]}},
            "read /no/where.jsonl, which is not there: give --input",
        ),
        ({"vectors": None, "examples": {}}, "holds examples, no vectors"),
        ({"command": "cluster"}, "is the output of `cluster`"),
        (None, "is not the output of a run"),
    ],
)
def test_what_cannot_be_repeated_is_refused_in_a_sentence(change, sentence, old, tmp_path, capsys):
    folder = tmp_path / "old"
    folder.mkdir()
    if change is not None:
        (folder / "run.json").write_text(json.dumps(record(old) | change))
    capsys.readouterr()
    assert main(["embed", f"--like={folder}", f"--output={tmp_path}/new"]) == 2
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 1
    assert sentence in error[0]
    assert not (tmp_path / "new").exists()


def test_an_output_is_not_written_over(old, tmp_path, capsys):
    for output in (old, old / "new", old.parent):
        assert main(["embed", f"--like={old}", f"--output={output}", "--dim=4"]) == 2
        assert "choose another folder, so that both stay" in capsys.readouterr().err
