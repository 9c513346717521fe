"""Commands import no package that they do not use."""

import shutil
import sys

import pytest

from tests.support.command import embed, flags_of, ran, sentence_files

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("light") / "in.txt"
    rivers = [f"the bank of river {n}\n" for n in range(120)]  # as many as a map by t-SNE has
    path.write_text("".join(["money of the vault\n", *rivers]), "utf-8")
    return path


@pytest.fixture(scope="module")
def output(text, tiny_bundle):
    assert embed(text.parent / "out", tiny_bundle, text) == 0
    return text.parent / "out"


# The command takes its words from the process, as `bert-embed` does.
_CODE = """
import sys
from bert_embed.pipeline.cli import main
code = main()
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""


def imported(*words, code=0):
    """What a command printed, and the modules that its process imported."""
    command = [sys.executable, "-c", _CODE, *words]
    done = ran(command)
    assert done.returncode == code, done.stderr
    return done.stdout, set(done.stderr.splitlines()[-1].split())


def test_embed_of_local_files_imports_no_client_and_writes_the_same(text, output, tiny_bundle):
    """Nor pandas for the map of its report."""
    _, modules = imported("embed", *flags_of(text.parent / "light", tiny_bundle, text))
    assert {"apache_beam", "openTSNE"} <= modules
    assert not modules & {"pandas", "pymongo", "apitools", "google.cloud.storage", "tensorflow"}
    (light,), (whole,) = sentence_files(text.parent / "light"), sentence_files(output)
    assert light.read_bytes() == whole.read_bytes()


def test_a_run_that_names_a_store_has_its_clients(text, tiny_bundle):
    flags = flags_of(text.parent / "stored", tiny_bundle, text, temp_location="gs://none/temp")
    _, modules = imported("embed", *flags, "--dry_run")
    assert {"apache_beam", "google.cloud.storage"} <= modules


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        (["--help"], ["numpy", "pyarrow"]),
        (["--version"], ["numpy", "pyarrow"]),
        (["embed", "--help"], ["pyarrow.parquet", "numpy.random", "bert_embed.backends.runner"]),
        (["embed", "--inptu=a"], []),
    ],
)
def test_help_and_mistyped_flags_are_light(words, absent):
    _, modules = imported(*words, code=2 if words[-1] == "--inptu=a" else 0)
    assert not modules & {*absent, "apache_beam", "tensorflow", "importlib.metadata"}


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["search", "{output}", "a vault"], "money of the vault"),
        (["compare", "{output}", "{copy}"], "overlap of the first"),
        (["model", "inspect", "{model}"], "default_prompt  "),
    ],
)
def test_light_commands_import_neither_beam_nor_pandas(words, shown, output, tiny_bundle, tmp_path):
    places = {"output": output, "copy": tmp_path / "copy", "model": tiny_bundle}
    shutil.copytree(output, tmp_path / "copy")
    printed, modules = imported(*(word.format(**places) for word in words))
    assert shown in printed
    assert not modules & {"apache_beam", "tensorflow", "pandas", "google.cloud.storage"}
    assert "importlib.metadata" not in modules  # a parser of mail comes with it
