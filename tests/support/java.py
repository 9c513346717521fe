"""Finds Java and the jars that `make readers` fetched; a test that lacks one of them is skipped."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.command import ROOT


def jars_of(program: str) -> list[Path]:
    """The jars of a program; skips the test if they are not there."""
    jars = sorted((ROOT / "build" / "readers" / program).glob("*.jar"))
    if not jars:
        pytest.skip(f"there are no jars of {program}: make readers, with Maven")
    return jars


def java_command(jars: Sequence[Path], least: int) -> list[str]:
    """Begins a command of Java, `least` or newer, that finds classes in these jars."""
    homes = [Path(os.environ.get("JAVA_HOME", "nowhere")), *sorted(Path("/usr/lib/jvm").glob("*"))]
    paths = [shutil.which("java"), *(shutil.which(home / "bin" / "java") for home in homes)]
    java = next((path for path in paths if path and _version(path) >= least), None)
    if java is None:
        pytest.skip(f"there is no Java {least} or newer here")
    flags = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [java, *flags, "-cp", ":".join(map(str, jars))]


def _version(java: str) -> int:
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    number = re.search(r'version "(\d+)', said)
    return int(number[1]) if number else 0
