"""A small Pub/Sub for tests: topics and subscriptions in memory, behind Google's own client.

It has what Beam's direct runner calls: publish, pull and acknowledge. A message that is not
acknowledged is delivered again.
"""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import grpc
from google.protobuf.empty_pb2 import Empty
from google.pubsub_v1 import types

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
        """Adds messages to a topic."""
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
        """Gives the messages of a subscription that nobody has; waits a second for the first."""
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
        """Marks messages as done for good."""
        with self._changed:
            self._done[request.subscription].update(dict.fromkeys(request.ack_ids, float("inf")))
        return Empty()

    def _waiting(self, subscription: str) -> list[Any]:
        done, now = self._done.get(subscription, {}), time.monotonic()
        messages = self.topics.get(self.subscriptions[subscription], [])
        return [message for message in messages if done.get(message.message_id, 0) <= now]


@contextmanager
def pubsub_server() -> Iterator[PubSubServer]:
    """Runs the server."""
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
