"""The TFRecord stage: text to examples, examples to the very vectors that texts give directly."""

import gzip
import json
import shutil

import pytest
import tensorflow as tf

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.blocks import example, framed
from tests.support.command import (
    Hold,
    block_records,
    data_files,
    flags_of,
    record,
    rejected,
    rows,
    stray,
    vectors,
    write_json,
)
from tests.support.daily import some_texts
from tests.support.models.tiny import write_tiny_huggingface
from tests.support.outputs import contents
from tests.support.rounding import assert_near

pytestmark = pytest.mark.slow
LONG = " ".join(["the bank of the river", "and the money of the bank"] * 9)


def tokenize(output, model, *inputs, **flags):
    flags = {"max_rejected": "99%"} | flags
    return main(["tokenize", *flags_of(output, model, *inputs, **flags)])


def all_files(folder):
    """Every file of vectors by its name."""
    kinds = ("embeddings", "windows", "tokens", "words")
    found = [path for kind in kinds for path in data_files(folder, kind)]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


@pytest.fixture
def mixed(tmp_path):
    """Texts of every kind: plain, empty of tokens, long, doubled, words of their own."""
    return write_json(
        tmp_path / "in.jsonl",
        {"id": 1, "text": "the river, money bank", "b": "of"},
        {"id": 2, "text": ["of", "", "banks", "\u200b"], "b": ""},
        {"id": "ü", "text": LONG, "b": "money bank"},
        {"id": 4, "text": "the river, money bank", "b": "of"},
        {"id": 5, "text": "\u200b", "b": ""},
        {"id": 6, "text": "Ünïcode \U0001f600 bank", "b": "a"},
        {"id": 7},
    )


EVERY = "sentence,token,word"


@pytest.mark.parametrize(
    ("texts", "vectors_of"),
    [
        ({"max_seq_length": 9, "granularity": "word,token"}, {"granularity": "token,word"}),
        ({"text_b_column": "b", "max_seq_length": 20}, {"granularity": "sentence,token"}),
        ({"long_text": "reject", "max_seq_length": 20}, {}),
        ({"long_text": "window", "max_seq_length": 12}, {"pooling": "mean,cls"}),
        (
            {"long_text": "window", "max_seq_length": 16, "overlap": 5, "prompt": "of the "}
            | {"granularity": EVERY},
            {"granularity": EVERY, "long_text": "windows"},
        ),
    ],
    ids=["cut", "pairs", "reject", "windows", "each"],
)
def test_examples_give_the_vectors_of_texts(tmp_path, tiny_bundle, run, mixed, texts, vectors_of):
    """Whole files are equal, byte for byte, to those of the direct way."""
    examples = tmp_path / "examples"
    assert tokenize(examples, tiny_bundle, mixed, **texts) == 0
    output, direct = run(examples, **vectors_of), run(mixed, "direct", **(texts | vectors_of))
    assert all_files(output) == all_files(direct) != {}
    made, read, wanted = map(record, (examples, output, direct))
    assert made["counts"]["records"] == 7
    assert made["counts"]["rejected"] == len(rejected(examples)) >= 2
    assert read["counts"]["records"] == read["counts"]["embedded"] == made["counts"]["embedded"]
    for name in ("tokens", "full_tokens", "computed_tokens", "lengths"):
        assert read[name] == wanted[name]
    if not read["counts"]["truncated"]:
        assert read["unknown"]["tokens"] == wanted["unknown"]["tokens"] > 0
    assert read["counts"]["truncated"] == wanted["counts"]["truncated"]


def test_a_block_of_examples_is_left_out_on_request(tmp_path, tiny_bundle, run, mixed):
    examples = tmp_path / "examples"
    assert tokenize(examples, tiny_bundle, mixed, block_bytes=40) == 0
    output = run(examples, skip_blocks="1", max_rejected="99%")
    left_out = record(output)["rejected"]["block skipped on request"]
    assert left_out == len(rejected(output)) > 0
    assert record(output)["counts"]["embedded"] == record(examples)["counts"]["embedded"] - left_out


