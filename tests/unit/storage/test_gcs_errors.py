"""Errors that are not of Cloud Storage keep their own messages."""

import errno

import pytest

from bert_embed.base.errors import InputError, StorageError
from bert_embed.storage import gcs


def test_a_full_disk_is_no_error_of_the_store():
    with (
        pytest.raises(OSError, match="No space left") as full,
        gcs.translate_errors("gs://b/a", "read"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert full.value.errno == errno.ENOSPC
    with (
        pytest.raises(StorageError, match="cannot be reached"),
        gcs.translate_errors("gs://b/a", "read"),
    ):
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


def test_credentials_that_are_named_and_not_there_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    with pytest.raises(InputError, match=r"^GOOGLE_APPLICATION_CREDENTIALS: .*/key\.json"):
        gcs.read("gs://bucket/a.txt")
