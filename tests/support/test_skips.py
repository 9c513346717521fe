"""A run with `--listed-skips` fails where a test is skipped for a reason that nobody listed."""

import subprocess
import sys

import pytest

from tests.support.command import ROOT

pytestmark = pytest.mark.slow

_TEST = """
import pytest

def test_one():
    pytest.skip({reason!r})
"""


@pytest.mark.parametrize(
    ("reason", "flag", "code"),
    [
        ("terraform is not installed", ["--listed-skips"], 0),
        ("the tool went missing", ["--listed-skips"], 1),
        ("the tool went missing", [], 0),
    ],
)
@pytest.mark.parametrize("workers", [[], ["-n", "1"]])
def test_a_reason_decides(tmp_path, reason, flag, code, workers):
    (tmp_path / "test_one.py").write_text(_TEST.format(reason=reason), "utf-8")
    words = ["-q", "-p", "tests.conftest", "-p", "no:cacheprovider", *flag, *workers]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", f"--rootdir={tmp_path}", *words, "test_one.py"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, f"lacks: ['{reason}']" in done.stdout) == (code, bool(code)), done
