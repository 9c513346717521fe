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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
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
    "tests/unit/backends/test_litert_shapes.py",
    "tests/unit/test_calls.py",
    "tests/unit/test_granularity.py",
)
_QEMU = "qemu-x86_64-static"
_AT_ONCE = 2  # processes, each on one core
_PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider")


@dataclass(frozen=True)
class Run:
    """A run of tests as on some processor: its name, what precedes Python, pytest's words."""

    name: str
    words: Sequence[str]
    prefix: Sequence[str] = ()
    python: str = sys.executable
    variables: dict[str, str] = field(default_factory=dict)

    def __call__(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.prefix, self.python, *_PYTEST, *self.words],
            env={**os.environ, **self.variables},
            capture_output=True,
            text=True,
            check=False,
        )


def cpuinfo_of(kind: str, text: str) -> str:
    """Returns Linux' words on this processor, changed to those on one of `_KINDS`."""
    less = re.sub(_NEWER, "", text)
    return re.sub(r"^(flags\s*:.*)$", rf"\1 {_KINDS[kind]}", less, flags=re.MULTILINE)


def seen_as(kind: str, folder: Path) -> list[str]:
    """Returns the words before a command that let it see another kind of processor.

    Args:
        kind: One of `_KINDS`.
        folder: A file is written there, and must stay while the command runs.
    """
    file = folder / kind
    file.write_text(cpuinfo_of(kind, processor.CPUINFO.read_text("utf-8")), "utf-8")
    bound = f'mount --bind {shlex.quote(str(file))} {processor.CPUINFO} && exec "$@"'
    # Root needs no user namespace, and many machines forbid them to others.
    own = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", *own, "sh", "-c", bound, "sh"]


def other_kind(folder: Path) -> Iterator[Run]:
    """Gives the run that sees another kind of processor; none elsewhere than on x86 Linux."""
    if "avx2" in processor.flags() and shutil.which("unshare"):
        kind = "avx2" if processor.has_int8_products() else "vnni"
        words = ["-m", "not numeric and not slow", *_MESSAGES]
        yield Run(f"/proc/cpuinfo of {kind}", words, seen_as(kind, folder))


def haswell() -> Iterator[Run]:
    """Gives the run of the default engine's promises on an emulated Haswell, where qemu is."""
    program = shutil.which(_QEMU)
    if not program:
        sys.stdout.write(f"{_QEMU} is not installed (Debian: qemu-user-static): no run on it\n")
        return
    # The emulator does not follow a virtual environment's link to its interpreter.
    path = os.pathsep.join([".", *(each for each in sys.path if each.endswith("site-packages"))])
    prefix = [program, "-cpu", "Haswell", "-E", f"PYTHONPATH={path}"]
    words = ["-m", "numeric and not slow", "-k", "not tensorflow", *_PROMISES]
    # NumPy's sorting with AVX2 gives wrong orders on it (7.2); LiteRT asks for itself.
    variables = {"NPY_DISABLE_CPU_FEATURES": "X86_V3"}
    yield Run(f"{_QEMU} -cpu Haswell", words, prefix, os.path.realpath(sys.executable), variables)


def main() -> int:
    """Returns 0 if the tests pass in every run."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(_AT_ONCE) as pool:
        os.chmod(folder, 0o755)
        runs = [*haswell(), *other_kind(Path(folder))]
        for run, done in zip(runs, pool.map(Run.__call__, runs), strict=True):
            # The emulator warns of each instruction set that Haswell has and it has not.
            sys.stdout.write(f"{run.name}\n{done.stdout}{done.stderr if done.returncode else ''}")
            sys.stdout.flush()
            failed += done.returncode != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
