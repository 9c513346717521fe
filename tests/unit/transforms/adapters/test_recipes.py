"""The recipes of docs/beam.md, for Pub/Sub and the Storage Write API, too, run as they stand."""

import json
import os
import re
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime

import apache_beam as beam
import grpc
import numpy as np
import pytest
from google.cloud import bigquery_storage_v1 as storage
from google.cloud.bigquery_storage_v1.services.big_query_write.transports import (
    BigQueryWriteGrpcTransport,
)
from google.protobuf.empty_pb2 import Empty
from google.pubsub_v1 import types

import bert_embed
from examples import append_to_bigquery
from tests.support.command import ROOT
from tests.support.forks import Command, python
from tests.support.models.heads import write_classifier
from tests.support.rounding import MINILM, assert_near

pytestmark = pytest.mark.slow

PATIENCE = 150  # seconds; a busy machine takes a minute to begin
TOPICS = "projects/my-project/topics"
TEXTS = "projects/my-project/subscriptions/texts"


class PubSub:
    """A Pub/Sub whose one subscription gives each message of a topic once."""

    def __init__(self) -> None:
        self.topics = defaultdict(list)
        self._pulled, self._changed = 0, threading.Condition()

    def publish(self, request, context=None):
        with self._changed:
            messages = self.topics[request.topic]
            for message in request.messages:
                message.message_id = str(len(messages))
                message.publish_time = datetime.now(UTC)
                messages.append(message)
            self._changed.notify_all()
        return types.PublishResponse(message_ids=[each.message_id for each in request.messages])

    def pull(self, request, context):
        texts = self.topics[f"{TOPICS}/texts"]
        with self._changed:
            self._changed.wait_for(lambda: len(texts) > self._pulled, 1.0)
            messages = texts[self._pulled :][: request.max_messages]
            self._pulled += len(messages)
        received = [{"ack_id": message.message_id, "message": message} for message in messages]
        return types.PullResponse(received_messages=received)

    def acknowledge(self, request, context):
        return Empty()

    @contextmanager
    def listening(self):
        """Gives its address, for PUBSUB_EMULATOR_HOST."""
        listener = grpc.server(ThreadPoolExecutor(8))
        for service, name, method, kind, answer in (
            ("Publisher", "Publish", self.publish, types.PublishRequest, types.PublishResponse),
            ("Subscriber", "Pull", self.pull, types.PullRequest, types.PullResponse),
            ("Subscriber", "Acknowledge", self.acknowledge, types.AcknowledgeRequest, None),
        ):
            handler = grpc.unary_unary_rpc_method_handler(
                method, kind.deserialize, answer.serialize if answer else Empty.SerializeToString
            )
            generic = grpc.method_handlers_generic_handler(
                f"google.pubsub.v1.{service}", {name: handler}
            )
            listener.add_generic_rpc_handlers([generic])
        port = listener.add_insecure_port("127.0.0.1:0")
        listener.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            listener.stop(None)


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


def test_texts_of_pubsub_become_vectors_there(minilm, tmp_path):
    places = [TEXTS, f"{TOPICS}/vectors", f"{TOPICS}/rejected"]
    program = ["-m", "examples.embed_pubsub", *places, "--runner=BundleBasedDirectRunner"]
    sent = {"a": b"one text", "b": b" ", "c": b"\xff", "d": "ein Wörtchen".encode()}
    messages = [{"data": data, "attributes": {"id": name}} for name, data in sent.items()]
    server, log = PubSub(), tmp_path / "log"
    server.publish(types.PublishRequest(topic=f"{TOPICS}/texts", messages=messages))
    with server.listening() as address, log.open("w") as out:
        environment = {**os.environ, "PUBSUB_EMULATOR_HOST": address}
        stream = Command([*python(), *program], cwd=ROOT, env=environment, stdout=out, stderr=out)
        try:
            until = time.monotonic() + PATIENCE
            while sum(map(len, server.topics.values())) < 2 * len(sent):
                assert stream.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.2)
        finally:
            stream.kill()
            stream.wait()
    found, rejected = (
        [json.loads(message.data) for message in server.topics[topic]] for topic in places[1:]
    )
    vectors = {record["id"]: record["embedding"] for record in found}
    assert vectors.keys() == {"a", "d"}
    wanted = bert_embed.load("minilm").encode(["one text", "ein Wörtchen"])
    assert_near([vectors["a"], vectors["d"]], wanted, MINILM)
    reasons = {record["record"]["id"]: record["reason"] for record in rejected}
    assert reasons == {"b": "empty text", "c": "missing text"}


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
    bigquery.fill("test-project.recipes.vectors", fields, [])
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
