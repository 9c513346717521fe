"""Whichever change of its output a kill comes before, the same command completes it."""

import pytest

from tests.support.command import embed, files, flags_of, ran, record, stray, write_json
from tests.support.forks import python

pytestmark = pytest.mark.slow

# Runs a command in children, each of which kills itself before another change below a folder:
# Python tells audit hooks of each. Prints the number of the last change before each kill.
KILLED = """
import json, os, signal, sys

from bert_embed.pipeline.cli import main

CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir"}
first, step, folder, *words = sys.argv[1:]
number, step = int(first), int(step)
while True:
    output = f"{folder}/{number}"
    if not (child := os.fork()):
        changes = 0

        def watch(event, arguments):
            global changes
            path = arguments[0] if arguments else None
            writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            below = isinstance(path, str) and path.startswith(output)
            if below and (writes or event in CHANGES):
                if changes == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                changes += 1

        os.dup2(2, 1)  # stdout is for the numbers
        sys.addaudithook(watch)
        os._exit(main([*words, f"--output={output}"]))
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        sys.exit(os.waitstatus_to_exitcode(status))
    print(number, flush=True)
    number += step
"""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "in.jsonl"
    texts = ["the red river", "", *(f"a bank of seven stars {n}" for n in range(30))]
    return write_json(path, *({"id": str(n), "text": t} for n, t in enumerate(texts)))


EVERY = 3  # of the changes; 1 tries all of them


def test_a_kill_before_any_change_of_the_output(tmp_path, corpus, tiny_bundle):
    settings = {"block_bytes": 900, "threads": 1, "max_rejected": "99%"}
    assert embed(tmp_path / "whole", tiny_bundle, corpus, **settings) == 0
    expected = files(tmp_path / "whole")
    assert len(expected) > 2
    words = flags_of(tmp_path / "none", tiny_bundle, corpus, **settings)
    words = ["embed", *(word for word in words if not word.startswith("--output="))]
    command = [*python(), "-c", KILLED, "0", str(EVERY), str(tmp_path / "killed"), *words]
    ended = ran(command)
    assert ended.returncode == 0, ended.stderr
    killed = ended.stdout.split()
    assert len(killed) > 10
    for number in killed:
        output = tmp_path / "killed" / number
        finished = len(list(output.glob("_state/blocks/0*.json")))
        done = (output / "run.json").is_file() and record(output)["status"] == "done"
        assert embed(output, tiny_bundle, corpus, **settings) == 0, number
        assert files(output) == expected, number
        assert record(output)["status"] == "done"
        assert record(output)["counts"]["parts_reused"] == (0 if done else finished), number
        assert stray(output) == [], number
