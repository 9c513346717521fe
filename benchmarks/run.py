"""All benchmarks, one after the other: `make bench`, or `python -m benchmarks.run [NAME ...]`.

Each is a process of its own. Its JSON line goes to `benchmarks/results/<processor>.json`, in the
place of the last one of that benchmark on that processor; then the tables between the markers of
the pages are written anew, from the results of all processors. `--quick` takes small inputs and
one round, to see that everything works: it measures nothing and keeps nothing.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.headline import headline
from benchmarks.measure import table_lines

_HERE = Path(__file__).parent
RESULTS = _HERE / "results"
_ROOT = _HERE.parent
PAGES = (_HERE / "tables.md", *sorted((_ROOT / "docs").glob("*.md")))
_MODULES = {
    "end_to_end_passages": ("end_to_end", "--texts=passages", "--count=1500", "--small=64"),
    "engines_int8": ("engines", "--precision=int8"),
    "engines_passages": ("engines", "--texts=passages"),
    "engines_int8_passages": ("engines", "--precision=int8", "--texts=passages"),
    "families_memory": ("families", "--memory"),
    "dedup_real": ("dedup", "--real", "--name=dedup_real"),
    "dedup_million": ("dedup", "--vectors=1000000", "--name=dedup_million"),
    "dedup_ten_million": (
        *("dedup", "--vectors=10000000", "--output_dtype=float16", "--sample=2000"),
        "--name=dedup_ten_million",
    ),
}  # others are their own
_QUICK = {
    "end_to_end": ("--count=600", "--small=100", "--rounds=1"),
    "end_to_end_passages": ("--count=100", "--small=20", "--rounds=1"),
    "growth": ("1000 documents", "10000 documents", "--rounds=1"),
    **dict.fromkeys(
        ("engines", "engines_int8", "engines_passages", "engines_int8_passages"),
        ("--count=300", "--every=2", "--rounds=1"),
    ),
    "processes": ("--sentences=300", "--rounds=1"),
    "tokenizer": ("--rounds=1", "--warm=2000", "--texts=2000"),
}
_WHEN_NAMED = {
    "scale": ("--sentences=3000", "--rounds=1"),
    "scale_plan": ("--files=20000",),
    "recall": ("--sentences=2000", "--queries=50"),
    "table_shuffle": ("--rounds=1",),
    "exactness": ("bert", "xlm-roberta"),
    "heads": ("multilingual", "modernbert"),
    "json_tokenizer": ("--rounds=1", "--texts=2000"),
    "families": ("--rounds=1", "--texts=21"),
    "families_memory": ("--rounds=1", "--texts=21"),
    "end_to_end_families": ("--rounds=1", "--texts=40"),
    "end_to_end_kinds": ("--rounds=1", "--count=30"),
    **dict.fromkeys(
        ("dedup", "dedup_real", "dedup_million", "dedup_ten_million"),
        ("--vectors=2000", "--sample=500", "--rounds=1"),
    ),
    "search": ("--vectors=20000", "--dtypes=float32,int8", "--rounds=1"),
    "search_kinds": ("--sparse=10000", "--multi=2000", "--rounds=1"),
}


def main() -> int:
    """Runs the benchmarks that were named, or all; returns the exit code."""
    every = _QUICK | _WHEN_NAMED
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(every)}")
    parser.add_argument("--quick", action="store_true", help="small inputs, nothing kept")
    parser.add_argument("--tables", action="store_true", help="only write the pages anew")
    args = parser.parse_args()
    unknown = sorted(set(args.names) - set(every))
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]}")
    failed = [] if args.tables else _run_all(args.names or [*_QUICK], args.quick, every)
    if not args.quick:
        write_pages()
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def _run_all(names: list[str], quick: bool, flags: Mapping[str, tuple[str, ...]]) -> list[str]:
    if not quick and os.getloadavg()[0] > 0.5:
        print("this machine is busy: figures of a busy machine favour one side or the other")
    failed = []
    for name in names:
        code, printed = run(name, flags[name] if quick else ())
        if code != 0:
            failed.append(name)
        elif not quick:
            keep(json.loads(printed[-1]))
    return failed


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


def file_of(processor: str) -> Path:
    """Returns the file of a processor's results.

    >>> file_of("Intel(R) Xeon(R) Processor (cpu family 6, model 207)").name
    'intel-xeon-processor-cpu-family-6-model-207.json'
    """
    plain = re.sub(r"\((R|TM)\)", "", processor, flags=re.IGNORECASE).lower()
    return RESULTS / f"{'-'.join(re.findall('[a-z0-9]+', plain))}.json"


def keep(record: Mapping[str, Any]) -> None:
    """Puts a record into its processor's file, which other machines' runs leave alone."""
    path = file_of(record["machine"]["processor"])
    path.parent.mkdir(exist_ok=True)
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept[record["benchmark"]] = record
    lines = (f"{json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept))
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def write_pages() -> None:
    """Writes the tables of every page that has markers for a benchmark's results."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*"))]
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        new = with_section(text, "headline", headline(results))
        for name in sorted(set().union(*results)):
            sections = [section(one[name]) for one in results if name in one]
            new = with_section(new, name, "\n\n".join(sections))
        if new != text:
            page.write_text(new, encoding="utf-8")


def section(record: Mapping[str, Any]) -> str:
    """Returns what a page says of a result: where and when, and the table."""
    machine = record["machine"]
    libraries = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    cores = f"{machine['cores']} core{'s' if machine['cores'] > 1 else ''}"
    device = machine.get("device", "cpu")
    about = [machine["date"], f"commit {record['commit']}" if "commit" in record else ""]
    about += [machine["processor"], " ".join(machine.get("instructions", ())), cores]
    about.append("" if device == "cpu" else f"on its {device}")
    about_run = f"{', '.join(filter(None, about))}, Python {machine['python']}; {libraries}."
    return "\n".join([about_run, "", *table_lines(record["table"])])


def with_section(text: str, name: str, new: str) -> str:
    """Returns a page with what stands between the markers of `name` replaced, if it has them.

    >>> with_section("a\\n<!-- x -->\\nold\\n<!-- /x -->\\nb", "x", "new")
    'a\\n<!-- x -->\\nnew\\n<!-- /x -->\\nb'
    """
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}{new}\n{match[2]}", text, count=1)


if __name__ == "__main__":
    sys.exit(main())
