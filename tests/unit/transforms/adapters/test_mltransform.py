"""BertEmbeddings within Beam's MLTransform: as its own embeddings, without their three losses."""

from dataclasses import replace

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.ml.rag.types import Content, EmbeddableItem, Embedding
from apache_beam.ml.transforms.base import MLTransform
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.transforms import window

import bert_embed
from bert_embed.transforms import BertEmbeddings
from bert_embed.transforms.adapters.beam_ml import item_document, placed
from tests.support.beam import collect
from tests.support.models.folder import imported
from tests.support.models.heads import write_splade
from tests.support.models.tiny import write_tiny_huggingface
from tests.support.rounding import assert_near

pytestmark = pytest.mark.slow


def written(folder, embeddings):
    return MLTransform(write_artifact_location=str(folder / "artifacts")).with_transform(embeddings)


def test_texts_stay_where_vectors_have_columns_of_their_own(tiny_bundle, tmp_path):
    records = [{"a": "one", "b": "two"}, {"a": "three", "b": "one", "more": [1]}]
    embeddings = BertEmbeddings(tiny_bundle, ["a", "b"], ["va", "vb"], pooling="cls", dim=4)
    [found] = collect(tmp_path, records, written(tmp_path, embeddings))
    assert [{k: v for k, v in row.items() if k not in ("va", "vb")} for row in found] == records
    encoder = bert_embed.load(tiny_bundle, pooling="cls", dim=4)
    assert_near([row["va"] for row in found], encoder.encode(["one", "three"]))
    assert_near([row["vb"] for row in found], encoder.encode(["two", "one"]))


def test_rows_and_items_of_rag_pipelines_keep_their_kind(tiny_bundle, tmp_path):
    rows = [beam.Row(text="one", number=1)]
    [found] = collect(tmp_path, rows, written(tmp_path, BertEmbeddings(tiny_bundle, ["text"])))
    wanted = bert_embed.load(tiny_bundle).encode(["one"])
    assert found[0].number == 1
    assert_near([found[0].text], wanted)
    sparse = Embedding(sparse_embedding=([3, 7], [0.5, 1.0]))
    facts = {"id": "7", "index": 3, "metadata": {"from": "here"}}
    items = [EmbeddableItem(Content(text="one"), embedding=sparse, **facts)]
    [found] = collect(tmp_path, items, written(tmp_path / "rag", BertEmbeddings(tiny_bundle)))
    assert (found[0].id, found[0].index, found[0].metadata) == ("7", 3, {"from": "here"})
    assert found[0].content == Content(text="one")
    assert found[0].sparse_embedding == ([3, 7], [0.5, 1.0])
    assert_near([found[0].dense_embedding], wanted)


def test_an_item_gets_both_sides_of_a_model_that_makes_them(tmp_path, model_of):
    model = model_of(write_splade, pooling_strategy="max", activation_function="relu").path
    transform = BertEmbeddings(model, vectors=["dense", "sparse"], top_k=3)
    [found] = collect(tmp_path, [EmbeddableItem.from_text("one")], written(tmp_path, transform))
    encoder = bert_embed.load(model)
    assert_near([found[0].dense_embedding], encoder.encode(["one"], kind="dense"))
    wanted = encoder.encode(["one"], top_k=3, kind="sparse")
    indices, weights = found[0].sparse_embedding
    assert indices == wanted.indices.tolist()
    assert_near([weights], [wanted.values])
    with pytest.raises(ValueError, match="sparse cannot be given to columns, which take dense"):
        BertEmbeddings(model, ["text"])


def test_what_came_in_is_not_changed():
    record, item = {"text": "one"}, EmbeddableItem.from_text("one")
    for element, columns in ((record, ["text"]), (item, None)):
        made = replace(item_document(element, columns, 0), vectors=({"dense": np.ones(2)},))
        assert placed(made, columns) != element
    assert record == {"text": "one"}
    assert item.embedding is None


BAD = [{"text": "one"}, {"text": 7}, {"text": "\0"}, {"other": "x"}, {"text": "two"}, "no record"]
BAD.append({"text": "a vault"})
REASONS = [
    "NoTextError('text: text is not a string. Embeddings can only be generated on str, not on "
    "int')",
    "InputError('text: no tokens')",
    "NoColumnError('text: missing text. Data does not contain the following columns: text. It has "
    "other')",
    "InputError('text: not a record')",
    "InputError('text: vector is not finite')",
]


def test_a_bad_record_takes_nobody_along(poisoned_bundle, tmp_path):
    embeddings = BertEmbeddings(poisoned_bundle, ["text"])
    good, failed = collect(tmp_path, BAD, written(tmp_path, embeddings).with_exception_handling())
    wanted = bert_embed.load(poisoned_bundle).encode(["one", "two"])
    assert_near([row["text"] for row in good], wanted)
    assert [each.element for each in failed] == [*BAD[1:4], *BAD[5:]]
    assert [each.msg for each in failed] == REASONS
    assert {each.transform_name for each in failed} == {"BertEmbeddings"}


