"""The wheel in clean environments: what it holds, runs without, and says when something lacks."""

import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest

from tests.integration.install.environments import (
    EXTRAS,
    PYTHONS,
    STALE,
    declared_extras,
    environment,
    find_python,
    uv,
)
from tests.support.command import ROOT
from tests.support.models.google import write_tiny_google

pytestmark = pytest.mark.slow
QUESTION = "make an object callable"
MOST_MEGABYTES = 700


def test_the_wheel_has_one_name_and_no_module_of_an_earlier_build(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"bert_embed"}
    assert len(tops) == 2
    assert not [name for name in names if name.endswith(STALE)]


def test_a_package_of_the_sources_has_every_file(tmp_path):
    """What Beam's --setup_file gives to workers; its files are where the links lead."""
    command = [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", str(tmp_path)]
    subprocess.run([*command, "egg_info", "--egg-base", str(tmp_path)], cwd=ROOT, check=True)
    with tarfile.open(*tmp_path.glob("bert_embed-*.tar.gz")) as archive:
        packed = {member.partition("/")[2] for member in archive.getnames()}
    assert {"setup.py", "pyproject.toml", "LICENSE", "src/bert_embed/py.typed"} <= packed
    homes = {"bert_embed": "src", "transforms": "src/bert_embed", "pipeline": "src/bert_embed"}
    for top, home in homes.items():
        for path in (ROOT / top).rglob("*.py"):
            assert f"{home}/{path.relative_to(ROOT)}" in packed
    assert not [name for name in packed if name.startswith(("benchmarks", "examples"))]


def test_the_base_is_small(base):
    assert base.megabytes < MOST_MEGABYTES


def embed_and_search(environment, folder, texts, cache):
    """Both commands, in a folder."""
    variables = {"BERT_EMBED_CACHE": str(cache)}
    words = ["bert-embed", "embed", "--input", texts, "--output", "out"]
    done = environment.run(*words, cwd=folder, **variables)
    assert done.returncode == 0, done.stderr
    done = environment.run("bert-embed", "search", "out", QUESTION, cwd=folder, **variables)
    assert done.returncode == 0, done.stderr
    assert "types/" in done.stdout.splitlines()[0]


def test_the_base_embeds_and_searches_from_an_empty_cache_beside_other_peoples_modules(
    base, strangers, texts, empty_cache
):
    embed_and_search(base, strangers, texts, empty_cache)


# As uv names what docs/install.md names.
MACHINES = (
    *("x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"),
    *("aarch64-apple-darwin", "x86_64-pc-windows-msvc"),
)


@pytest.mark.parametrize("python", ["3.11", "3.14"])
@pytest.mark.parametrize("machine", MACHINES)
def test_every_pin_of_the_base_has_a_wheel(tmp_path, machine, python):
    pins = tmp_path / "base.txt"
    uv(["export", "--frozen", "--no-emit-project", "--output-file", pins])
    asked = ["--python-platform", machine, "--python-version", python]
    install = ["pip", "install", "--dry-run", "--target", tmp_path / "site", *asked]
    uv([*install, "--no-deps", "--only-binary", ":all:", "--require-hashes", "--requirement", pins])


def python_or_skip(version):
    if python := find_python(version):
        return python
    return pytest.skip(f"there is no Python {version} here")


@pytest.mark.parametrize("version", PYTHONS)
def test_each_supported_python_embeds_and_searches(wheel, tmp_path, texts, version):
    python = python_or_skip(version)
    cache = tmp_path / "cache"  # what one Python imported is no proof for the next one
    embed_and_search(environment(f"python{version}", wheel, (), python), tmp_path, texts, cache)


def test_the_lowest_versions_embed_what_they_wrote(wheel, tmp_path, texts, empty_cache):
    project = ROOT / "pyproject.toml"
    versions = ["--resolution", "lowest-direct", "--requirement", project]
    lowest = environment("lowest", wheel, versions=versions)
    declared = tomllib.loads(project.read_text("utf-8"))["project"]["dependencies"]
    [arrow] = [each for each in declared if each.startswith("pyarrow")]
    assert any(lowest.packages.glob(f"pyarrow-{arrow.partition('=')[2]}.*.dist-info"))
    variables = {"BERT_EMBED_CACHE": str(empty_cache)}
    for source, output in ((texts, "first"), ("first/embeddings", "second")):
        words = ["bert-embed", "embed", "--input", source, "--output", output, "--keep_text"]
        done = lowest.run(*words, cwd=tmp_path, **variables)
        assert done.returncode == 0, done.stderr
    done = lowest.run("bert-embed", "search", "second", QUESTION, cwd=tmp_path, **variables)
    assert "types/" in done.stdout.splitlines()[0]


CLOUD = "pip install google-cloud-storage"
BIGQUERY = "pip install google-cloud-bigquery google-cloud-bigquery-storage"
LACKING = {
    "embed --input gs://bucket/a.jsonl --output out": CLOUD,
    "search gs://bucket/out words": CLOUD,
    "embed --input s3://bucket/a.jsonl --output out": "pip install boto3",
    "embed --query SELECT --project acme --output out": BIGQUERY,
    "embed --input {texts} --output out --output_format bigquery --output_table acme.d.t": BIGQUERY,
    "embed --input gs://bucket/a.jsonl --output gs://bucket/out --runner DataflowRunner --project "
    "acme --region us-central1 --temp_location gs://bucket/tmp --sdk_container_image acme/worker": (
        "pip install 'apache-beam[gcp]'"
    ),
    "embed --input {texts} --output out --device gpu": "pip install 'jax[cuda12]'",
    "embed --input {texts} --output out --device tpu": "pip install 'jax[tpu]'",
    "embed --input {texts} --output out --precision float16": "pip install 'jax[cuda12]'",
    "embed --input {texts} --output out --engine openvino": "pip install openvino",
    "model import {google} bundle": "pip install tensorflow",
    "export {output} dest --to faiss": "pip install faiss-cpu",
    "report {output} --projection tsne": "pip install openTSNE",
}


@pytest.fixture(scope="module")
def places(base, texts, empty_cache, tmp_path_factory):
    folder = tmp_path_factory.mktemp("places")
    write_tiny_google(folder / "google")
    words = ["bert-embed", "embed", "--input", texts, "--output", "output"]
    done = base.run(*words, cwd=folder, BERT_EMBED_CACHE=str(empty_cache))
    assert done.returncode == 0, done.stderr
    names = {name: str(folder / name) for name in ("google", "output")}
    return {**names, "texts": str(texts)}


@pytest.mark.parametrize("command", LACKING)
def test_what_the_base_lacks_is_named_with_its_package(
    base, tmp_path, places, empty_cache, command
):
    words = command.format_map(places).split()
    done = base.run("bert-embed", *words, cwd=tmp_path, BERT_EMBED_CACHE=str(empty_cache))
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2, done.stderr
    assert last.startswith("error: ")
    assert last.endswith(f"not installed here: {LACKING[command]}")
    assert "Traceback" not in done.stderr


def test_the_tests_know_every_extra():
    """But for those of chips, gigabytes of drivers: `make test-accelerators` has their JAX."""
    chips = ("tpu", "gpu", "gpu13")
    assert [extra for extra in declared_extras() if extra not in chips] == list(EXTRAS)


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_adds_what_it_says(wheel, tmp_path, extra):
    code = "; ".join(f"import {module}" for module in EXTRAS[extra])
    made = environment(f"extra-{extra}", wheel, [extra])
    done = made.run("python", "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