def test_windows_are_no_documents_where_their_settings_are_lost(tmp_path, tiny_bundle, run):
    source = write_json(tmp_path / "in.jsonl", {"id": 1, "text": "bank"}, {"id": 2, "text": LONG})
    flags = {"long_text": "window", "max_seq_length": 12}
    assert tokenize(tmp_path / "examples", tiny_bundle, source, **flags) == 0
    (path,) = data_files(tmp_path / "examples", "examples")
    copy = shutil.copy(path, tmp_path / "copy.tfrecord")
    run(copy, code=1)
    assert f"{copy}: the example at byte" in run.err
    assert "windows of a text, and no examples.json says so" in run.err
    shutil.copy(tmp_path / "examples/examples.json", tmp_path)
    assert record(run(copy, "joined"))["counts"]["embedded"] == 2


def test_a_plain_reader_sees_rows_of_the_model(plain_examples):
    (path,) = data_files(plain_examples, "examples")
    read = (tf.train.Example.FromString(one.numpy()) for one in tf.data.TFRecordDataset(str(path)))
    first, second = (example.features.feature for example in read)
    numbers = {name: list(feature.int64_list.value) for name, feature in first.items()}
    assert first["id"].bytes_list.value == [f"{plain_examples.parent}/in.txt:0".encode()]
    assert len(numbers["input_ids"]) == 4
    assert (numbers["input_mask"], numbers["segment_ids"]) == ([1] * 4, [0] * 4)
    assert (numbers["starts"], numbers["stops"]) == ([-1, 0, 4, -1], [-1, 3, 8, -1])
    assert (numbers["truncated"], second["num_tokens"].int64_list.value) == ([0], [5])
    settings = json.loads((plain_examples / "examples.json").read_text())
    assert first["tokenizer"].bytes_list.value == [settings["tokenizer"].encode()]
    names = ["_state", "examples", "examples.json", "run.json"]
    assert sorted(path.name for path in plain_examples.iterdir()) == names
    assert path.name == "part-0000000-00000.tfrecord"


@pytest.fixture(scope="module")
def plain_examples(tmp_path_factory, tiny_bundle):
    folder = tmp_path_factory.mktemp("plain")
    (folder / "in.txt").write_text("the bank\nriver of money\n")
    assert tokenize(folder / "examples", tiny_bundle, folder / "in.txt") == 0
    return folder / "examples"


def test_another_tokenizer_is_refused_by_name(tmp_path, run, model_of, plain_examples):
    other_model = model_of(write_tiny_huggingface, cased=True).path
    examples = shutil.copytree(plain_examples, tmp_path / "examples")
    run.refused(examples, "has another tokenizer", model=other_model)
    (examples / "examples.json").unlink()  # each example tells it, too
    flags = {"input_format": "tfrecord", "overwrite": True, "model": other_model}
    for place in (examples, examples / "examples" / "*.tfrecord"):
        run(place, code=1, **flags)
        said = "part-0000000-00000.tfrecord: the example at byte 0 comes from another"
        assert said in run.err


def test_what_examples_cannot_give_is_refused(tmp_path, tiny_bundle, run, plain_examples, command):
    for flags, message in (
        ({"max_seq_length": 7}, "--max_seq_length 7 conflicts with these examples"),
        ({"prompt": "other"}, "--prompt other conflicts with these examples, tokenized with '"),
        ({"long_text": "window"}, "--long_text window conflicts"),
        ({"granularity": "word"}, "--granularity word is not available for these examples"),
        ({"text_column": "a"}, "--text_column is for texts"),
        ({"output_format": "tfrecord", "granularity": "token"}, "--output_format tfrecord is for"),
    ):
        run.refused(plain_examples, message, **flags)
    (two,) = run.written({"in.txt": "the bank\nriver of money\n"})
    run.refused([plain_examples, two], f"of examples, as {plain_examples}")
    words = ["tokenize", *flags_of(tmp_path / "out", tiny_bundle, plain_examples)]
    assert "already tok" in command(*words, code=2).err
    said = command("search", plain_examples, "bank", code=2).err
    assert "holds examples, no vectors" in said
    said = command("tokenize", *flags_of(tmp_path / "cut", tiny_bundle, two, max_seq_length=3)).out
    assert "2 records: 2 tokenized, 0 rejected" in said
    run.refused([plain_examples, tmp_path / "cut"], "which differ in max_seq_length")


