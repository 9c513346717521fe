"""A server that speaks S3's protocol: moto's, which the environment of `make test-export` has."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers.gcs import answers, free_port, running


@contextmanager
def s3_server(folder: Path) -> Iterator[Any]:
    """Runs it with its log in `folder`; gives a client. The environment leads to it."""
    import boto3

    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", url.rpartition(":")[2]]
    environment = {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": url,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patches:
        for name, value in environment.items():
            patches.setenv(name, value)
        with running(command, folder / "server.log", lambda: answers(f"{url}/moto-api/")):
            yield boto3.client("s3")
