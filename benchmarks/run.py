"""All benchmarks, one after the other: `make bench`, or `python -m benchmarks.run [NAME ...]`.

Each is a process of its own. What it prints is shown; its table and JSON line take the place of
the last ones between the markers of benchmarks/README.md. `--quick` takes small inputs and one
round, to see that everything works: it measures nothing, and the README stays as it is.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent / "README.md"
_MODULES = {"engines_int8": ("engines", "--precision=int8")}  # others are their own
_QUICK = {
    "end_to_end": ("--sentences=600", "--small=100", "--rounds=1"),
    "host_path": ("--sentences=20000", "--rounds=1"),
    "host_profile": ("--sentences=20000", "--rounds=1"),
    "memory": ("--few=10000", "--many=100000", "--rounds=1"),
    "encoder": ("--sentences=500", "--rounds=1"),
    "encoder_profile": ("--sentences=300", "--rounds=1"),
    "engines": ("--sentences=300", "--every=2", "--rounds=1"),
    "engines_int8": ("--sentences=300", "--every=2", "--rounds=1"),
    "processes": ("--sentences=300", "--rounds=1"),
    "tokenizer": ("--rounds=1", "--warm=2000", "--texts=2000"),
}


def main() -> int:
    """Runs the benchmarks that were named, or all; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(_QUICK)}")
    parser.add_argument("--quick", action="store_true", help="small inputs, nothing written")
    args = parser.parse_args()
    unknown = sorted(set(args.names) - set(_QUICK))
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]}")
    if not args.quick and os.getloadavg()[0] > 0.5:
        print("this machine is busy: figures of a busy machine favour one side or the other")
    failed = []
    for name in args.names or _QUICK:
        code, printed = run(name, _QUICK[name] if args.quick else ())
        if code != 0:
            failed.append(name)
        elif not args.quick:
            text = README.read_text(encoding="utf-8")
            README.write_text(with_section(text, name, section(printed)), encoding="utf-8")
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def run(name: str, flags: tuple[str, ...]) -> tuple[int, list[str]]:
    """Runs a benchmark, shows what it prints, and returns its exit code and its lines."""
    module, *always = _MODULES.get(name, (name,))
    command = [sys.executable, "-m", f"benchmarks.{module}", *always, *flags]
    print(f"\n$ python {' '.join(command[1:])}", flush=True)
    printed = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            printed.append(line.rstrip("\n"))
    return process.returncode, printed


def section(printed: list[str]) -> str:
    """Returns what the README says of a run: where and when, the table, the JSON line.

    Raises:
        ValueError: The run printed no table or no JSON line.
    """
    table = [line for line in printed if line.startswith("|")]
    records = [line for line in printed if line.startswith("{")]
    if not table or not records:
        raise ValueError(f"a benchmark must print a table and a JSON line, got {printed[-3:]}")
    record = json.loads(records[-1])
    machine = record["machine"]
    libraries = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    where = f"{machine['processor']}, {' '.join(machine['instructions'])}, {machine['cores']} cores"
    about = f"{machine['date']}, {where}, Python {machine['python']}; {libraries}."
    lines = [about, "", *table, "", "```json", records[-1]]
    return "\n".join([*lines, "```"])


def with_section(text: str, name: str, new: str) -> str:
    """Returns the README with what stands between the markers of `name` replaced.

    Raises:
        ValueError: The README has no such markers.

    >>> with_section("a\\n<!-- x -->\\nold\\n<!-- /x -->\\nb", "x", "new")
    'a\\n<!-- x -->\\nnew\\n<!-- /x -->\\nb'
    """
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"README.md has no markers <!-- {name} --> and <!-- /{name} -->")
    return pattern.sub(lambda found: f"{found[1]}{new}\n{found[2]}", text, count=1)


if __name__ == "__main__":
    sys.exit(main())
