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


@pytest.mark.parametrize("output_format", FORMATS)
@pytest.mark.parametrize(
    ("query", "name"), [("how do I bake a loaf", "bread"), ("a boat on the ocean", "sea")]
)
def test_the_nearest_document_comes_first(outputs, output_format, query, name):
    hits = bert_embed.nearest(str(outputs / output_format), [query], k=3)[0]
    assert len(hits) == 3
    assert hits[0].id == name
    assert hits[0].text == TEXTS[name]
    encoder = bert_embed.load("minilm")
    expected = encoder.encode([TEXTS[name]])[0] @ encoder.encode([query])[0]
    assert abs(hits[0].score - expected) <= 4 * relative_error(MINILM)  # of both vectors, twice
    scores = [hit.score for hit in hits]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("output_format", FORMATS)
def test_hits_equal_a_plain_computation_over_all_vectors(outputs, output_format):
    output = outputs / output_format
    ids, vectors = bert_embed.read(output)
    query = bert_embed.load("minilm").encode(["kneading"])[0]
    order = np.argsort(-(vectors @ query), kind="stable")
    (hits,) = bert_embed.nearest(str(output), ["kneading"], k=99)
    assert [hit.id for hit in hits] == [ids[n] for n in order]


def test_the_command_prints_rank_score_and_text(output, capsys):
    assert main(["search", str(output), "baking", "--k", "1"]) == 0
    printed = capsys.readouterr().out
    assert "1. " in printed
    assert "bread" in printed
    assert TEXTS["bread"] in printed


def test_json_holds_every_query_with_its_hits(output, tmp_path, capsys):
    (tmp_path / "queries.txt").write_text("baking\na «boat»\n")
    words = ["search", str(output), f"--queries={tmp_path / 'queries.txt'}", "--k=2", "--json"]
    assert main(words) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
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


def test_queries_that_are_cut_are_counted(output, tmp_path, capsys):
    lines = ["a boat", "a boat " * 200, "a boat " * 100]
    (tmp_path / "queries.txt").write_text("\n".join(lines))
    assert main(["search", str(output), f"--queries={tmp_path}/queries.txt"]) == 0
    assert "note: 1 of 3 queries is cut at 256 tokens" in capsys.readouterr().err
    assert main(["search", str(output), lines[2]]) == 0
    assert "cut" not in capsys.readouterr().err


