"""Memory that a model has freed goes back to the system, unless the user set it otherwise."""

import os
import subprocess
import sys

import pytest

from tests.support.command import ROOT

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")

# glibc takes a freed block's size as the new limit: without the setting, 20 MiB come from the heap.
_CODE = """
import numpy as np
from bert_embed.engines.own_process import set_up_process
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
