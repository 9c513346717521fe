"""Processes that are ours give freed memory back, a caller's stay as they are; cores by quota."""

import os
import subprocess
import sys

import pytest

from bert_embed.backends.choose import load_engine
from bert_embed.base.environment import available_cores, cpu_quota
from tests.support.command import PROCESSES, ROOT
from tests.support.forks import python, write_python

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")

# glibc takes a freed block's size as the new limit: without the setting, 20 MiB come from the heap.
_CODE = """
import numpy as np
from bert_embed.base.environment import set_up_process
set_up_process()
def resident():
    return int(open("/proc/self/statm").read().split()[1]) >> 8
np.ones(30 << 20, np.uint8)
below = np.ones(20 << 20, np.uint8)
above, last = np.ones(4 << 20, np.uint8), np.ones(4 << 20, np.uint8)
before = resident()
del below
print(before - resident())
"""


@pytest.mark.parametrize(
    ("own", "freed"), [({}, 20), ({"MALLOC_MMAP_THRESHOLD_": "1000000000"}, 0)]
)
def test_a_freed_block_goes_back_to_the_system(own, freed):
    env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    code = [sys.executable, "-c", _CODE]
    done = subprocess.run(code, cwd=ROOT, env=env | own, capture_output=True, text=True, check=True)
    assert abs(int(done.stdout) - freed) <= 1, "MiB"


def load_and_note(path, *model):
    """Loads the engine, and notes what a process that is set up has in its environment."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} {os.environ.get('TF_CPP_MIN_LOG_LEVEL')}\n")
    return load_engine(*model)


_RUN = """
import functools, os, sys
import bert_embed
from bert_embed.pipeline.run import graph
from bert_embed.transforms.infer import BlockModelHandler
from tests.unit.base.test_own_process import load_and_note
text, output, model, notes, sys.executable, *flags = sys.argv[1:]  # which starts workers
for name, given in (("caller", []), ("workers", flags)):
    load = functools.partial(load_and_note, f"{notes}-{name}")
    graph.BlockModelHandler = functools.partial(BlockModelHandler, load_engine=load)
    bert_embed.embed(input=text, output=f"{output}-{name}", model=model, beam_args=given)
    print(name, os.getpid(), os.environ.get("TF_CPP_MIN_LOG_LEVEL"))
"""


@pytest.mark.slow
def test_a_run_sets_up_worker_processes_and_not_its_caller(tmp_path, tiny_bundle):
    (tmp_path / "in.txt").write_text("the bank\n")
    words = [tmp_path / "in.txt", tmp_path / "out", tiny_bundle, tmp_path / "notes"]
    words += [write_python(tmp_path), *PROCESSES]
    env = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    code = [*python(), "-c", _RUN, *words]
    done = subprocess.run(code, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    said = [line.split() for line in done.stdout.splitlines()]
    told = {line[0]: line[1:] for line in said if line and line[0] in ("caller", "workers")}
    assert {level for _, level in told.values()} == {"None"}
    for name, expected in (("caller", "None"), ("workers", "2")):
        noted = [line.split() for line in (tmp_path / f"notes-{name}").read_text().splitlines()]
        assert {level for _, level in noted} == {expected}
        assert all((pid == told[name][0]) == (name == "caller") for pid, _ in noted)


@pytest.mark.parametrize(
    ("membership", "files", "quota"),
    [
        ("0::/", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/", {"cpu.max": "max 100000\n"}, None),
        ("0::/a/b", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3.0),
        ("0::/a/b", {"a/b/cpu.max": "200000 100000\n", "a/cpu.max": "300000 100000\n"}, 2.0),
        ("0::/host/path", {"cpu.max": "50000 100000\n"}, 0.5),
        ("no line of the kernel", {"cpu.max": "150000 100000\n"}, None),
    ],
)
def test_the_smallest_quota_counts(tmp_path, membership, files, quota):
    (tmp_path / "cgroup").write_text(f"9:memory:/elsewhere\n{membership}\n")
    for name, text in files.items():
        path = tmp_path / "mount" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert cpu_quota(tmp_path / "cgroup", tmp_path / "mount") == quota


def test_a_machine_without_control_groups_has_no_quota(tmp_path):
    assert cpu_quota(tmp_path / "none", tmp_path) is None
    assert 1 <= available_cores() <= len(os.sched_getaffinity(0))  # whatever this one has
