"""A server of credentials, as machines of Google and Amazon have one, which fails on request."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.support.servers.gcs import Answering, serving

_ROLE = "/latest/meta-data/iam/security-credentials/"
_ACCOUNT = "/computeMetadata/v1/instance/service-accounts/default/"
_ANSWERS: dict[str, Any] = {
    "/": "",
    "/computeMetadata/v1/project/project-id": "test-project",
    _ACCOUNT: {"email": "a@b.iam.gserviceaccount.com", "scopes": ["all"]},
    f"{_ACCOUNT}token": {"access_token": "t", "expires_in": 3600, "token_type": "Bearer"},
    "/latest/api/token": "t",
    _ROLE: "role",
    f"{_ROLE}role": {
        "Code": "Success",
        **{"AccessKeyId": "key", "SecretAccessKey": "secret", "Token": "t"},
        **{"Expiration": "2100-01-01T00:00:00Z", "LastUpdated": "2026-01-01T00:00:00Z"},
    },
}


@dataclass
class Metadata:
    """A running server.

    Attributes:
        host: Such as 127.0.0.1:4443.
        failing: How many requests for credentials fail from now on, one by one.
    """

    host: str = ""
    failing: int = 0


@contextmanager
def metadata_server() -> Iterator[Metadata]:
    made = Metadata()

    class Handler(Answering):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            answer, status = _ANSWERS.get(path), 200
            if answer is None or (made.failing and path not in ("/", "/latest/api/token")):
                made.failing -= answer is not None
                answer, status = "", 404
            data = answer if isinstance(answer, str) else json.dumps(answer)
            kind = "text/plain" if isinstance(answer, str) else "application/json"
            self.answer(status, {"Metadata-Flavor": "Google", "Content-Type": kind}, data.encode())

        do_PUT = do_GET

    with serving(Handler) as server:
        made.host = f"127.0.0.1:{server.server_port}"
        yield made
