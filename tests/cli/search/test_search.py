"""Search finds what the vectors say is near, and shows the documents."""

import json
import sys

import numpy as np
import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import embed
from tests.support.rounding import MINILM, relative_error

TEXTS = {
    "call": "Objects with a __call__ method can be called like functions.",
    "try": "The finally clause is executed on the way out in any case.",
    "bread": "Knead the dough for ten minutes and let it rise.",
    "sea": "The ship left the harbour at dawn.",
}


FORMATS = ["parquet", "jsonl"]


@pytest.fixture(scope="module")
def outputs(minilm, tmp_path_factory):
    """A folder with an output of each format."""
    folder = tmp_path_factory.mktemp("search")
    lines = [json.dumps({"id": name, "text": text}) for name, text in TEXTS.items()]
    (folder / "in.jsonl").write_text("\n".join(lines))
    for each in FORMATS:
        flags = {"output_format": each, "block_bytes": 100}
        assert embed(folder / each, "minilm", folder / "in.jsonl", **flags) == 0
    return folder


@pytest.fixture
def output(outputs):
    return outputs / "parquet"


@pytest.fixture
def search(capsys):
    """Searches with these words; returns what is printed, and what is said beside it."""

    def searched(*words, code=0):
        capsys.readouterr()
        assert main(["search", *map(str, words)]) == code
        return capsys.readouterr()

    return searched


@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize(
    ("query", "name"), [("how do I bake a loaf", "bread"), ("a boat on the ocean", "sea")]
)
def test_the_nearest_document_comes_first(outputs, output_format, query, name):
    hits = bert_embed.nearest(str(outputs / output_format), [query], k=99)[0]
    assert hits[0].id == name
    assert hits[0].text == TEXTS[name]
    encoder = bert_embed.load("minilm")
    expected = encoder.encode([TEXTS[name]])[0] @ encoder.encode([query])[0]
    assert abs(hits[0].score - expected) <= 4 * relative_error(MINILM)  # of both vectors, twice
    ids, vectors = bert_embed.read(outputs / output_format)
    order = np.argsort(-(vectors @ encoder.encode([query])[0]), kind="stable")
    assert [hit.id for hit in hits] == [ids[n] for n in order]
    assert len(bert_embed.nearest(str(outputs / output_format), [query], k=3)[0]) == 3


def test_the_command_prints_rank_score_and_text(output, search):
    """The query comes last."""
    for words in ([output, "baking", "--k=1"], ["--k=1", output, "baking"]):
        printed = search(*words).out
        assert "1. " in printed
        assert "bread" in printed
        assert TEXTS["bread"] in printed
    message = "two is not the output of a run; the query comes last"
    assert message in search(output, "two", "words", code=2).err


def test_json_holds_every_query_with_its_hits(output, tmp_path, search):
    (tmp_path / "queries.txt").write_text("baking\na «boat»\n")
    printed = search(output, f"--queries={tmp_path / 'queries.txt'}", "--k=2", "--json").out
    lines = [json.loads(line) for line in printed.splitlines()]
    assert [line["query"] for line in lines] == ["baking", "a «boat»"]
    wanted = bert_embed.nearest(str(output), ["baking", "a «boat»"], k=2)
    assert [[hit["score"] for hit in line["hits"]] for line in lines] == [
        [hit.score for hit in hits] for hits in wanted
    ]
    first = lines[1]["hits"][0]
    assert (first["rank"], first["id"], first["text"]) == (1, "sea", TEXTS["sea"])
    assert first["output"] == str(output)
    assert (output / first["file"]).is_file()
    assert "start" not in first


@pytest.mark.parametrize("keep_text", [False, True])
def test_hits_show_the_extra_columns(run, search, tiny_bundle, keep_text):
    lines = [
        {"id": "a", "text": "the bank", "title": "Money", "year": 1999},
        {"id": "b", "text": "a river", "title": None, "year": 2001},
    ]
    flags = {"model": tiny_bundle, "extra_columns": "title,year:int64", "keep_text": keep_text}
    output = run({"in.jsonl": "\n".join(map(json.dumps, lines))}, **flags)
    printed = search(output, "the bank", "--k=2").out
    assert "a\n             title: Money; year: 1999\n             the bank\n" in printed
    assert "title: None; year: 2001\n             a river\n" in printed
    hits = json.loads(search(output, "the bank", "--json").out)["hits"]
    assert [hit["columns"] for hit in hits] == [
        {"title": "Money", "year": 1999},
        {"title": None, "year": 2001},
    ]
    (found,) = bert_embed.nearest(str(output), ["the bank"], k=1)
    assert found[0].columns == {"title": "Money", "year": 1999}


def test_queries_that_are_cut_are_counted(output, tmp_path, search):
    lines = ["a boat", "a boat " * 200, "a boat " * 100]
    (tmp_path / "queries.txt").write_text("\n".join(lines))
    said = search(output, f"--queries={tmp_path}/queries.txt").err
    assert "note: 1 of 3 queries is cut at 256 tokens" in said
    assert "cut" not in search(output, lines[2]).err


def test_a_query_without_a_vector_is_one_sentence(poisoned_bundle, run, search):
    said = search(run({"in.txt": "the bank\n"}, model=poisoned_bundle), "vault", code=1)
    assert said.out == ""
    assert said.err == "error: 1 text failed, the first is 0: vector is not finite\n"


def test_another_model_is_refused(output, tiny_bundle, search):
    assert "come from" in search(output, "x", f"--model={tiny_bundle}", code=2).err


def test_texts_are_left_out_when_the_input_has_changed(output, search):
    source = output.parent / "in.jsonl"
    kept = source.read_text()
    try:
        source.write_text(kept + "\n")
        assert bert_embed.nearest(str(output), ["baking"], k=1)[0][0].text is None
        said = search(output, "baking").err
        assert " are shown: the run's input has changed" in said
    finally:
        source.write_text(kept)


