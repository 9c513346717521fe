"""Helpers of the tests: bounds of rounding, forked processes, and reasons to skip."""

import os
import shlex
import signal
import subprocess
import sys
import time

import ml_dtypes
import numpy as np
import pytest

from bert_embed.backends.tensorflow.model import load_encoder
from bert_embed.bundle.bundle import read_bundle
from bert_embed.models.bert import BertConfig
from tests.support.command import ROOT
from tests.support.forks import Command, python
from tests.support.models import plain_bert
from tests.support.models.tiny import write_tiny_huggingface
from tests.support.rounding import (
    MINILM,
    TINY,
    UNIT_ROUNDOFF,
    distance,
    least_cosine,
    relative_error,
)


def test_bounds_are_for_the_models_of_the_tests(tiny_bundle, minilm):
    assert (read_bundle(tiny_bundle).config, minilm.config) == (TINY, MINILM)
    for precision, roundoff in UNIT_ROUNDOFF.items():  # half the gap above one
        assert roundoff == float(ml_dtypes.finfo(precision).eps) / 2


@pytest.mark.numeric
def test_this_machine_stays_within_the_bound_and_a_fault_does_not(tiny_bundle, tmp_path):
    encoder = load_encoder(read_bundle(tiny_bundle))
    tensors = write_tiny_huggingface(tmp_path / "same")
    right, wrong = (
        plain_bert.PlainBert(tensors, 4, one) for one in (plain_bert.gelu, plain_bert.gelu_new)
    )
    ids = np.random.default_rng(7).integers(5, 100, (1, 40)).astype(np.int32)
    found = encoder.hidden_states(ids, ids * 0 + 1, ids * 0)[-1][0]
    assert distance(found, right.hidden_states(ids[0], ids[0] * 0)[-1]) < relative_error()
    assert distance(found, wrong.hidden_states(ids[0], ids[0] * 0)[-1]) > 10 * relative_error()


def test_bounds_follow_depth_and_format():
    deeper = BertConfig(30522, 384, 24, 12, 1536, 512)
    assert relative_error(deeper) == pytest.approx(2 * relative_error(MINILM))
    # What docs/speed.md says of MiniLM; two machines have an error each.
    assert 2 * relative_error(MINILM) < 2e-5
    assert least_cosine(MINILM, "bfloat16") > 0.999
    assert least_cosine(MINILM, "float16") > 0.9999


pytestmark = pytest.mark.slow

_TEST = """
import pytest

def test_one():
    pytest.skip({reason!r})
"""


@pytest.mark.parametrize(
    ("reason", "flags", "code"),
    [
        ("terraform is not installed", ["--listed-skips", "-n", "1"], 0),
        ("the tool went missing", ["--listed-skips"], 1),
        ("the tool went missing", ["--listed-skips", "-n", "1"], 1),
        ("the tool went missing", [], 0),
    ],
)
def test_a_reason_decides(tmp_path, reason, flags, code):
    (tmp_path / "test_one.py").write_text(_TEST.format(reason=reason), "utf-8")
    words = ["-q", "-p", "tests.conftest", "-p", "no:cacheprovider", *flags]
    done = subprocess.run(
        [*python(), "-m", "pytest", f"--rootdir={tmp_path}", *words, "test_one.py"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, f"lacks: ['{reason}']" in done.stdout) == (code, bool(code)), done


_TELLS = """
import os, sys
streams = sys.stdin, sys.stdout, sys.stderr
kinds = [each and (each.encoding, each.line_buffering, each.write_through) for each in streams]
said = [__name__, sys.argv, os.getcwd(), os.environ, sys.stdin and sys.stdin.read(), kinds]
with open(os.environ["TOLD"], "w") as file:
    print(*said, sep="\\n", file=file)
print("out"), print("\\u00e9", file=sys.stderr)
"""
_ENDS = "import atexit, os, sys; atexit.register(print, 'end'); print('begin'); "


@pytest.mark.parametrize("closed", ["", ">&-", "2>&-", "<&- >&- 2>&-", "> /dev/full"])
@pytest.mark.parametrize(
    "code",
    [_TELLS, _ENDS + "sys.exit(7)", _ENDS + "sys.exit('why')", _ENDS + "os.kill(os.getpid(), 15)"],
    ids=["streams", "code", "sentence", "signal"],
)
def test_a_forked_process_is_as_one_that_is_started(tmp_path, code, closed):
    def ended(words):
        told = tmp_path / "told"
        told.write_text("")
        line = f"exec {shlex.join([*words, '-c', code, 'a b', '--c'])} {closed}"
        environment = {"PATH": os.environ["PATH"], "HERE": "\u00e9", "TOLD": str(told)}
        done = subprocess.run(
            ["bash", "-c", line], cwd=tmp_path, env=environment, input=b"in", capture_output=True
        )
        return done.returncode, done.stdout, done.stderr, told.read_text("utf-8")

    assert ended(python()) == ended([sys.executable])


def test_a_forked_process_takes_signals_and_is_gone_when_it_is_killed():
    code = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    streams = {"stdout": subprocess.PIPE, "text": True}
    for kind, number in (
        (Command, signal.SIGTERM),
        (Command, signal.SIGKILL),
        (subprocess.Popen, signal.SIGKILL),
    ):
        with kind([*python(), "-c", code], **streams) as job:
            pid = int(job.stdout.readline())
            job.send_signal(number)
            assert job.wait(20) == -number
            while kind is subprocess.Popen and os.path.exists(f"/proc/{pid}"):
                time.sleep(0.01)  # the server kills it once the launcher is gone
            assert not os.path.exists(f"/proc/{pid}")
