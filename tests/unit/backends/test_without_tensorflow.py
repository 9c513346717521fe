"""What computes on processors does so without TensorFlow in the process."""

import json
import shlex
import sys

import pytest

from bert_embed.base.environment import missing
from tests.support.command import ran, record

pytestmark = pytest.mark.slow

# Commands one after the other in one process: their codes, messages, and what they imported.
_COMMANDS = """
import contextlib, io, json, sys
from bert_embed.pipeline.cli import main
made = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        made.append([main(words), errors.getvalue()])
loaded = {"tensorflow", "tensorflow_text", "tensorflow_hub", "keras"} & set(sys.modules)
print(json.dumps([made, sorted(loaded)]))
"""


def commands(script, *commands, **environment):
    """Runs them in one process.

    Returns the exit code and messages of each, which of TensorFlow was imported, and what was
    written to stderr beside.
    """
    words = json.dumps([list(map(str, words)) for words in commands])
    done = ran([sys.executable, "-c", script, words], **environment)
    assert done.returncode == 0, done.stderr
    return *json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_neither_embed_nor_an_encoder_imports_tensorflow(tmp_path, tiny_bundle):
    text = "the bank of the river\nmoney " + "of the vault " * 90
    (tmp_path / "in.txt").write_text(text, "utf-8")
    (tmp_path / "driver").write_text("NVRM version")
    words = ["embed", f"--input={tmp_path}/in.txt", f"--model={tiny_bundle}", "--normalize=true"]
    words += ["--granularity=sentence,token,word", "--long_text=window"]
    words += ["--layers=-1,1", "--layer_combine=concat"]
    kinds = ("float32", "int8")
    runs = [[*words, f"--precision={kind}", f"--output={tmp_path / kind}"] for kind in kinds]
    encoders = f"""
import sys, bert_embed, bert_embed.backends.choose as choose
assert "apache_beam" not in sys.modules
bert_embed.EmbedDocuments({tiny_bundle!r})
for precision in {kinds}:
    encoder = bert_embed.load({tiny_bundle!r}, precision=precision)
    encoder.encode(["a text"], ["another"], pooling="pooler")
    encoder.units(["a text"], layers=[0, 1], layer_combine="stack")
    assert "tensorflow" not in sys.modules, precision
drivers, choose.NVIDIA_DRIVER = choose.NVIDIA_DRIVER, ({str(tmp_path / "driver")!r},)
encoder = bert_embed.load({tiny_bundle!r})
encoder.encode(["a text"])
assert encoder.device == "cpu"
assert "tensorflow" not in sys.modules, "beside a driver without CUDA's libraries"
choose.NVIDIA_DRIVER = drivers
"""
    made, loaded, said = commands(encoders + _COMMANDS, *runs)
    assert [code for code, _ in made] == [0, 0], made
    assert loaded == []
    assert {record(tmp_path / kind)["engine"] for kind in kinds} == {"litert"}
    assert said.count("this machine has an NVIDIA GPU") == 1


def test_a_python_that_tensorflow_has_no_wheels_for_is_named(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 14, 0, "final", 0))
    said = missing("tfhub:a/model", "tensorflow", "tensorflow-hub")
    assert said.startswith("tfhub:a/model requires tensorflow and tensorflow-hub; TensorFlow has")
    assert said.endswith("no wheels for Python 3.14: make an environment with Python 3.13")
    assert missing("to_scipy", "scipy").endswith("pip install scipy")


def test_what_needs_tensorflow_says_so_where_it_cannot_be_imported(tmp_path, tiny_bundle):
    """A run of TFRecords, what its report needs, before it starts."""
    (tmp_path / "in.txt").write_text("the bank\n", "utf-8")
    embed = ["embed", f"--input={tmp_path}/in.txt"]
    written = [*embed, f"--model={tiny_bundle}", "--output_format=tfrecord"]
    engine = f"""
import sys, bert_embed
sys.modules["tensorflow"] = None
try:
    bert_embed.load({tiny_bundle!r}, engine="tensorflow").encode(["a text"])
except Exception as error:
    print(error, file=sys.stderr)
"""
    made, _, of_the_engine = commands(
        engine + _COMMANDS,
        ["model", "export", "minilm", tmp_path / "saved"],
        [*embed, f"--output={tmp_path}/new", "--engine=tensorflow"],
        [*embed, f"--output={tmp_path}/new", "--precision=float16"],
        [*written, f"--output={tmp_path}/out"],
        [*written, f"--output={tmp_path}/other", "--report=false"],
        ["report", tmp_path / "out"],
        [*written, f"--output={tmp_path}/more", f"--skip_existing={tmp_path}/other"],
    )
    codes, said = zip(*((code, errors.replace("\n", " ")) for code, errors in made), strict=True)
    assert (codes.count(0), codes[3:]) == (2, (0, 0, 2, 2))
    lacks = "which is not installed here: pip install"
    for errors, package in zip(said, ("tensorflow", "tensorflow", "jax[cuda12]"), strict=False):
        assert f"requires {package}, {lacks} {shlex.quote(package)}" in errors
        assert "a bug of this program" not in errors
    assert "requires tensorflow, which is not installed here" in of_the_engine
    note = f"note: report.html of TFRecord files requires tensorflow, {lacks} tensorflow; or leave"
    assert f"{note} it out with --report false" in said[3]
    assert "requires tensorflow" not in said[4]
    needs = f"reading TFRecord files requires tensorflow, {lacks}"
    assert f"report.html was not written (InputError: {needs}" in said[3]
    assert needs in said[5]
    assert needs in said[6]
    assert not (tmp_path / "more").exists()
