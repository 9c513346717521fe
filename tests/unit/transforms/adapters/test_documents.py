"""EmbedDocuments in pipelines of other people: vectors come, nothing else changes, none is lost."""

import json
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import NamedTuple

import apache_beam as beam
import numpy as np
import pandas as pd
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from hypothesis import given
from hypothesis import strategies as st

import bert_embed
from bert_embed.model import Request
from bert_embed.transforms import EmbedDocuments
from bert_embed.transforms.adapters.embed_documents import document, placed
from bert_embed.transforms.adapters.text_model import (
    Document,
    batch_weight,
    text_model_settings,
)
from examples import embed_documents
from tests.support.beam import collect
from tests.support.models.heads import write_splade
from tests.support.models.sentence_transformers import write_sentence_transformers
from tests.support.rounding import MINILM, assert_near


class Named(NamedTuple):
    text: str
    number: int | None


@dataclass
class Article:
    text: str
    number: int


def vectors(records, column="embedding"):
    return np.array([record[column] for record in records], np.float32)


def without(record, *columns):
    return {name: value for name, value in record.items() if name not in (columns or ["embedding"])}


def test_records_come_back_with_the_vectors_that_the_encoder_gives(minilm, tmp_path):
    records = [
        {"id": 1, "text": "a river bank", "tags": ["x"]},
        {"text": "  The Bank\tof England ", "id": None},
        {"id": 3, "text": "a river bank"},
        {"id": 4, "text": "word " * 400},
    ]
    embedded, rejected = collect(tmp_path, records, EmbedDocuments(model="minilm", column="text"))
    assert rejected == []
    assert [without(record) for record in embedded] == records
    wanted = bert_embed.load("minilm").encode([record["text"] for record in records])
    assert_near(vectors(embedded), wanted, MINILM)
    assert all(type(number) is float for number in embedded[0]["embedding"])


def test_strings_rows_and_named_tuples_become_records(tiny_bundle):
    elements = ["one", beam.Row(text="two", number=2), Named("three", 3), Article("four", 4)]
    wanted = [{"text": "one"}]
    wanted += [{"text": text, "number": n} for n, text in enumerate(("two", "three", "four"), 2)]
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        texts = pipeline | beam.Create(elements, reshuffle=False)
        embedded, _ = texts | EmbedDocuments(tiny_bundle, as_numpy=True)
        assert_that(embedded | beam.Map(without), equal_to(wanted))
        arrays = embedded | "Arrays" >> beam.Map(lambda record: record["embedding"])
        facts = arrays | beam.Map(lambda each: (str(each.dtype), each.shape, each.flags.owndata))
        # Which are not those of its batch.
        assert_that(facts, equal_to([("float32", (32,), True)] * 4), label="Equal arrays")


def test_settings_are_those_of_the_encoder(tiny_bundle, tmp_path):
    settings = {"layers": [-1, -2], "layer_combine": "concat", "normalize": True, "dim": 5}
    settings |= {"pooling": "max", "pool_special_tokens": False, "prompt": "find: "}
    settings |= {"max_seq_length": 8, "long_text": "window", "overlap": 2}
    texts = ["the bank of the river", "you could find two more long words", "a"]
    embedded, rejected = collect(tmp_path, [*texts, "\0"], EmbedDocuments(tiny_bundle, **settings))
    assert_near(vectors(embedded), bert_embed.load(tiny_bundle).encode(texts, **settings))
    assert [each["reason"] for each in rejected] == ["no tokens"]


def test_documents_get_the_prompt_that_the_model_names_for_them(tmp_path):
    prompts = {"query": "find: ", "document": "people: "}
    write_sentence_transformers(tmp_path / "model", prompts=prompts)
    model = str(tmp_path / "model")
    embedded, _ = collect(tmp_path, ["two words"], EmbedDocuments(model))
    assert_near(vectors(embedded), bert_embed.load(model).encode_document(["two words"]))


def test_pairs_are_embedded_together_and_lone_texts_alone(tiny_bundle, tmp_path):
    seconds = ["people", None, " \n", 5]
    records = [{"q": "who are you"}, *({"q": "who are you", "a": each} for each in seconds)]
    transform = EmbedDocuments(tiny_bundle, "q", "both", text_b_column="a")
    embedded, rejected = collect(tmp_path, records, transform)
    encoder = bert_embed.load(tiny_bundle)
    alone = encoder.encode("who are you")
    wanted = [alone, encoder.encode(["who are you"], ["people"])[0], alone, alone]
    assert_near(vectors(embedded, "both"), wanted)
    assert [without(record, "both") for record in embedded] == records[:4]
    assert [(each["reason"], each["record"]) for each in rejected] == [
        ("second text is not a string", records[4])
    ]


