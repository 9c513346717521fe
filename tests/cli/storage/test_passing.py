"""Errors of the system that pass: code 1 with the file's name, then the same command goes on."""

import builtins
import errno
import io
import itertools
import os
import shutil

import pytest

from bert_embed.pipeline import job
from bert_embed.pipeline.cli import main
from bert_embed.storage import local
from tests.support.command import embed, files, flags_of, write_json

pytestmark = pytest.mark.slow

PASSING = itertools.cycle(
    [
        *(errno.EIO, errno.ESTALE, errno.EINTR, errno.EAGAIN, errno.EMFILE, errno.ENFILE),
        *(errno.ENOMEM, errno.ETIMEDOUT, errno.EBUSY),
    ]
)
CALLS = {
    "open": [(builtins, "open"), (io, "open"), (local.NamedFile, "__init__")],
    "scandir": [(os, "scandir"), (os, "listdir")],
    "stat": [(os, "stat"), (os, "lstat")],
    "mkdir": [(os, "mkdir")],
    "unlink": [(os, "remove"), (os, "unlink")],
}
MOST = 8  # calls of a kind that fail, evenly spread


class Fault:
    """Fails one call on a path below a folder, before the job of a command starts."""

    def __init__(self, folder, patches, left):
        self.folder, self.left, self.count, self.hit = str(folder), left, 0, None
        run_job = job.run_job

        def passed(*arguments):
            self.hit = self.hit or ("", "")  # no more of them
            return run_job(*arguments)

        patches.setattr(job, "run_job", passed)

    def failing(self, function):
        def call(*arguments, **options):
            paths = [one for one in arguments if isinstance(one, str | os.PathLike)]
            if paths and os.fspath(paths[0]).startswith(self.folder) and self.hit is None:
                self.count += 1
                if self.count == self.left:
                    number = next(PASSING)
                    self.hit = os.fspath(paths[0]), os.strerror(number)
                    raise OSError(number, self.hit[1], self.hit[0])
            return function(*arguments, **options)

        return call


def counted(folder, call, words, at=None):
    """Runs a command, in which the call of number `at` fails; its code, calls and fault."""
    with pytest.MonkeyPatch.context() as patches:
        fault = Fault(folder, patches, at)
        for place, name in CALLS[call]:
            patches.setattr(place, name, fault.failing(getattr(place, name)))
        return main(words), fault.count, fault.hit


@pytest.fixture(scope="module")
def place(tiny_bundle, tmp_path_factory):
    """A folder with an input, a model, and the outputs of one file and of two."""
    place = tmp_path_factory.mktemp("passing")
    shutil.copytree(tiny_bundle, place / "model")
    (place / "in").mkdir()
    for name in "ab":
        records = [{"id": f"{name}{n}", "text": f"the bank {n}"} for n in range(3)]
        write_json(place / "in" / f"{name}.jsonl", *records)
    assert embed(place / "first", str(place / "model"), place / "in" / "a.jsonl") == 0
    assert embed(place / "both", str(place / "model"), place / "in" / "*.jsonl") == 0
    return place


def words_of(command, place):
    out = place / "out"
    if command in ("search", "verify"):
        return [command, str(out), *(["bank"] if command == "search" else [])]
    flags = {"skip_existing": place / "first"} if command == "skip" else {}
    return ["embed", *flags_of(out, str(place / "model"), place / "in" / "*.jsonl", **flags)]


@pytest.mark.parametrize("command", ["first", "again", "skip", "search", "verify"])
def test_a_call_that_fails_once_fails_no_command_for_good(place, capsys, command):
    words, out = words_of(command, place), place / "out"

    def anew():
        shutil.rmtree(out, ignore_errors=True)
        if command not in ("first", "skip"):
            shutil.copytree(place / "both", out)

    anew()
    assert main(words) == 0
    whole = files(out)
    for call in CALLS:
        anew()
        code, count, _ = counted(place, call, words)
        assert code == 0
        anew()
        for at in sorted({1 + number * count // MOST for number in range(MOST) if count}):
            capsys.readouterr()
            code, _, hit = counted(place, call, words, at)
            told = capsys.readouterr().err
            assert "Traceback" not in told
            assert code in (0, 1), (call, at, hit, told)
            if code == 1:
                [sentence] = [line for line in told.splitlines() if line.startswith("error: ")]
                assert str(place) in sentence, (call, at, hit)
                assert hit[1] in sentence, (call, at, hit)
            else:
                assert files(out) == whole, (call, at, hit)
                anew()
        assert main(words) == 0
        assert files(out) == whole, call


@pytest.mark.parametrize("command", ["again", "search", "verify"])
def test_a_file_that_opens_and_cannot_be_read_is_named(place, tmp_path, capsys, command):
    shutil.copytree(place / "both", tmp_path / "out")
    (tmp_path / "out" / "run.json").unlink()
    (tmp_path / "out" / "run.json").symlink_to("/proc/self/mem")  # whose first byte nobody may read
    words = [word.replace(f"{place}/out", f"{tmp_path}/out") for word in words_of(command, place)]
    assert main(words) == 1
    said = f"error: {tmp_path}/out/run.json cannot be read: Input/output error"
    assert said in capsys.readouterr().err
