"""The recipes of docs/beam.md, for Pub/Sub and the Storage Write API, too, run as they stand."""

import json
import os
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

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
from tests.support.forks import Command, python
from tests.support.models.heads import write_classifier
from tests.support.rounding import MINILM, assert_near

_PATIENCE = 1.0  # seconds that a pull waits for a message
_REDELIVERY = 10.0  # seconds after which a message that was pulled is delivered again


@dataclass
class PubSubServer:
    """A running Pub/Sub.

    Attributes:
        address: Its host and port, for PUBSUB_EMULATOR_HOST.
        topics: Published messages by topic.
        subscriptions: The topic of each subscription.
    """

    address: str = ""
    topics: dict[str, list[Any]] = field(default_factory=dict)
    subscriptions: dict[str, str] = field(default_factory=dict)
    _done: dict[str, dict[str, float]] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def publish(self, request: Any, context: Any = None) -> Any:
        with self._changed:
            messages = self.topics.setdefault(request.topic, [])
            ids = []
            for message in request.messages:
                message.message_id = str(len(messages))
                message.publish_time = datetime.now(UTC)
                messages.append(message)
                ids.append(message.message_id)
            self._changed.notify_all()
        return types.PublishResponse(message_ids=ids)

    def pull(self, request: Any, context: Any) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting(request.subscription), _PATIENCE)
            messages = self._waiting(request.subscription)[: request.max_messages]
            again_at = self._done.setdefault(request.subscription, {})
            again_at.update(
                {message.message_id: time.monotonic() + _REDELIVERY for message in messages}
            )
        received = [{"ack_id": message.message_id, "message": message} for message in messages]
        return types.PullResponse(received_messages=received)

    def acknowledge(self, request: Any, context: Any) -> Any:
        with self._changed:
            self._done[request.subscription].update(dict.fromkeys(request.ack_ids, float("inf")))
        return Empty()

    def _waiting(self, subscription: str) -> list[Any]:
        done, now = self._done.get(subscription, {}), time.monotonic()
        messages = self.topics.get(self.subscriptions[subscription], [])
        return [message for message in messages if done.get(message.message_id, 0) <= now]


@contextmanager
def pubsub_server() -> Iterator[PubSubServer]:
    server = PubSubServer()
    handlers = {
        "Publisher": {"Publish": (server.publish, types.PublishRequest)},
        "Subscriber": {
            "Pull": (server.pull, types.PullRequest),
            "Acknowledge": (server.acknowledge, types.AcknowledgeRequest),
        },
    }
    listener = grpc.server(ThreadPoolExecutor(8))
    for service, methods in handlers.items():
        calls = {
            name: grpc.unary_unary_rpc_method_handler(
                method,
                request_deserializer=kind.deserialize,
                response_serializer=lambda answer: (
                    answer.SerializeToString()
                    if isinstance(answer, Empty)
                    else type(answer).serialize(answer)
                ),
            )
            for name, (method, kind) in methods.items()
        }
        handler = grpc.method_handlers_generic_handler(f"google.pubsub.v1.{service}", calls)
        listener.add_generic_rpc_handlers([handler])
    server.address = f"127.0.0.1:{listener.add_insecure_port('127.0.0.1:0')}"
    listener.start()
    try:
        yield server
    finally:
        listener.stop(None)


pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[4]
PATIENCE = 150  # seconds; a busy machine takes a minute to begin
TOPICS = "projects/my-project/topics"


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
    places = ["projects/my-project/subscriptions/texts", f"{TOPICS}/vectors", f"{TOPICS}/rejected"]
    program = ["-m", "examples.embed_pubsub", *places, "--runner=BundleBasedDirectRunner"]
    sent = {"a": b"one text", "b": b" ", "c": b"\xff", "d": "ein Wörtchen".encode()}
    messages = [{"data": data, "attributes": {"id": name}} for name, data in sent.items()]
    with pubsub_server() as server:
        server.subscriptions[places[0]] = f"{TOPICS}/texts"
        server.publish(types.PublishRequest(topic=f"{TOPICS}/texts", messages=messages))
        log = (tmp_path / "log").open("w")
        environment = {**os.environ, "PUBSUB_EMULATOR_HOST": server.address}
        stream = Command([*python(), *program], cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            until = time.monotonic() + PATIENCE
            while sum(map(len, server.topics.values())) < 2 * len(sent):
                assert stream.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < until, (tmp_path / "log").read_text()
                time.sleep(0.2)
        finally:
            stream.kill()
            stream.wait()
    found = {
        topic: [json.loads(message.data) for message in server.topics[f"{TOPICS}/{topic}"]]
        for topic in ("vectors", "rejected")
    }
    vectors = {record["id"]: record["embedding"] for record in found["vectors"]}
    assert vectors.keys() == {"a", "d"}
    wanted = bert_embed.load("minilm").encode(["one text", "ein Wörtchen"])
    assert_near([vectors["a"], vectors["d"]], wanted, MINILM)
    reasons = {record["record"]["id"]: record["reason"] for record in found["rejected"]}
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