def test_what_is_no_document_is_rejected_and_takes_nobody_along(poisoned_bundle, tmp_path):
    bad = {
        "missing text": {"id": 1},
        "text is not a string": {"text": 7},
        "empty text": {"text": " \n"},
        "no tokens": {"text": "\0", "id": 9},
        "not a string or a record": 12,
        "text too long": {"text": "a " * 80},
        "vector is not finite": {"text": "a vault"},
    }
    elements = ["first", *bad.values(), b"bytes", Named, "last"]
    transform = EmbedDocuments(poisoned_bundle, long_text="reject")
    embedded, rejected = collect(tmp_path, elements, transform)
    assert [record["text"] for record in embedded] == ["first", "last"]
    assert_near(vectors(embedded), bert_embed.load(poisoned_bundle).encode(["first", "last"]))
    found = [(each["reason"], each["record"]) for each in rejected]
    others = [("not a string or a record", element) for element in (b"bytes", Named)]
    assert found == [*bad.items(), *others]
    stages = [*["input"] * 3, "tokenize", "input", "tokenize", "infer"]
    assert [each["stage"] for each in rejected] == [*stages, "input", "input"]


@pytest.mark.parametrize(
    "value", [None, float("nan"), np.float32("nan"), Decimal("snan"), pd.NA, pd.NaT], ids=repr
)
def test_a_value_that_a_library_has_for_none_is_missing(value):
    for element in ({"text": value}, value):
        assert document(element, 0, "text").rejection.reason == "missing text"
    assert document({"text": "one", "second": value}, 0, "text", "second").texts_b == ("",)


def test_a_second_text_that_no_utf8_has_is_named_so():
    made = document({"text": "one", "second": "\ud800"}, 0, "text", "second")
    assert made.rejection.reason == "second text is not valid Unicode"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"large_model": True, "max_seq_length": 34},
        {"long_text": "window"},
    ],
    ids=["alone", "large", "windows"],
)
def test_metrics_count_what_became_of_the_documents(tiny_bundle, settings):
    texts = ["one", "a " * 80, " ", "", "\0", "a " * 80, "a " * 81, 7]
    pipeline = beam.Pipeline(runner="FnApiRunner")
    _ = pipeline | beam.Create(texts, reshuffle=False) | EmbedDocuments(tiny_bundle, **settings)
    result = pipeline.run()
    result.wait_until_finish()
    counters = result.metrics().query(MetricsFilter().with_namespace("bert_embed"))["counters"]
    assert {counter.key.metric.name: counter.committed for counter in counters} == {
        **{"documents": 4, "rejected": 4, "rejected_empty_text": 2, "rejected_no_tokens": 1},
        "rejected_not_a_string_or_a_record": 1,
        "truncated": 0 if "long_text" in settings else 3,  # windows take all of a text
    }


def test_cuts_are_logged_once_a_process_unless_they_were_asked_for(tiny_bundle, tmp_path, caplog):
    for settings in ({"long_text": "truncate"}, {}, {}):
        transform = EmbedDocuments(tiny_bundle, max_seq_length=33, **settings)
        collect(tmp_path, ["one", "a " * 80], transform)
    (message,) = (text for text in caplog.messages if "cut at" in text)
    assert message.startswith(
        "1 of 2 texts was cut at 33 tokens: long_text='window' takes all of a text, max_seq_length "
        "up to 64 keeps more of it, long_text='truncate' cuts without this warning; this batch is"
    )


class _Shuffled(EmbedDocuments):
    """Elements are encoded in a shuffle."""

    def expand(self, elements):
        both = enumerate(super().expand(elements))
        return [each | f"{number}" >> beam.Reshuffle() for number, each in both]


def test_a_field_whose_name_is_no_string_costs_its_record_alone(tiny_bundle, tmp_path):
    bad = [{"text": "a text", name: "value"} for name in (2, None, ("a", "b"))]
    elements = [{"text": "first"}, *bad, {"text": "last"}]
    embedded, rejected = collect(tmp_path, elements, _Shuffled(tiny_bundle))
    assert sorted(record["text"] for record in embedded) == ["first", "last"]
    why = [(each["reason"], each["record"]["text"]) for each in rejected]
    assert why == [("a field's name is not a string", "a text")] * 3


