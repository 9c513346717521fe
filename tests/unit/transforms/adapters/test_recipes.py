"""The recipes of docs/beam.md, for Pub/Sub and the Storage Write API, too, run as they stand."""

import json
import re

import apache_beam as beam
import grpc
import numpy as np
import pytest
from apache_beam.io.gcp.pubsub import PubsubMessage
from google.cloud import bigquery_storage_v1 as storage
from google.cloud.bigquery_storage_v1.services.big_query_write.transports import (
    BigQueryWriteGrpcTransport,
)

import bert_embed
from examples import append_to_bigquery, embed_pubsub
from tests.support.command import ROOT
from tests.support.models.heads import write_classifier
from tests.support.rounding import MINILM, assert_near

pytestmark = pytest.mark.slow

TOPICS = "projects/my-project/topics"
TEXTS = "projects/my-project/subscriptions/texts"


def recipe(words):
    """The one block of docs/beam.md with some words."""
    page = (ROOT / "docs" / "beam.md").read_text("utf-8")
    [block] = [
        block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if words in block
    ]
    return block


def test_scores_drop_documents(minilm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    classifier = tmp_path / "path" / "to" / "classifier"
    write_classifier(classifier, "distilbert", 2, id2label={"0": "poor", "1": "good"})
    texts = ["the bank of the river", "money", "you could find", "two more long words", "a", "find"]
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "in.txt").write_text("\n".join(texts), encoding="utf-8")
    good = bert_embed.load(classifier).encode(texts, kind="scores")[:, 1]
    wanted = [text for text, score in zip(texts, good, strict=True) if score > np.mean(good)]
    exec(recipe("quality =").replace("0.5", str(np.mean(good))), {})
    (kept,) = tmp_path.glob("good-*.txt")
    assert sorted(kept.read_text("utf-8").splitlines()) == sorted(wanted)


def test_texts_of_pubsub_become_vectors_there(minilm, tmp_path, monkeypatch):
    """The program as it stands, but for Beam's own transforms at its ends."""
    places = [TEXTS, f"{TOPICS}/vectors", f"{TOPICS}/rejected"]
    sent = {"a": b"one text", "b": b" ", "c": b"\xff", "d": "ein Wörtchen".encode()}
    messages = [PubsubMessage(data, {"id": name}) for name, data in sent.items()]

    def read(subscription, with_attributes):
        assert (subscription, with_attributes) == (TEXTS, True)
        return beam.Create(messages)

    monkeypatch.setattr(beam.io, "ReadFromPubSub", read)
    monkeypatch.setattr(beam.io, "WriteToPubSub", lambda topic: beam.Map(_append, tmp_path, topic))
    embed_pubsub.main(*places, ["--runner=FnApiRunner"])
    found, rejected = (
        [json.loads(line) for line in _file(tmp_path, topic).read_text("utf-8").splitlines()]
        for topic in places[1:]
    )
    vectors = {record["id"]: record["embedding"] for record in found}
    assert vectors.keys() == {"a", "d"}
    wanted = bert_embed.load("minilm").encode(["one text", "ein Wörtchen"])
    assert_near([vectors["a"], vectors["d"]], wanted, MINILM)
    reasons = {record["record"]["id"]: record["reason"] for record in rejected}
    assert reasons == {"b": "empty text", "c": "missing text"}


def _file(folder, topic):
    return folder / topic.rpartition("/")[2]


def _append(message, folder, topic):
    with _file(folder, topic).open("ab") as file:
        file.write(message + b"\n")


def test_rows_for_load_jobs_have_the_fields_of_their_schema(minilm, monkeypatch):
    def checked(table, schema, method):
        fields = {field["name"]: field for field in schema["fields"]}
        assert (table, method) == ("my-project:my_dataset.vectors", "FILE_LOADS")
        return beam.Map(_check_row, fields)

    monkeypatch.setattr(beam.io, "WriteToBigQuery", checked)
    block = recipe("FILE_LOADS").replace(
        '"--temp_location', '"--runner=FnApiRunner", "--temp_location'
    )
    exec(block, {})


def _check_row(row, fields):
    assert row.keys() == fields.keys()
    for name, value in row.items():
        types = {"STRING": str, "FLOAT": float}
        values = value if fields[name].get("mode") == "REPEATED" else [value]
        assert {type(each) for each in values} == {types[fields[name]["type"]]}


def test_the_unit_test_passes(minilm):
    namespace = {}
    exec(recipe("TestPipeline"), namespace)
    namespace["test_blank_reviews_are_rejected"]()


def test_vectors_are_appended_to_a_table(minilm, bigquery, tmp_path, monkeypatch):
    fields = [("id", "STRING", "NULLABLE"), ("embedding", "FLOAT64", "REPEATED")]
    bigquery.fill("test-project.recipes.vectors", [], fields)
    address = bigquery.environment["BIGQUERY_STORAGE_EMULATOR_HOST"]
    client = storage.BigQueryWriteClient

    def of_emulator():
        channel = grpc.insecure_channel(address)
        return client(transport=BigQueryWriteGrpcTransport(channel=channel))

    monkeypatch.setattr(storage, "BigQueryWriteClient", of_emulator)
    lines = [{"id": "a", "text": "one text"}, {"id": "b", "text": "two"}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    append_to_bigquery.main(f"{tmp_path}/in.jsonl", "test-project.recipes.vectors", [])
    rows = bigquery.rows("SELECT id, embedding FROM `test-project.recipes.vectors` ORDER BY id")
    assert [name for name, _ in rows] == ["a", "b"]
    wanted = bert_embed.load("minilm").encode(["one text", "two"])
    assert_near([vector for _, vector in rows], wanted, MINILM)
