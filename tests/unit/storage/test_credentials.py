"""Credentials that come late, or cannot be renewed at first: real clients, and a server of them."""

import errno
import socket
import ssl
import time

import google.auth
import pytest
from google.auth.exceptions import DefaultCredentialsError, RefreshError
from google.auth.transport.requests import AuthorizedSession

from bert_embed.base.errors import InputError, StorageError
from bert_embed.storage import files, gcs
from bert_embed.storage.gcs import is_passing_login
from tests.support.servers.gcs import proxy
from tests.support.servers.metadata import metadata_server

GOOGLE = "google.auth.compute_engine._metadata"


@pytest.fixture
def metadata(monkeypatch):
    """No credentials but those of a server, and no pause before another attempt."""
    with metadata_server() as made:
        monkeypatch.setattr(f"{GOOGLE}._GCE_METADATA_HOST", made.host)
        monkeypatch.setattr(f"{GOOGLE}._NO_GCE_CHECK", False)
        monkeypatch.setenv("GCE_METADATA_IP", made.host)
        monkeypatch.setenv("CLOUDSDK_CONFIG", "/none")
        monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        monkeypatch.setattr(gcs, "_found", {})
        monkeypatch.setattr(gcs, "_missed", {})
        yield made


@pytest.fixture
def store(metadata, gcs, monkeypatch):
    """A proxy before Cloud Storage, where a file is, for clients that need credentials."""
    gcs.client.bucket("late").exists() or gcs.client.create_bucket("late")
    gcs.client.bucket("late").blob("a").upload_from_string("data")
    with proxy(gcs.url) as made:
        monkeypatch.delenv("STORAGE_EMULATOR_HOST")
        monkeypatch.setenv("API_ENDPOINT_OVERRIDE", made.url)
        yield made


def test_a_token_that_cannot_be_had_at_first_is_asked_for_again(store, metadata, monkeypatch):
    """A server that stays silent is one sentence."""
    with monkeypatch.context() as patches:
        for name in ("PATIENCE", "FIRST_ANSWER"):
            patches.setattr(gcs, name, 0.3)
        metadata.failing = 1 << 30
        with pytest.raises(StorageError, match=r"^gs://late/a cannot be read: .*try again later$"):
            files.read_bytes("gs://late/a")
    metadata.failing = 3
    assert files.read_bytes("gs://late/a") == b"data"
    assert metadata.failing == 0


def test_credentials_that_were_not_found_are_looked_for_again(store, metadata, monkeypatch):
    found, asked = google.auth.default, []

    def late(**options):
        asked.append(options)
        if len(asked) == 1:
            raise DefaultCredentialsError("none")
        return found(**options)

    monkeypatch.setattr(google.auth, "default", late)
    refusals = iter([401])
    store.fault = lambda method, path: next(refusals, None)
    assert files.read_bytes("gs://late/a") == b"data"
    assert files.read_bytes("gs://late/a") == b"data"
    assert len(asked) == 2, "what was found is kept"
    refusals = iter([403])
    with pytest.raises(PermissionError, match="may not be read with the credentials"):
        files.read_bytes("gs://late/a")


@pytest.mark.parametrize(
    "error",
    [
        RefreshError("to act as", '{"error": {"code": 503}}'),
        socket.gaierror(-3, "Temporary failure in name resolution"),
        ssl.SSLEOFError(8, "EOF occurred in violation of protocol"),
        TimeoutError("The read operation timed out"),
        OSError(24, "Too many open files"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_fails_before_a_request_is_sent_is_tried_again(store, monkeypatch, error):
    assert files.read_bytes("gs://late/a") == b"data"
    send, left = AuthorizedSession.request, [error, error]

    def request(*arguments, **options):
        if left:
            raise left.pop()
        return send(*arguments, **options)

    monkeypatch.setattr(AuthorizedSession, "request", request)
    assert files.read_bytes("gs://late/a") == b"data"
    assert not left
    monkeypatch.setattr(gcs, "PATIENCE", 0.1)
    left += [error] * 1000
    why = "Too many open files on this machine" if error.args[0] == 24 else "cannot be reached"
    with pytest.raises(StorageError, match=rf"^gs://late/a cannot be read: .*{why}.* later$"):
        files.read_bytes("gs://late/a")


def test_a_login_that_is_refused_is_not_tried_again():
    assert is_passing_login(RefreshError("unavailable", retryable=True))
    assert not is_passing_login(RefreshError("invalid_grant", '{"error": "invalid_grant"}'))
    assert not is_passing_login(RefreshError("refused", '{"error": {"code": 403}}'))


def test_credentials_that_are_named_and_not_there_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    with pytest.raises(InputError, match=r"^GOOGLE_APPLICATION_CREDENTIALS: .*/key\.json"):
        files.read_bytes("gs://bucket/a.txt")


def test_a_full_disk_is_no_error_of_the_store():
    full = OSError(errno.ENOSPC, "No space left on device")
    for error, kind, said in (
        (full, OSError, r"^\[Errno 28\] No space left"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), StorageError, "cannot be reached"),
    ):
        with pytest.raises(kind, match=said), gcs.translate_errors("gs://b/a", "read"):
            raise error