def test_the_two_collections_have_names_and_places_and_are_not_taken_for_one(tiny_bundle):
    found = beam.Pipeline() | beam.Create(["the bank"]) | EmbedDocuments(tiny_bundle)
    embedded, rejected = found
    assert isinstance(found, dict), "Beam YAML takes names from a dict alone"
    assert dict(found.items()) == {"embedded": embedded, "rejected": rejected}
    assert (found[0], found[-1], found["embedded"]) == (embedded, rejected, embedded)
    assert (found.embedded, found.rejected, len(found)) == (embedded, rejected, 2)
    with pytest.raises(TypeError, match="gives two collections, apply a transform to one of them"):
        found | beam.Map(print)
    assert found.embedded | beam.Map(print)
    embedded, rejected = ["the bank", " "] | EmbedDocuments(tiny_bundle)
    assert [record["text"] for record in embedded] == ["the bank"]
    assert [record["reason"] for record in rejected] == ["empty text"]


def test_pairs_keep_their_key(tiny_bundle, tmp_path):
    pairs = [("a", "one"), (2, {"text": "two", "id": 7}), ((3, 4), Named("three", 3)), (5, " ")]
    embedded, rejected = collect(tmp_path, pairs, EmbedDocuments(tiny_bundle))
    records = [{"text": "one"}, {"text": "two", "id": 7}, {"text": "three", "number": 3}]
    found = [(key, without(record)) for key, record in embedded]
    assert found == list(zip(("a", 2, (3, 4)), records, strict=True))
    wanted = bert_embed.load(tiny_bundle).encode(["one", "two", "three"])
    assert_near(vectors([record for _, record in embedded]), wanted)
    assert rejected == [{"stage": "input", "reason": "empty text", "record": (5, " ")}]


def test_typed_elements_become_typed_rows(tiny_bundle):
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        both = [Named("one", 5), Named(" ", None)]
        rows = pipeline | beam.Create(both).with_output_types(Named)
        embedded, rejected = rows | EmbedDocuments(tiny_bundle, as_rows=True)
        plain = embedded | beam.Select("text", "number", width=lambda row: len(row.embedding))
        assert_that(plain, equal_to([beam.Row(text="one", number=5, width=32)]))
        # Behind a shuffle, where the schema encodes them.
        shuffled = embedded | beam.Reshuffle() | beam.Map(lambda row: type(row.embedding[0]))
        assert_that(shuffled, equal_to([float]), label="Shuffled")
        why = rejected | "Why" >> beam.Select("reason", text=lambda row: row.record.text)
        assert_that(why, equal_to([beam.Row(reason="empty text", text=" ")]), label="Why")
        articles = pipeline | "Class" >> beam.Create([Article("one", 5)]).with_output_types(Article)
        found = (articles | "Embed" >> EmbedDocuments(tiny_bundle, as_rows=True)).embedded
        number = found | "Number" >> beam.Select("number")
        assert_that(number, equal_to([beam.Row(number=5)]), label="Classes")
    types = dict(embedded.element_type._fields)
    assert (types["text"], types["number"]) == (str, int | None)


def test_rows_need_elements_with_a_schema(tiny_bundle):
    for element, message in (
        ({"text": "the bank"}, "as_rows requires elements with a schema"),
        (("key", Named("the bank", 1)), "give only the values$"),
    ):
        with pytest.raises(ValueError, match=message):
            _ = beam.Pipeline() | beam.Create([element]) | EmbedDocuments(tiny_bundle, as_rows=True)


def test_a_broken_model_fails_the_pipeline_and_names_no_place_of_a_run(poisoned_bundle, tmp_path):
    with pytest.raises(Exception, match="the model failed on all of 2 rows") as failure:
        collect(tmp_path, ["a vault", "the vault", "a vault"], EmbedDocuments(poisoned_bundle))
    assert "block 0" not in str(failure.value)


def test_another_machine_finds_the_model_by_its_name(tiny_bundle):
    here = text_model_settings(tiny_bundle, dim=4)
    elsewhere = replace(here, bundle="/only/on/the/first/machine")
    done = elsewhere.load_embedder().run(Request(elsewhere.text_spec, texts={"texts": ["one"]}))
    assert done.rejected == {}
    assert_near(done.sentences, bert_embed.load(tiny_bundle, dim=4).encode(["one"]))


anything = st.one_of(
    st.none(), st.integers(), st.binary(), st.text(), st.text(st.characters(categories=["Cs"]))
)


