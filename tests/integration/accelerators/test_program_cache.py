"""Workers with chips: what one compiles others find; what cannot compute is refused."""

import shutil
import sys
from pathlib import Path

import pytest

from bert_embed.bundle.bundle import read_bundle
from bert_embed.bundle.cache import publish_bundle
from tests.support.command import embed
from tests.support.engines import jax_process

# What a worker does; says how many programs it compiled and found, and their seconds.
WORKER = """
import collections, json, sys
import jax
from bert_embed.model import Request
from bert_embed.settings import TextSpec, VectorSpec
from bert_embed.transforms.infer import BlockModelHandler

counts, seconds = collections.Counter(), collections.Counter()
jax.monitoring.register_event_listener(lambda name, **_: counts.update([name]))
jax.monitoring.register_event_duration_secs_listener(
    lambda name, time, **_: seconds.update({name: time})
)
place, fingerprint, programs = sys.argv[1:]
handler = BlockModelHandler(
    place, fingerprint, VectorSpec(), TextSpec(64), device="cpu", engine="jax", programs=programs
)
texts = [first * "the " + "bank " * second for first in range(12) for second in range(12)]
request = Request(TextSpec(64), texts={"texts": texts}, batch_tokens=512)
embedded = handler.load_model().run(request)
print(json.dumps({
    "compiled": counts["/jax/compilation_cache/cache_misses"],
    "found": counts["/jax/compilation_cache/cache_hits"],
    "seconds": seconds["/jax/core/compile/backend_compile_duration"],
    "vectors": embedded.sentences.tolist(),
}))
"""


def worker(place, machine, programs=None, **variables):
    """A process on a machine, which is a cache folder; what it says, and its stderr."""
    fingerprint = Path(place).name.partition("-")[0] if "/bundles/" in place else ""
    programs = f"{place}/programs" if programs is None else programs
    return jax_process(WORKER, machine, place, fingerprint, programs, **variables)


@pytest.fixture(scope="module")
def first_of_all(tiny_bundle, tmp_path_factory):
    """A shared folder and the machine of its first worker, where the model is, what that said."""
    folder = tmp_path_factory.mktemp("first")
    place = publish_bundle(read_bundle(tiny_bundle), str(folder / "shared"))
    return folder, Path(place).relative_to(folder), worker(place, folder / "one")


@pytest.mark.parametrize("store", ["local", "gs"])
def test_the_first_worker_compiles_for_all(tiny_bundle, tmp_path, gcs, first_of_all, store):
    if store == "local":
        folder, place, (first, said) = first_of_all
        shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
        place = str(tmp_path / place)
    else:
        gcs.client.create_bucket("programs-gs")
        place = publish_bundle(read_bundle(tiny_bundle), "gs://programs-gs/tmp")
        first, said = worker(place, tmp_path / "one")
    assert (first["compiled"], first["found"]) == (2, 0)
    assert "not shared" not in said
    machines = ["one", "other"] if store == "local" else ["other"]
    for machine in machines:
        later, _ = worker(place, tmp_path / machine)
        assert (later["compiled"], later["found"]) == (0, 2)
        assert later["seconds"] < first["seconds"] / 2
        assert later["vectors"] == first["vectors"]
    assert not list(tmp_path.glob("other/bundles/**/programs")), "fetched with the model"


def test_halves_that_a_killed_worker_left_are_compiled_anew(first_of_all, tmp_path):
    folder, place, _ = first_of_all
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    place = str(tmp_path / place)
    shared, here = Path(place, "programs"), tmp_path / "one" / "jax"
    for folder in (shared, here):
        for number, file in enumerate(sorted(folder.glob("jit_program*-cache"))):
            whole = file.read_bytes()
            file.write_bytes(whole[: len(whole) // 2 * number])  # the first is empty
    again, said = worker(place, tmp_path / "one")
    assert (again["compiled"], again["found"]) == (2, 0)
    assert "Error" not in said
    assert worker(place, tmp_path / "other")[0]["compiled"] == 0


@pytest.mark.parametrize("programs", ["/dev/null/programs", "gs://no-such-bucket/programs"])
def test_a_place_that_cannot_be_written_is_warned_of_once(tiny_bundle, tmp_path, gcs, programs):
    found, said = worker(tiny_bundle, tmp_path / "one", programs)
    assert found["compiled"] == 2
    assert said.count("compiled programs are not shared with other workers: ") == 1


def test_a_machine_without_a_folder_for_them_computes(tiny_bundle, tmp_path):
    (tmp_path / "file").touch()
    found, said = worker(tiny_bundle, tmp_path / "file", "")
    assert found["found"] == 0
    assert said.count("compiled programs are not kept on this machine: ") == 1


def test_the_folder_of_a_user_stays_theirs(tiny_bundle, tmp_path):
    mine = tmp_path / "mine"
    worker(tiny_bundle, tmp_path / "one", str(tmp_path / "shared"), JAX_COMPILATION_CACHE_DIR=mine)
    assert not (tmp_path / "one" / "jax").exists()
    assert not (tmp_path / "shared").exists()


def test_jax_without_its_plugin_is_refused(tiny_bundle, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "libtpu", None)  # as where it is not installed
    (tmp_path / "in.txt").write_text("the bank\n")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", device="tpu") == 2
    said = capsys.readouterr().err
    assert "--device tpu: jax is here without its plugin for TPUs: pip install 'jax[tpu]'" in said
    assert not (tmp_path / "out").exists()
