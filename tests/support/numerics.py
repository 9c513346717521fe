"""Runs the tests marked `numeric` as other processors would: `make test-numerics`.

TensorFlow computes with oneDNN where it thinks that it pays, which it decides by the processor,
and oneDNN chooses kernels by instruction set. Both take a variable, so one machine plays several:
each instruction set that it has with none above it, and TensorFlow's own kernels without oneDNN;
all but the one that it plays by itself, which is `make test`.
"""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tensorflow.python.util import _pywrap_util_port

_CPUINFO = Path("/proc/cpuinfo")
# oneDNN's names, lowest first, and the flag by which Linux says that a processor has it. Those that
# differ from the one below in whole numbers alone, which no graph here holds, are left out.
_SETS = {
    "SSE41": "sse4_1",
    "AVX2": "avx2",
    "AVX512_CORE": "avx512bw",
    "AVX512_CORE_BF16": "avx512_bf16",
    "AVX512_CORE_AMX": "amx_bf16",
}
_TESTS = ("tests/bert_embed", "tests/support")  # all others load Beam, and have no numeric test
_AT_ONCE = 2  # processes, each on one core
# TensorFlow asks the processor, not oneDNN, whether there are products in bfloat16, and aborts
# where oneDNN is kept from them.
_BFLOAT16 = "tests/bert_embed/engines/test_bfloat16.py"


def flags_of_processor() -> set[str]:
    """Returns the words in which Linux says what the processor has; none elsewhere."""
    return set(_CPUINFO.read_text().split()) if _CPUINFO.exists() else set()


def settings() -> list[dict[str, str]]:
    """Returns the variables of each run; elsewhere than on x86 oneDNN has one set of kernels."""
    flags = flags_of_processor()
    sets = [{"ONEDNN_MAX_CPU_ISA": name} for name, flag in _SETS.items() if flag in flags]
    on = [{"TF_ENABLE_ONEDNN_OPTS": "1", **each} for each in sets or [{}]]
    off = {"TF_ENABLE_ONEDNN_OPTS": "0"}
    return [*on[:-1], off] if _pywrap_util_port.IsMklEnabled() else on


def run(variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs the tests under these variables, with the arguments of this program."""
    marked = ["-m", "numeric and not slow", "-p", "no:cacheprovider"]
    if "ONEDNN_MAX_CPU_ISA" in variables and {"avx512_bf16", "amx_bf16"} & flags_of_processor():
        marked += ["--ignore", _BFLOAT16]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *marked, *(sys.argv[1:] or _TESTS)],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def main() -> int:
    """Returns 0 if the tests pass under every setting."""
    failed = 0
    every = settings()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for variables, done in zip(every, pool.map(run, every), strict=True):
            sys.stdout.write(" ".join(f"{name}={value}" for name, value in variables.items()))
            sys.stdout.write(f"\n{done.stdout}{done.stderr if done.returncode else ''}")
            sys.stdout.flush()
            failed += done.returncode != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
