"""Outputs of an earlier version are read, continued, verified, searched and not embedded again."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import bert_embed
from bert_embed.importers import import_model
from tests.support.command import block_records, parts_of, record, say_status
from tests.support.golden import GOLDEN, MODEL, PART_DOCS, PLACE, RUNS, TEXTS, flags
from tests.support.outputs import contents

DOCUMENTS = [json.loads(line) for line in TEXTS.read_text("utf-8").splitlines()]
IDS = [document["id"] for document in DOCUMENTS]
# What another machine, day or version may have otherwise.
OTHERWISE = {"started", "ended", "versions", "listing", "options", "written", "model"}
OTHERWISE |= {"stage_seconds", "elapsed_seconds", "documents_per_second", "tokens_per_second"}
OTHERWISE |= {"batches", "padded_tokens", "padding_share"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return import_model(str(MODEL), str(tmp_path_factory.mktemp("golden") / "bundle")).path


@pytest.fixture(params=RUNS)
def name(request):
    return request.param


@pytest.fixture
def copy(name, tmp_path):
    return Path(shutil.copytree(GOLDEN / name, tmp_path / name))


@pytest.fixture
def again(name, bundle, command):
    """Repeats the command of the run for an output; what it prints."""

    def run(output):
        with parts_of(PART_DOCS):
            return command("embed", *flags(name, bundle), output=output).out

    return run


def values(output):
    ids, vectors = bert_embed.read(output)
    return ids, vectors.astype(np.float64)


def assert_like_the_golden_one(output, name):
    ids, vectors = values(output)
    wanted, expected = values(GOLDEN / name)
    assert ids == wanted
    # float16 is what the TFRecords hold; other processors round otherwise.
    np.testing.assert_allclose(vectors, expected, atol=2e-3 if name == "tfrecord" else 1e-4)


def test_it_is_complete_verified_searched_and_stays_as_it_is(copy, name, bundle, again, command):
    before = contents(copy)
    assert f"nothing to do: {copy} holds this run, complete since" in again(copy)
    assert "all as written" in command("verify", copy).out
    query = DOCUMENTS[7]["text"]
    if name == "jsonl":  # which has a vector for each chunk
        rows = "".join(path.read_text("utf-8") for path in sorted(copy.glob("chunks/*")))
        chunks = [json.loads(row) for row in rows.splitlines()]
        query = query[: next(chunk["stop"] for chunk in chunks if chunk["id"] == "doc 7")]
    found = command("search", copy, query, model=bundle, json=True).out
    best = json.loads(found)["hits"][0]
    assert (best["id"], round(best["score"], 2)) == ("doc 7", 1.0)
    assert contents(copy) == before


def test_it_is_read_with_its_ids_in_order(copy, name, bundle):
    ids, vectors = values(copy)
    assert list(dict.fromkeys(ids)) == IDS
    if name != "parquet":
        return
    wanted = bert_embed.load(bundle).encode([each["text"] for each in DOCUMENTS], normalize=True)
    np.testing.assert_allclose(vectors, wanted, atol=1e-4)
    words = list(bert_embed.read_words(copy))
    assert [each.id for each in words] == IDS
    split = [each["text"].split() for each in DOCUMENTS]
    assert [len(each.vectors) for each in words] == list(map(len, split))


def test_a_kind_that_only_another_version_has_bars_no_other(tmp_path):
    copy = Path(shutil.copytree(GOLDEN / "parquet", tmp_path / "parquet"))
    stored = record(copy)

    def say(*granularity):
        vectors = stored["vectors"] | {"granularity": granularity}
        (copy / "run.json").write_text(json.dumps(stored | {"vectors": vectors}))

    say("sentence", "word", "syllable")
    assert bert_embed.read(copy)[0] == [each.id for each in bert_embed.read_words(copy)] == IDS
    others = "read them with bert_embed.read or bert_embed.read_words, or embed"
    with pytest.raises(bert_embed.InputError, match=f"word and syllable, none of token: {others}"):
        bert_embed.read_tokens(copy)
    say("syllable")
    with pytest.raises(bert_embed.InputError, match="of syllable, none of sentence: embed with gr"):
        bert_embed.read(copy)


def test_the_same_command_completes_what_is_left_of_it(copy, name, again, command):
    kept, *gone = block_records(copy)
    for path in gone[::2]:
        part = path.stem
        for file in copy.rglob(f"*/part-{part}.*"):
            file.unlink()
        path.unlink()
    there = {path: path.read_bytes() for path in copy.glob("*/part-*")}
    assert 0 < len(there) < len([*(GOLDEN / name).glob("*/part-*")])
    say_status(copy, "interrupted")
    assert "parts were there before" in again(copy)
    assert record(copy)["counts"]["parts_reused"] == 1 + len(gone) - len(gone[::2])
    assert {path: path.read_bytes() for path in there} == there
    assert_like_the_golden_one(copy, name)
    command("verify", copy)
    assert kept.exists()


def test_its_documents_are_not_embedded_again(copy, name, bundle, tmp_path, command):
    more = tmp_path / "more.jsonl"
    new = {"id": "new", "text": "a bank by the river", "tag": "t"}
    more.write_text(TEXTS.read_text("utf-8") + json.dumps(new) + "\n", "utf-8")
    words = [*RUNS[name], f"--input={more}", f"--model={bundle}", f"--output={tmp_path / 'out'}"]
    command("embed", *words, skip_existing=copy)
    counts = record(tmp_path / "out")["counts"]
    assert (counts["skipped"], counts["embedded"]) == (len(IDS), 1)


def test_a_run_now_writes_the_same_keys_and_values(name, again, tmp_path):
    again(tmp_path / "out")
    assert_like_the_golden_one(tmp_path / "out", name)
    now, golden = record(tmp_path / "out"), record(GOLDEN / name)
    least, most = now["norms"]
    assert 0 < least <= most < (1.0001 if name == "parquet" else 99)
    assert list(now) == list(golden)
    for key in golden.keys() - OTHERWISE:
        assert comparable(now[key]) == comparable(golden[key]), key
    assert now["model"]["fingerprint"] == golden["model"]["fingerprint"]
    assert {kind: each["rows"] for kind, each in now["written"].items()} == {
        kind: each["rows"] for kind, each in golden["written"].items()
    }
    assert now["options"].keys() == golden["options"].keys()
    assert now["input"]["paths"] == [str(PLACE / TEXTS.name)]


def comparable(value):
    """Where the model lay when it was imported is another place."""
    if not isinstance(value, dict):
        return value
    return {key: of_key for key, of_key in value.items() if key != "model_source"}
