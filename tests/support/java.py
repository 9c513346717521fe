"""Finds Java and the jars that `make readers` fetched; a test that lacks one of them is skipped."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.command import ROOT


def java_command(program: str, least: int) -> list[str]:
    """Begins a command of Java, `least` or newer, that finds the classes of a program.

    Args:
        program: The name of its folder of jars under build/readers.
        least: The oldest Java that runs it.
    """
    jars = ROOT / "build" / "readers" / program
    if not jars.is_dir():
        pytest.skip(f"there are no jars of {program}: make readers, with Maven")
    homes = [Path(os.environ.get("JAVA_HOME", "nowhere")), *sorted(Path("/usr/lib/jvm").glob("*"))]
    paths = [shutil.which("java"), *(shutil.which(home / "bin" / "java") for home in homes)]
    java = next((path for path in paths if path and _version(path) >= least), None)
    if java is None:
        pytest.skip(f"there is no Java {least} or newer here")
    return [java, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]


def _version(java: str) -> int:
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    number = re.search(r'version "(\d+)', said)
    return int(number[1]) if number else 0