LINES = 400


def test_a_killed_tokenize_continues_and_so_does_its_run(tmp_path, tiny_bundle, run, command):
    (corpus,) = run.written({"in.txt": "\n".join(some_texts(LINES).values())})
    whole, output = tmp_path / "whole", tmp_path / "examples"
    small = {"block_bytes": 700}
    assert tokenize(whole, tiny_bundle, corpus, **small) == 0
    Hold(tmp_path / "hold", 2).kill("tokenize", *flags_of(output, tiny_bundle, corpus, **small))
    finished = len(block_records(output))
    assert tokenize(output, tiny_bundle, corpus, **small) == 0
    assert contents(output / "examples") == contents(whole / "examples")
    assert record(output)["counts"]["embedded"] == LINES
    assert record(output)["counts"]["parts_reused"] == finished == 2
    assert stray(output) == []
    # A run over examples that lost a part computes that part alone.
    vectors = run(output, part_docs=30)
    before = all_files(vectors)
    (vectors / list(before)[2]).unlink()
    run(output, part_docs=30)
    assert all_files(vectors) == before
    counts = record(vectors)["counts"]
    assert counts["embedded"] == counts["records"] == LINES
    assert counts["parts_reused"] == counts["parts"] - 1
    words = ["tokenize", *flags_of(output, tiny_bundle, corpus, **small)]
    assert "nothing to do" in command(*words).out
    message = "holds another run (--max_seq_length changed since)"
    assert message in command(*words, max_seq_length=9, code=2).err
    command(*words[:-1], max_seq_length=9, overwrite=True)
    assert len(contents(output / "examples")) == 1


def written(path, records):
    """A TFRecord file of Examples, each a dict of lists of whole numbers."""
    data = framed(example(**features) for features in records)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_examples_of_other_programs(tmp_path, run, tiny_bundle):
    """`input_ids` are enough; filling is left out, a record's number is its id."""
    encoder = bert_embed.load(tiny_bundle)
    texts = ["the bank", "river of money", "the bank"]
    records = []
    for row in map(encoder.tokenizer.encode, texts):
        left = [0] * (9 - len(row))
        records.append({"input_ids": row + left, "input_mask": [1] * len(row) + left})
    source = written(tmp_path / "theirs.tfrecord.gz", records)
    output = run(source, granularity="sentence,token")
    assert rows(output)["id"] == [f"{source}:{n}" for n in range(3)]
    assert_near(vectors(output), encoder.encode(texts))
    assert rows(run(source, "one", limit=1))["id"] == [f"{source}:0"]
    run(source, "two", code=2, prompt="of ")
    ids = [7, -1, 2**62]
    records = [{"id": [each], "input_ids": [2, 9, 3]} for each in ids]
    path = written(tmp_path / "in.tfrecord", [*records, {"input_ids": [2, 10, 3]}])
    assert rows(run(path, "integers"))["id"] == [*map(str, ids), f"{path}:3"]


def test_padding_that_no_mask_leaves_out_is_told(tmp_path, run, tiny_bundle, caplog):
    pad = bert_embed.load(tiny_bundle).tokenizer.pad_id
    masked = {"input_ids": [2, 9, 3, pad], "input_mask": [1, 1, 1, 0]}
    run(written(tmp_path / "masked.tfrecord", [masked, {"input_ids": [2, 9, 3]}]))
    assert "input_mask" not in run.err + caplog.text
    bare = [{"input_ids": [2, 9, 3, pad]}] * 2
    path = written(tmp_path / "bare.tfrecord", [*bare, {"input_ids": [2, 9, 3]}])
    run(path, "two")
    assert f"{path}: 2 examples without input_mask end in [PAD]" in caplog.text