def test_a_bad_item_is_told_what_its_text_is(tiny_bundle, tmp_path):
    """It has no columns, so that none is missing."""
    items = [EmbeddableItem(Content(text=text)) for text in ("one", " ", None)]
    transform = written(tmp_path, BertEmbeddings(tiny_bundle)).with_exception_handling()
    good, failed = collect(tmp_path, [*items, {"text": "one"}], transform)
    assert [item.content.text for item in good] == ["one"]
    missing = "Data does not contain the following columns: content.text. It has text"
    assert [each.msg for each in failed] == [
        "InputError('content.text: empty text')",
        "NoTextError('content.text: missing text. Embeddings can only be generated on str, not on "
        "NoneType')",
        f"NoColumnError('content.text: not a record. {missing}')",
    ]


def test_without_exception_handling_it_fails_as_with_too_many_failures(tiny_bundle, tmp_path):
    transform = written(tmp_path, BertEmbeddings(tiny_bundle, ["other"]))
    with pytest.raises(ValueError, match="other: text is not a string"):
        collect(tmp_path, [{"other": ["what stands here"]}], transform)
    transform = written(tmp_path / "tolerant", BertEmbeddings(tiny_bundle, ["text"]))
    with pytest.raises(ValueError, match="threshold"):
        collect(tmp_path, BAD, transform.with_exception_handling(threshold=0.1))


def test_a_model_that_fails_on_all_gives_all_back(poisoned_bundle, tmp_path):
    embeddings = BertEmbeddings(poisoned_bundle, ["text"])
    transform = written(tmp_path, embeddings).with_exception_handling()
    bad = [{"text": "vault"}, {"text": "a vault"}]
    good, failed = collect(tmp_path, bad, transform)
    assert (good, [each.element for each in failed]) == ([], bad)


def test_artifacts_read_back_give_the_same_vectors(tiny_bundle, tmp_path):
    settings = {"layers": [1, 2], "layer_combine": "concat", "max_seq_length": 6, "prompt": "a "}
    records = [{"text": "the river bank and more of it"}, {"text": "b"}]
    embeddings = BertEmbeddings(tiny_bundle, ["text"], ["vector"], **settings)
    [first] = collect(tmp_path, records, written(tmp_path, embeddings))
    again = MLTransform(read_artifact_location=str(tmp_path / "artifacts"))
    assert collect(tmp_path, records, again) == [first]
    tolerant = MLTransform(read_artifact_location=str(tmp_path / "artifacts"))
    good, failed = collect(tmp_path, [*records, {}], tolerant.with_exception_handling())
    assert (good, [each.element for each in failed]) == (first, [{}])


def test_artifacts_of_another_model_are_refused(tmp_path):
    for seed in (0, 1):
        write_tiny_huggingface(tmp_path / "source", seed=seed)
        imported(tmp_path, f"bundle-{seed}")
    (tmp_path / "bundle-0").rename(tmp_path / "model")
    embeddings = BertEmbeddings(str(tmp_path / "model"), ["text"])
    collect(tmp_path, [{"text": "one"}], written(tmp_path, embeddings))
    (tmp_path / "model").rename(tmp_path / "bundle-0")
    (tmp_path / "bundle-1").rename(tmp_path / "model")
    again = MLTransform(read_artifact_location=str(tmp_path / "artifacts"))
    with pytest.raises(ValueError, match="another one than when the artifacts were written"):
        collect(tmp_path, [{"text": "one"}], again)


def test_several_go_into_one_mltransform_and_take_the_same_texts(tiny_bundle, tmp_path):
    transform = written(tmp_path, BertEmbeddings(tiny_bundle, ["a"], ["all"]))
    transform = transform.with_transform(BertEmbeddings(tiny_bundle, ["a"], ["few"], dim=2))
    transform = transform.with_transform(BertEmbeddings(tiny_bundle, ["b"], dim=3))
    [[found]] = collect(tmp_path, [{"a": "one", "b": "two"}], transform)
    assert found["a"] == "one"
    assert [len(found[name]) for name in ("all", "few", "b")] == [32, 2, 3]


def test_elements_keep_their_time_and_window(tiny_bundle, tmp_path):
    def place(row, timestamp=beam.DoFn.TimestampParam, where=beam.DoFn.WindowParam):
        return row["id"], float(timestamp), float(where.start)

    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        good, bad = (
            pipeline
            | beam.Create([{"text": t, "id": n} for n, t in ((3, "one"), (14, "two"), (15, ""))])
            | beam.Map(lambda row: window.TimestampedValue(row, row["id"]))
            | beam.WindowInto(window.FixedWindows(10))
            | written(tmp_path, BertEmbeddings(tiny_bundle, ["text"])).with_exception_handling()
        )
        assert_that(good | "Place" >> beam.Map(place), equal_to([(3, 3, 0), (14, 14, 10)]))
        failed = bad | beam.Map(lambda row: row.element) | "Place bad" >> beam.Map(place)
        assert_that(failed, equal_to([(15, 15, 10)]), label="Failed")