def test_a_query_without_a_vector_is_one_sentence(poisoned_bundle, tmp_path, capsys):
    (tmp_path / "in.txt").write_text("the bank\n")
    assert embed(tmp_path / "out", poisoned_bundle, tmp_path / "in.txt") == 0
    capsys.readouterr()
    assert main(["search", str(tmp_path / "out"), "vault"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "error: 1 text failed, the first is 0: vector is not finite\n"


def test_another_model_is_refused(output, tiny_bundle, capsys):
    words = ["search", str(output), "x", f"--model={tiny_bundle}"]
    assert main(words) == 2
    assert "come from" in capsys.readouterr().err


def test_texts_are_left_out_when_the_input_has_changed(output, capsys):
    source = output.parent / "in.jsonl"
    kept = source.read_text()
    try:
        source.write_text(kept + "\n")
        assert bert_embed.nearest(str(output), ["baking"], k=1)[0][0].text is None
        assert main(["search", str(output), "baking"]) == 0
        assert " are shown: the run's input has changed" in capsys.readouterr().err
    finally:
        source.write_text(kept)


def test_inspect_prints_tokens_ids_and_offsets(capsys, minilm):
    assert main(["model", "inspect", "minilm", "--text", "Café embeddings"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["[CLS]", "101"],
        ["cafe", "7668", "0:4"],
        ["em", "7861", "5:7"],
        ["##bed", "8270", "7:10"],
        ["##ding", "4667", "10:14"],
        ["##s", "2015", "14:15"],
        ["[SEP]", "102"],
    ]


@pytest.mark.slow
def test_several_outputs_are_searched_together(output, tmp_path, capsys):
    lines = [{"id": "loaf", "text": "A loaf of bread."}, {"id": "car", "text": "A new car."}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    days = tmp_path / "days"
    # In the other format than the first.
    assert embed(days / "monday", "minilm", tmp_path / "in.jsonl", output_format="jsonl") == 0
    alone = (
        bert_embed.nearest(str(output), ["baking"], 9)[0]
        + bert_embed.nearest(str(days / "monday"), ["baking"], 9)[0]
    )
    (hits,) = bert_embed.nearest([str(output), str(days / "monday")], ["baking"], k=9)
    assert [(hit.score, hit.text) for hit in hits] == [
        (hit.score, hit.text) for hit in sorted(alone, key=lambda hit: -hit.score)
    ]
    capsys.readouterr()
    for named in ([days / "monday"], [days], [days / "mon*"], [output, days / "mon*"]):
        words = [str(each) for each in (output, *named)]
        assert main(["search", *words, "baking", "--k=2"]) == 0
        printed = capsys.readouterr().out.splitlines()
        assert [line.split()[2:] for line in printed if line.endswith(")")] == [
            ["loaf", f"({days / 'monday'})"],
            ["bread", f"({output})"],
        ]
    assert main(["search", str(output), f"{output}/../parq*", "baking", "--k=1"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("  bread")
    flags = {"pooling": "cls"}
    assert embed(tmp_path / "cls", "minilm", tmp_path / "in.jsonl", **flags) == 0
    assert main(["search", str(output), str(tmp_path / "cls"), "baking"]) == 2
    assert "has vectors of other layers, pooling or dim than" in capsys.readouterr().err


def test_the_query_comes_last(output, capsys):
    for words in ([str(output), "baking", "--k=1"], ["--k=1", str(output), "baking"]):
        assert main(["search", *words]) == 0
        assert "bread" in capsys.readouterr().out
    assert main(["search", str(output), "two", "words"]) == 2
    assert "two is not the output of a run; the query comes last" in capsys.readouterr().err


def test_queries_of_a_file_give_the_hits_of_each(output, tmp_path, capsys):
    (tmp_path / "queries.txt").write_text("how do I bake a loaf\na boat on the ocean\n")
    words = ["search", str(output), f"--queries={tmp_path}/queries.txt", "--k=1"]
    assert main(words) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line[0] != " " or "." in line]
    assert [line for line in lines if line.startswith("query")] == [
        "query 1: how do I bake a loaf",
        "query 2: a boat on the ocean",
    ]
    assert [name for line in lines for name in TEXTS if line.endswith(f"  {name}")] == [
        "bread",
        "sea",
    ]
    assert main([*words, "a"]) == 2
    assert "a is not the output of a run; the query comes last" in capsys.readouterr().err
    (tmp_path / "queries.txt").write_text("bread\u2028and\x0cbutter\r\nsea\r\n", newline="")
    assert main([*words, "--json"]) == 0
    asked = [json.loads(line)["query"] for line in capsys.readouterr().out.splitlines()]
    assert asked == ["bread\u2028and\x0cbutter", "sea"]
    (tmp_path / "queries.txt").write_text("one\n\n")
    assert main(words) == 0
    assert "note: 1 blank line of" in capsys.readouterr().err
    (tmp_path / "queries.txt").write_text("\n")
    assert main(words) == 2
    assert "must hold one query a line, but it is empty" in capsys.readouterr().err
    for name, said in (("", "is a folder, give a file"), ("none.txt", "none.txt does not exist")):
        assert main(["search", str(output), f"--queries={tmp_path}/{name}"]) == 2
        assert f"error: --queries {tmp_path}" in (shown := capsys.readouterr().err)
        assert said in shown
    assert main(["search", str(output), str(output), "--k=1"]) == 2
    assert "is a run's output: give a query behind it" in capsys.readouterr().err


def test_a_folder_within_an_output_is_refused_with_the_right_one(output, capsys):
    assert main(["search", f"{output}/embeddings/", "baking"]) == 2
    assert f"did you mean {output}?" in capsys.readouterr().err


@pytest.mark.parametrize("output_format", ["parquet", "jsonl", "tfrecord"])
def test_kept_texts_are_shown_though_the_input_is_gone(
    tmp_path, tiny_bundle, output_format, capsys
):
    path = tmp_path / "in.jsonl"
    texts = ("the bank", "of the river", "of the river bank")
    path.write_text("\n".join(json.dumps({"id": "one id", "text": text}) for text in texts))
    for name, flags in {"whole": {}, "chunks": {"chunk": "sentence"}}.items():
        flags |= {"keep_text": True, "output_format": output_format, "id_column": "id"}
        assert embed(tmp_path / name, tiny_bundle, path, **flags) == 0
    path.unlink()
    capsys.readouterr()
    for name in ("whole", "chunks"):
        assert main(["search", str(tmp_path / name), "the bank", "--k=3", "--json"]) == 0
        printed = capsys.readouterr()
        hits = json.loads(printed.out)["hits"]
        assert hits[0]["text"] == "the bank"
        assert sorted(hit["text"] for hit in hits) == sorted(texts)
        assert "no texts" not in printed.err


def test_why_no_texts_are_shown(tmp_path, tiny_bundle, capsys):
    path, output = tmp_path / "in.jsonl", str(tmp_path / "out")
    rows = [{"id": "a", "text": text} for text in ("the bank", "of the river")]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert embed(output, tiny_bundle, path, id_column="id") == 0

    def reason():
        capsys.readouterr()
        assert main(["search", output, "the bank", f"--model={tiny_bundle}"]) == 0
        printed = capsys.readouterr()
        assert "the bank" not in printed.out
        [line] = [line for line in printed.err.splitlines() if "no texts of" in line]
        return line.partition("shown: ")[2]

    assert reason() == "several documents of a part have these ids"
    path.write_text(json.dumps(rows[0]))
    assert reason() == "the run's input has changed or is missing; `--keep_text` keeps texts"
    (tmp_path / "out" / "run.json").unlink()
    assert reason() == "without run.json its input is not known"


_READ: list[str] = []


def test_each_part_is_opened_once(tmp_path, tiny_bundle, capsys):
    """To compare its checksum, score its vectors, and read the ids of its hits, if it has some."""
    lines = "".join(f"the river bank of {number}\n" for number in range(60))
    (tmp_path / "in.txt").write_text(lines)
    sys.addaudithook(lambda event, arguments: event == "open" and _READ.append(str(arguments[0])))
    for output_format in ("parquet", "jsonl", "tfrecord"):
        output = tmp_path / output_format
        flags = {"output_format": output_format, "block_bytes": 200, "normalize": True}
        assert embed(output, tiny_bundle, tmp_path / "in.txt", **flags) == 0
        parts = sorted(map(str, (output / "embeddings").iterdir()))
        assert len(parts) > 4
        capsys.readouterr()
        _READ.clear()
        assert main(["search", str(output), "the river bank of 7", "--k=3", "--json"]) == 0
        assert sorted(name for name in _READ if name in parts) == parts
        hits = json.loads(capsys.readouterr().out)["hits"]
        assert hits[0]["text"] == "the river bank of 7"
