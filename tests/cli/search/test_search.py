"""Search finds what the vectors say is near, and shows the documents."""

import math
import sys

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bert_embed
from tests.support.command import embed, write_json
from tests.support.outputs import content

TEXTS = {
    "call": "Objects with a __call__ method can be called like functions.",
    "try": "The finally clause is executed on the way out in any case.",
    "bread": "Knead the dough for ten minutes and let it rise.",
    "sea": "The ship left the harbour at dawn.",
}
LOAF, BOAT = "how do I bake a loaf", "a boat on the ocean"


@pytest.fixture(scope="module")
def output(minilm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    texts = ({"id": name, "text": text} for name, text in TEXTS.items())
    source = write_json(folder / "in.jsonl", *texts)
    assert embed(folder / "out", "minilm", source, block_bytes=100) == 0
    return folder / "out"


def hits_of(printed):
    """The lines of JSON, one a query."""
    return [orjson.loads(line) for line in printed.out.splitlines()]


def test_the_command_prints_rank_score_and_text(output, command):
    """The query comes last."""
    for words in ([output, "baking", "--k=1"], ["--k=1", output, "baking"]):
        printed = command("search", *words).out
        assert all(part in printed for part in ("1. ", "bread", TEXTS["bread"]))
    for words, message in (
        ([output, "two", "words"], "two is not the output of a run; the query comes last"),
        ([output, output, "--k=1"], "is a run's output: give a query behind it"),
        ([f"{output}/embeddings/", "baking"], f"did you mean {output}?"),
    ):
        assert message in command("search", *words, code=2).err


def test_queries_of_a_file_give_the_hits_of_each(output, tmp_path, command, tiny_bundle):
    path = tmp_path / "queries.txt"
    words = [output, f"--queries={path}", "--k=1"]
    path.write_text(f"{LOAF}\n{BOAT}\n\n")
    printed = command("search", *words)
    lines = printed.out.splitlines()
    asked = [line for line in lines if line.startswith("query")]
    assert asked == [f"query 1: {LOAF}", f"query 2: {BOAT}"]
    found = [name for line in lines for name in TEXTS if line.endswith(f"  {name}")]
    assert found == ["bread", "sea"]
    assert "note: 1 blank line of" in printed.err
    found = hits_of(command("search", *words[:2], "--k=2", "--json"))
    assert [line["query"] for line in found] == [LOAF, BOAT]
    wanted = bert_embed.nearest(str(output), [LOAF, BOAT], k=2)
    for line, hits in zip(found, wanted, strict=True):
        assert [hit["score"] for hit in line["hits"]] == [hit.score for hit in hits]
    first = found[1]["hits"][0]
    assert (first["rank"], first["id"], first["text"]) == (1, "sea", TEXTS["sea"])
    assert first["output"] == str(output)
    assert (output / first["file"]).is_file()
    assert "start" not in first
    path.write_text("bread\u2028and\x0cbutter\r\nsea\r\n", newline="")
    asked = [line["query"] for line in hits_of(command("search", *words, "--json"))]
    assert asked == ["bread\u2028and\x0cbutter", "sea"]
    path.write_text(f"a boat\n{'a boat ' * 200}\n")
    assert "note: 1 of 2 queries is cut at 256 tokens" in command("search", *words).err
    message = "a is not the output of a run; the query comes last"
    assert message in command("search", *words, "a", code=2).err
    path.write_text("\n")
    for more, message in (
        (words[1:], "must hold one query a line, but it is empty"),
        ([f"--queries={tmp_path}/"], f"error: --queries {tmp_path}/ is a folder, give a file"),
        ([f"--queries={tmp_path}/none.txt"], "none.txt does not exist"),
        (["x", f"--model={tiny_bundle}"], "come from"),
    ):
        assert message in command("search", output, *more, code=2).err


@pytest.mark.parametrize(("keep_text", "output_format"), [(False, "parquet"), (True, "jsonl")])
def test_hits_show_the_extra_columns(run, command, keep_text, output_format):
    lines = [
        {"id": "a", "text": "the bank", "title": "Money", "year": 1999},
        {"id": "b", "text": "a river", "title": None, "year": 2001},
    ]
    flags = {"extra_columns": "title,year:int64", "keep_text": keep_text}
    flags["output_format"] = output_format
    output = run({"in.jsonl": lines}, **flags)
    printed = command("search", output, "the bank", "--k=2").out
    assert "a\n             title: Money; year: 1999\n             the bank\n" in printed
    assert "title: None; year: 2001\n             a river\n" in printed
    wanted = [{"title": "Money", "year": 1999}, {"title": None, "year": 2001}]
    [line] = hits_of(command("search", output, "the bank", "--json"))
    assert [hit["columns"] for hit in line["hits"]] == wanted
    assert [hit.columns for hit in bert_embed.nearest(str(output), ["the bank"], k=2)[0]] == wanted


def test_an_extra_column_may_be_named_text(run, command):
    lines = [{"body": "the bank", "text": 7}]
    output = run({"in.jsonl": lines}, text_column="body", extra_columns="text:int64")
    [line] = hits_of(command("search", output, "the bank", "--json"))
    assert (line["hits"][0]["text"], line["hits"][0]["columns"]) == ("the bank", {"text": 7})
    assert content(output)["documents"]["texts"] == ["the bank"]


def test_columns_that_json_or_python_cannot_hold_are_shown(tmp_path, run, command):
    """NaN, nanoseconds without pandas, and the year 10000; by the report, too."""
    table = {"text": ["the bank"], "none": [math.nan], "fine": pa.array([1], pa.time64("ns"))}
    last = 253402300799  # the last second of the year 9999
    table["last"] = pa.array([last], pa.timestamp("s", "Asia/Tokyo"))
    table["beyond"] = pa.array([last + 1], pa.timestamp("s"))
    pq.write_table(pa.table(table), tmp_path / "in.parquet")
    output = run(tmp_path / "in.parquet", extra_columns="none,fine,last,beyond")
    [line] = hits_of(command("search", output, "the bank", "--json"))
    columns = line["hits"][0]["columns"]
    wanted = ["00:00:00", "9999-12-31 23:59:59+00:00", "10000-01-01 00:00:00.000"]
    assert [columns[name] for name in ("none", "fine", "beyond")] == [None, wanted[0], wanted[2]]
    labels = [one["labels"] for one in content(output)["documents"]["columns"]]
    assert labels[1:] == [[label] for label in wanted]


def test_a_query_without_a_vector_is_one_sentence(poisoned_bundle, run, command):
    said = command("search", run({"in.txt": "the bank\n"}, model=poisoned_bundle), "vault", code=1)
    assert said.out == ""
    assert said.err == "error: 1 text failed, the first is 0: vector is not finite\n"


def test_several_outputs_are_searched_together(run, command):
    """Of both formats; what is named twice is searched once."""
    lines = [{"id": name, "text": text} for name, text in (("a", "the bank"), ("b", "a river"))]
    one = run({"in.jsonl": lines}, "one")
    other = run({"more.jsonl": [lines[0] | {"id": "c"}]}, "days/monday", output_format="jsonl")
    alone = [hit for each in (one, other) for hit in bert_embed.nearest(str(each), ["bank"], 9)[0]]
    (hits,) = bert_embed.nearest([str(one), str(other)], ["bank"], k=9)
    assert hits == sorted(alone, key=lambda hit: -hit.score)
    days = other.parent
    for named in ([other], [days], [days / "mon*"], [one, days / "mon*"]):
        printed = command("search", one, *named, "the bank", "--k=2").out.splitlines()
        assert {tuple(line.split()[2:]) for line in printed if line.endswith(")")} == {
            ("a", f"({one})"),
            ("c", f"({other})"),
        }
    printed = command("search", one, f"{one}/../on*", "the bank", "--k=1").out.splitlines()
    assert printed[0].endswith("  a")
    cls = run({"in.jsonl": lines}, "cls", pooling="cls")
    message = "has vectors of other layers, pooling or dim than"
    assert message in command("search", one, cls, "bank", code=2).err


@pytest.mark.parametrize("output_format", ["parquet", "jsonl", "tfrecord"])
def test_kept_texts_are_shown_though_the_input_is_gone(tmp_path, run, output_format, command):
    texts = ("the bank", "of the river", "of the river bank")
    source = {"in.jsonl": [{"id": "one id", "text": text} for text in texts]}
    flags = {"keep_text": True, "output_format": output_format, "id_column": "id"}
    outputs = [run(source, "whole", **flags), run(source, "chunks", chunk="sentence", **flags)]
    (tmp_path / "in.jsonl").unlink()
    for output in outputs:
        printed = command("search", output, "the bank", "--k=3", "--json")
        [line] = hits_of(printed)
        assert line["hits"][0]["text"] == "the bank"
        assert sorted(hit["text"] for hit in line["hits"]) == sorted(texts)
        assert "no texts" not in printed.err


def test_why_no_texts_are_shown(run, tiny_bundle, command):
    texts = [{"id": "a", "text": text} for text in ("the bank", "of the river")]
    output = run({"in.jsonl": texts}, id_column="id")

    def reason():
        printed = command("search", output, "the bank", f"--model={tiny_bundle}")
        assert "the bank" not in printed.out
        [line] = [line for line in printed.err.splitlines() if "no texts of" in line]
        return line.partition("shown: ")[2]

    assert reason() == "several documents of a part have these ids"
    run.written({"in.jsonl": texts[:1]})
    assert reason() == "the run's input has changed or is missing; `--keep_text` keeps texts"
    assert bert_embed.nearest(str(output), ["the bank"], k=1)[0][0].text is None


_READ: list[str] = []


def test_each_part_is_opened_once(run, command):
    """To compare its checksum, score its vectors, and read the ids of its hits, if it has some."""
    lines = {"in.txt": "".join(f"the river bank of {number}\n" for number in range(60))}
    sys.addaudithook(lambda event, arguments: event == "open" and _READ.append(str(arguments[0])))
    for output_format in ("parquet", "jsonl", "tfrecord"):
        flags = {"output_format": output_format, "block_bytes": 200, "normalize": True}
        output = run(lines, output_format, **flags)
        parts = sorted(map(str, (output / "embeddings").iterdir()))
        assert len(parts) > 4
        _READ.clear()
        [line] = hits_of(command("search", output, "the river bank of 7", "--k=3", "--json"))
        assert sorted(name for name in _READ if name in parts) == parts
        assert line["hits"][0]["text"] == "the river bank of 7"


LONG = "the people could find the two banks of the river and the money of a robber in the vault"
LAW = "seven stars"


@pytest.mark.parametrize(
    ("output_format", "dtype", "within"),
    [("parquet", "float32", 1e-5), ("jsonl", "int8", 0.01)],
)
def test_hits_are_windows_of_texts(
    tmp_path, run, command, tiny_bundle, output_format, dtype, within
):
    flags = {"long_text": "windows", "max_seq_length": 14, "overlap": 2, "output_dtype": dtype}
    output = run({"in.txt": f"{LONG}\n{LAW}\n"}, output_format=output_format, **flags)
    query = "the money of a robber in the vault"
    hits, encoder = bert_embed.nearest(str(output), [query], k=9)[0], bert_embed.load(tiny_bundle)
    assert [hit.id for hit in hits].count(f"{tmp_path}/in.txt:0") == len(hits) - 1 > 1
    texts = {f"{tmp_path}/in.txt:0": LONG, f"{tmp_path}/in.txt:{len(LONG) + 1}": LAW}
    for hit in hits:
        assert hit.text == texts[hit.id][hit.start : hit.stop]
        window, asked = encoder.encode([hit.text, query], normalize=True)
        assert abs(hit.score - window @ asked) < within
    printed = command("search", output, query, "--k", "1").out
    assert f"{hits[0].id} {hits[0].start}:{hits[0].stop}" in printed
    assert hits[0].text in printed


def test_documents_of_one_id_keep_their_own_texts(run):
    files = {"in/a.csv": "id,text\n1,the money\n2,two banks of the river\n"}
    files["in/b.csv"] = "id,text\n1,a river and its banks\n2,seven stars\n"
    output = run(files, block_bytes=30)  # in one part it cannot be told which of two texts is meant
    texts = [hit.text for hit in bert_embed.nearest(str(output), ["seven stars"], k=4)[0]]
    assert texts[0] == "seven stars"
    assert None not in texts


def test_the_second_text_of_a_pair_is_not_shown(run):
    lines = [{"text": "the money of a robber", "b": "in the vault"}, {"text": "a river", "b": "of"}]
    output = run({"in.jsonl": lines}, text_b_column="b")
    hits = bert_embed.nearest(str(output), ["the money"], k=2)[0]
    assert {hit.text for hit in hits} == {"the money of a robber", "a river"}