@pytest.mark.slow
def test_several_outputs_are_searched_together(output, tmp_path, run, search):
    lines = [{"id": "loaf", "text": "A loaf of bread."}, {"id": "car", "text": "A new car."}]
    # In the other format than the first.
    monday = run({"in.jsonl": lines}, "days/monday", model="minilm", output_format="jsonl")
    days = monday.parent
    alone = [
        hit
        for each in (output, monday)
        for hit in bert_embed.nearest([str(each)], ["baking"], 9)[0]
    ]
    (hits,) = bert_embed.nearest([str(output), str(monday)], ["baking"], k=9)
    assert [(hit.score, hit.text) for hit in hits] == [
        (hit.score, hit.text) for hit in sorted(alone, key=lambda hit: -hit.score)
    ]
    for named in ([monday], [days], [days / "mon*"], [output, days / "mon*"]):
        printed = search(output, *named, "baking", "--k=2").out.splitlines()
        assert [line.split()[2:] for line in printed if line.endswith(")")] == [
            ["loaf", f"({monday})"],
            ["bread", f"({output})"],
        ]
    printed = search(output, f"{output}/../parq*", "baking", "--k=1").out
    assert printed.splitlines()[0].endswith("  bread")
    other = run(tmp_path / "in.jsonl", "cls", model="minilm", pooling="cls")
    message = "has vectors of other layers, pooling or dim than"
    assert message in search(output, other, "baking", code=2).err


def test_queries_of_a_file_give_the_hits_of_each(output, tmp_path, search):
    path = tmp_path / "queries.txt"
    path.write_text("how do I bake a loaf\na boat on the ocean\n")
    words = [output, f"--queries={path}", "--k=1"]
    printed = search(*words).out.splitlines()
    lines = [line for line in printed if line[0] != " " or "." in line]
    assert [line for line in lines if line.startswith("query")] == [
        "query 1: how do I bake a loaf",
        "query 2: a boat on the ocean",
    ]
    found = [name for line in lines for name in TEXTS if line.endswith(f"  {name}")]
    assert found == ["bread", "sea"]
    message = "a is not the output of a run; the query comes last"
    assert message in search(*words, "a", code=2).err
    path.write_text("bread\u2028and\x0cbutter\r\nsea\r\n", newline="")
    asked = [json.loads(line)["query"] for line in search(*words, "--json").out.splitlines()]
    assert asked == ["bread\u2028and\x0cbutter", "sea"]
    path.write_text("one\n\n")
    assert "note: 1 blank line of" in search(*words).err
    path.write_text("\n")
    assert "must hold one query a line, but it is empty" in search(*words, code=2).err
    for name, said in (("", "is a folder, give a file"), ("none.txt", "none.txt does not exist")):
        shown = search(output, f"--queries={tmp_path}/{name}", code=2).err
        assert f"error: --queries {tmp_path}" in shown
        assert said in shown
    message = "is a run's output: give a query behind it"
    assert message in search(output, output, "--k=1", code=2).err
    message = f"did you mean {output}?"
    assert message in search(f"{output}/embeddings/", "baking", code=2).err


@pytest.mark.parametrize("output_format", ["parquet", "jsonl", "tfrecord"])
def test_kept_texts_are_shown_though_the_input_is_gone(tmp_path, run, output_format, search):
    texts = ("the bank", "of the river", "of the river bank")
    source = {"in.jsonl": [{"id": "one id", "text": text} for text in texts]}
    flags = {"keep_text": True, "output_format": output_format, "id_column": "id"}
    outputs = [run(source, "whole", **flags), run(source, "chunks", chunk="sentence", **flags)]
    (tmp_path / "in.jsonl").unlink()
    for output in outputs:
        printed = search(output, "the bank", "--k=3", "--json")
        hits = json.loads(printed.out)["hits"]
        assert hits[0]["text"] == "the bank"
        assert sorted(hit["text"] for hit in hits) == sorted(texts)
        assert "no texts" not in printed.err


def test_why_no_texts_are_shown(run, tiny_bundle, search):
    texts = [{"id": "a", "text": text} for text in ("the bank", "of the river")]
    output = run({"in.jsonl": texts}, id_column="id")

    def reason():
        printed = search(output, "the bank", f"--model={tiny_bundle}")
        assert "the bank" not in printed.out
        [line] = [line for line in printed.err.splitlines() if "no texts of" in line]
        return line.partition("shown: ")[2]

    assert reason() == "several documents of a part have these ids"
    run.written({"in.jsonl": texts[:1]})
    assert reason() == "the run's input has changed or is missing; `--keep_text` keeps texts"
    (output / "run.json").unlink()
    assert reason() == "without run.json its input is not known"


_READ: list[str] = []


def test_each_part_is_opened_once(run, search):
    """To compare its checksum, score its vectors, and read the ids of its hits, if it has some."""
    lines = {"in.txt": "".join(f"the river bank of {number}\n" for number in range(60))}
    sys.addaudithook(lambda event, arguments: event == "open" and _READ.append(str(arguments[0])))
    for output_format in ("parquet", "jsonl", "tfrecord"):
        flags = {"output_format": output_format, "block_bytes": 200, "normalize": True}
        output = run(lines, output_format, **flags)
        parts = sorted(map(str, (output / "embeddings").iterdir()))
        assert len(parts) > 4
        _READ.clear()
        printed = search(output, "the river bank of 7", "--k=3", "--json").out
        assert sorted(name for name in _READ if name in parts) == parts
        assert json.loads(printed)["hits"][0]["text"] == "the river bank of 7"
