"""Runs tests as on other processors than this machine's: `make test-processors`.

Two things depend on the processor, and each is steered by itself:

- The product reads in /proc/cpuinfo whether products in int8 are fast, and warns where they are not
  (`bert_embed.base.environment`). In a mount namespace of its own a process sees another file:
  that of a processor with AVX2 alone, or with AVX-512 and VNNI. The tests of what the commands say
  run as on the one that this machine's is not; `make test` is the run as on the other.
- LiteRT asks the processor itself. Where qemu-user-static is installed, the numeric tests of the
  default engine run on an emulated Haswell, which has AVX2 and FMA and nothing newer.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bert_embed.base import environment as processor

# Those that compare what a command says with what it should.
_MESSAGES = (
    "tests/cli/test_estimate.py",
    "tests/cli/runners",
    "tests/cli/test_errors.py",
    "tests/cli/test_shown.py",
)
_NEWER = r" (?:avx512\w*|avx_vnni\w*|avx_ne_convert|amx_\w+)\b"
_AVX512 = "avx512f avx512bw avx512dq avx512vl"
# What each kind of processor has above AVX2.
_KINDS = {
    "avx2": "",
    "vnni": f"{_AVX512} avx512_vnni",
}
# What the default engine promises in numbers; none of them loads TensorFlow.
_PROMISES = (
    "tests/unit/backends/test_reference.py",
    "tests/unit/test_calls.py",
    "tests/unit/test_granularity.py",
)
_QEMU = "qemu-x86_64-static"
_AT_ONCE = 2  # processes, each on one core
_PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")

Run = tuple[str, list[str], dict[str, str]]  # its name, the command, and variables


def other_kind(folder: Path) -> Run | None:
    """Returns the run that sees another kind of processor; None elsewhere than on x86 Linux.

    Args:
        folder: A file is written there, and must stay while the command runs.
    """
    if "avx2" not in processor.flags() or not shutil.which("unshare"):
        return None
    kind = "avx2" if processor.has_int8_products() else "vnni"
    less = re.sub(_NEWER, "", processor.CPUINFO.read_text("utf-8"))
    file, more = folder / kind, rf"\1 {_KINDS[kind]}"
    file.write_text(re.sub(r"^(flags\s*:.*)$", more, less, flags=re.MULTILINE), "utf-8")
    bound = f'mount --bind {shlex.quote(str(file))} {processor.CPUINFO} && exec "$@"'
    # Root needs no user namespace, and many machines forbid them to others.
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    seen = ["unshare", "--mount", *own, "sh", "-c", bound, "sh", sys.executable, *_PYTEST]
    words = ["-m", "not numeric and not slow", *_MESSAGES]
    return f"/proc/cpuinfo of {kind}", [*seen, *words], {}


def haswell() -> Run | None:
    """Returns the run of the default engine's promises on an emulated Haswell, where qemu is."""
    program = shutil.which(_QEMU)
    if not program:
        sys.stdout.write(f"{_QEMU} is not installed (Debian: qemu-user-static): no run on it\n")
        return None
    # The emulator does not follow a virtual environment's link to its interpreter.
    path = os.pathsep.join([".", *(each for each in sys.path if each.endswith("site-packages"))])
    emulated = [program, "-cpu", "Haswell", "-E", f"PYTHONPATH={path}"]
    emulated += [os.path.realpath(sys.executable), *_PYTEST]
    words = ["-m", "numeric and not slow", "-k", "not tensorflow", *_PROMISES]
    # NumPy's sorting with AVX2 gives wrong orders on it (7.2); LiteRT asks for itself.
    variables = {"NPY_DISABLE_CPU_FEATURES": "X86_V3"}
    return f"{_QEMU} -cpu Haswell", [*emulated, *words], variables


def ran(run: Run) -> subprocess.CompletedProcess[str]:
    _, command, variables = run
    env = os.environ | variables
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def main() -> int:
    """Returns 0 if the tests pass in every run."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_AT_ONCE) as pool:
        os.chmod(folder, 0o755)
        runs = list(filter(None, (haswell(), other_kind(Path(folder)))))
        for (name, *_), done in zip(runs, pool.map(ran, runs), strict=True):
            # The emulator warns of each instruction set that Haswell has and it has not.
            sys.stdout.write(f"{name}\n{done.stdout}{done.stderr if done.returncode else ''}")
            sys.stdout.flush()
            failed += done.returncode != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