@given(st.one_of(anything, st.dictionaries(st.sampled_from(["text", "b", "embedding"]), anything)))
def test_any_element_ends_once_and_as_it_was(element):
    made = document(element, 7, "text", "b")
    if made.rejection is None:
        vector = np.arange(3, dtype=np.float32)
        made = Document(made.element, 7, made.texts, made.texts_b, ({"dense": vector},))
        tag, record = placed(made, "text", "embedding")
        fields = element if isinstance(element, dict) else {"text": element}
        assert tag == "embedded"
        assert record == {**fields, "embedding": [0.0, 1.0, 2.0]}
        record["text"].encode()
    else:
        tag, record = placed(made, "text", "embedding")
        assert tag == "rejected"
        assert record["record"] is element


def test_no_document_outweighs_a_batch():
    """BatchElements would put an empty batch before it."""
    weights = [batch_weight(Document({}, 0, ("x" * size,))) for size in (1, 5000, 10**7)]
    assert weights == [1, 4, 1024]
    assert batch_weight(Document({}, 0)) == 1


def test_the_example_runs_as_it_stands(minilm, tmp_path):
    (tmp_path / "in.txt").write_text("one line\n\nanother\n", encoding="utf-8")
    embed_documents.main(str(tmp_path / "in.txt"), str(tmp_path / "out"), [])
    embedded = [json.loads(line) for line in (tmp_path / "out-00000-of-00001.jsonl").open()]
    assert [record["text"] for record in embedded] == ["one line", "another"]
    wanted = bert_embed.load("minilm").encode(["one line", "another"])
    assert_near(vectors(embedded), wanted, MINILM)
    [rejected] = (tmp_path / "out.rejected-00000-of-00001.jsonl").read_text("utf-8").splitlines()
    assert json.loads(rejected) == {"stage": "input", "reason": "empty text", "record": ""}


@pytest.fixture(scope="module")
def splade(model_of):
    return model_of(write_splade, pooling_strategy="max", activation_function="relu").path


def test_the_kinds_that_are_named_come_together(splade, tmp_path):
    texts = ["the bank", "\0", "money bank"]
    transform = EmbedDocuments(splade, vectors=["dense", "sparse"], top_k=4)
    embedded, rejected = collect(tmp_path, texts, transform)
    assert [row["record"] for row in rejected] == ["\0"]
    encoder = bert_embed.load(splade)
    found = {row["text"]: row["embedding"] for row in embedded}
    assert found.keys() == {texts[0], texts[2]}
    for text, kinds in found.items():
        wanted = encoder.encode(text, top_k=4, kind="sparse")
        assert kinds["sparse"]["indices"] == wanted.indices.tolist()
        assert_near(kinds["sparse"]["values"], wanted.values)
        assert_near(kinds["dense"], encoder.encode(text, kind="dense"))


def test_pairs_have_no_sparse_vectors(splade):
    for transform in (EmbedDocuments, bert_embed.BertModelHandler):
        with pytest.raises(ValueError, match="text_b_column is for pairs, which have no sparse ve"):
            transform(splade, text_b_column="b")


@pytest.mark.parametrize("kinds", [["sparse"], ["dense", "sparse"]], ids=str)
def test_rows_have_every_kind_of_vector(splade, kinds):
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        texts = pipeline | beam.Create(["the bank"])
        embedded, _ = texts | EmbedDocuments(splade, vectors=kinds, top_k=2, as_rows=True)
        found = embedded | beam.Reshuffle() | beam.Map(_number_of_weights)
        assert_that(found, equal_to([2]))


def _number_of_weights(row):
    return len(getattr(row.embedding, "sparse", row.embedding).values)


def run(elements, model, windows=None):
    with beam.Pipeline() as pipeline:
        made = pipeline | beam.Create(elements) | beam.Map(lambda one: TimestampedValue(one, 1))
        made = made if windows is None else made | beam.WindowInto(windows)
        _ = made | EmbedDocuments(model)


@pytest.mark.parametrize("windows", [None, FixedWindows(1)])
def test_a_job_without_the_column_fails(tiny_bundle, windows):
    message = "no element has the column text, all are rejected: it has body, id"
    with pytest.raises(Exception, match=message):
        run([{"body": "a river", "id": 1}, {"body": "a bank", "id": 2}], tiny_bundle, windows)


@pytest.mark.parametrize(
    "elements", [[], ["a river"], [{"text": None}], [{"body": 1}, {"text": "b"}]]
)
def test_any_other_job_ends_well(tiny_bundle, elements):
    run(elements, tiny_bundle)
