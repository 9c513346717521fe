"""Makes build/aarch64, an emulated machine: `python -m tests.integration.aarch64.machine`.

In `root` are Debian's Python for aarch64 and what it needs, in `packages` the wheel of this clone
and the base. Both are unpacked, and nothing in them is run while they are made.
"""

import os
import shlex
import shutil
import subprocess
import sys

from tests.integration.install.environments import build_wheel, uv
from tests.support.command import ROOT

FOLDER = ROOT / "build" / "aarch64"
_DEBIAN, _PYTHON = "bookworm", "3.11"
_NEEDED = {"qemu-aarch64-static": "qemu-user-static", "debootstrap": "debootstrap"}
# Linux' words on a Neoverse N1: the emulator shows /proc of the machine that it runs on, on which
# LiteRT for aarch64 crashes. A file in `root` hides one of that machine.
_FEATURES = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop "
    "asimddp"
)
_PROCESSOR = """processor\t: {number}
BogoMIPS\t: 50.00
Features\t: {features}
CPU implementer\t: 0x41
CPU architecture: 8
CPU variant\t: 0x3
CPU part\t: 0xd0c
CPU revision\t: 1

"""


def main() -> None:
    for program, package in _NEEDED.items():
        if not shutil.which(program):
            sys.exit(f"{program} is needed (Debian: {package})")
    shutil.rmtree(FOLDER, ignore_errors=True)
    root, packages, debs = FOLDER / "root", FOLDER / "packages", FOLDER / "debs"
    words = ["--download-only", "--arch=arm64", "--variant=minbase", "--include=python3,libstdc++6"]
    done = subprocess.run(
        ["debootstrap", *words, _DEBIAN, debs], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"debootstrap, which must be run by root, failed:\n{done.stdout}{done.stderr}")
    for deb in sorted(debs.glob("var/cache/apt/archives/*.deb")):
        subprocess.run(["dpkg-deb", "--extract", deb, root], check=True)
    shutil.rmtree(debs)
    machine = ["--python-platform", "aarch64-unknown-linux-gnu", "--python-version", _PYTHON]
    pins = ["--only-binary", ":all:", "--constraint", ROOT / "requirements.txt"]
    uv(["pip", "install", *machine, *pins, "--target", packages, build_wheel()])
    (root / "proc").mkdir(exist_ok=True)
    processors = [
        _PROCESSOR.format(number=number, features=_FEATURES)
        for number in range(os.cpu_count() or 1)
    ]
    (root / "proc" / "cpuinfo").write_text("".join(processors), "ascii")
    variables = {"PYTHONHOME": root / "usr", "PYTHONPATH": packages}
    emulated = ["qemu-aarch64-static", "-cpu", "neoverse-n1", "-L", root]
    emulated += [word for name in variables for word in ("-E", f"{name}={variables[name]}")]
    emulated.append(root / "usr" / "bin" / f"python{_PYTHON}")
    python = FOLDER / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.join(map(str, emulated))} "$@"\n', "utf-8")
    python.chmod(0o755)


if __name__ == "__main__":
    main()
