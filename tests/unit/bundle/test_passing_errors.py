"""An error of the system that passes while a kept model is looked at costs nothing."""

import errno
import os
from functools import partial
from pathlib import Path

import pytest

from bert_embed.base.errors import InputError, StorageError
from bert_embed.bundle.bundle import read_bundle
from bert_embed.bundle.cache import publish_bundle, worker_bundle
from bert_embed.bundle.find import resolve_model
from bert_embed.pipeline.cli import main
from tests.support.models.tiny import write_tiny_huggingface

pytestmark = pytest.mark.slow

WHY = pytest.mark.parametrize("why", [errno.EMFILE, errno.EIO])


def each_failing(look, folder, why):
    """Calls `look` as often as it opens, lists or asks for something in a folder.

    Each time another of these calls fails; what came of it must leave the folder as it is.
    """
    calls = failing = 0

    def watched(straight):
        def call(path, *arguments, **options):
            nonlocal calls
            if isinstance(path, str | os.PathLike) and str(path).startswith(str(folder)):
                calls += 1
                if calls == failing:
                    raise OSError(why, os.strerror(why), str(path))
            return straight(path, *arguments, **options)

        return call

    def files():
        return {path: path.stat().st_ino for path in folder.rglob("*")}

    kept = files()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("builtins.open", "io.open", "os.open", "os.stat", "os.scandir"):
            module, _, function = name.partition(".")
            patch.setattr(name, watched(getattr(__import__(module), function)))
        look()
        number = calls
        assert number > 5
        for failing in range(1, number + 1):
            calls = 0
            yield
            failing = 0
            assert files() == kept
            look()


@WHY
def test_a_model_that_can_no_more_be_imported_stays(tmp_path, cache, monkeypatch, capsys, why):
    def import_no_more(dest, **options):
        raise InputError("could not be fetched: nothing can be reached")

    write_tiny_huggingface(tmp_path / "source")
    words = ["model", "inspect", str(tmp_path / "source")]
    assert main(words) == 0
    monkeypatch.setattr("bert_embed.bundle.find.import_into", import_no_more)

    def look():
        assert main(words) == 0

    codes = set()
    for _ in each_failing(look, cache, why):
        codes.add(code := main(words))
        said = capsys.readouterr().err
        assert code == 0 or f"error: {cache}" in said
        assert code < 2, said
    assert 1 in codes


@WHY
@pytest.mark.parametrize("place", ["worker", "bundle", "model"])
def test_a_model_of_a_store_stays(tmp_path, gcs, cache, tiny_bundle, monkeypatch, place, why):
    name, bundle = f"stays-{place}-{why}", read_bundle(tiny_bundle)
    if place == "worker":
        gcs.client.create_bucket(name)
        url = publish_bundle(bundle, f"gs://{name}/tmp")
        look = partial(worker_bundle, url, bundle.fingerprint)
    else:
        write_tiny_huggingface(tmp_path / "source")
        folder = Path(tiny_bundle) if place == "bundle" else tmp_path / "source"
        look = partial(resolve_model, gcs.put_folder(folder, name, "mine"))
    look()
    said = []
    for _ in each_failing(look, cache, why):
        try:
            look()
        except StorageError as error:
            said.append(str(error))
    assert said
    assert all(str(cache) in message for message in said)
