"""All benchmarks, one after the other: `make bench`, or `python -m benchmarks.run [NAME ...]`.

Each is a process of its own. Its JSON line goes to `benchmarks/results/<processor>.json`, in the
place of the last one of that benchmark on that processor; then the tables between the markers of
the pages are written anew, from the results of all processors. `--quick` takes small inputs and
one round, to see that everything works; `--set rounds=5` changes a setting of those that are named.
Neither keeps its results.
"""

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cost import PRICE_PER_HOUR, cost
from benchmarks.headline import headline
from benchmarks.measure import table_lines

_HERE = Path(__file__).parent
RESULTS = _HERE / "results"
_ROOT = _HERE.parent
PAGES = (_ROOT / "README.md", _HERE / "tables.md", *sorted((_ROOT / "docs").glob("*.md")))


@dataclass(frozen=True)
class Benchmark:
    """A function of a module, which takes the name and settings, prints, and ends with a JSON line.

    Attributes:
        function: `module.function`.
        quick: Settings to see that it works.
        settings: Those in which it differs from others of that function.
        usual: Whether it runs when none is named.
    """

    function: str
    quick: Mapping[str, object]
    settings: Mapping[str, object] = field(default_factory=dict)
    usual: bool = False

    def call(self, name: str, changes: Mapping[str, object]) -> None:
        """Runs it in this process."""
        module, function = self.function.split(".")
        call: Callable[..., None] = getattr(
            importlib.import_module(f"benchmarks.{module}"), function
        )
        call(name, **{**self.settings, **changes})


_END_TO_END = "end_to_end.end_to_end"
_ENGINES, _ENGINES_QUICK = "engines.engines", {"count": 300, "every": 2, "rounds": 1}
_ROWS_QUICK = {"rounds": 1, "texts": 21}
BENCHMARKS = {
    "end_to_end": Benchmark(_END_TO_END, {"count": 600, "small": 100, "rounds": 1}, usual=True),
    "end_to_end_passages": Benchmark(
        _END_TO_END, {"count": 100, "small": 20, "rounds": 1}, usual=True
    ),
    "end_to_end_families": Benchmark(_END_TO_END, {"count": 168, "rounds": 1}),
    "end_to_end_kinds": Benchmark(_END_TO_END, {"count": 94, "rounds": 1}),
    "backends": Benchmark(
        "backends.backends", {"sentences": 64, "passages": 16, "rounds": 1}, usual=True
    ),
    "growth": Benchmark(
        "growth.growth",
        {"cases": ("1000 documents", "10000 documents"), "rounds": 1},
        usual=True,
    ),
    "chain": Benchmark("chain.chain", {"days": 3, "shown": (1, 3), "parts": 20, "finished": 1000}),
    "engines": Benchmark(_ENGINES, _ENGINES_QUICK, usual=True),
    "engines_int8": Benchmark(_ENGINES, _ENGINES_QUICK, {"precision": "int8"}, usual=True),
    "engines_passages": Benchmark(_ENGINES, _ENGINES_QUICK, {"texts": "passages"}, usual=True),
    "engines_int8_passages": Benchmark(
        _ENGINES, _ENGINES_QUICK, {"precision": "int8", "texts": "passages"}, usual=True
    ),
    "families": Benchmark("engines.families", _ROWS_QUICK),
    "families_memory": Benchmark("engines.families_memory", _ROWS_QUICK),
    "processes": Benchmark("processes.processes", {"sentences": 300, "rounds": 1}, usual=True),
    "tokenizer": Benchmark(
        "tokenizer.tokenizer", {"rounds": 1, "warm": 2000, "texts": 2000}, usual=True
    ),
    "json_tokenizer": Benchmark("tokenizer.json_tokenizer", {"rounds": 1, "texts": 2000}),
    "scale": Benchmark("scale.scale", {"sentences": 3000, "rounds": 1}),
    "scale_plan": Benchmark("scale_plan.scale_plan", {"files": 20_000}),
    "recall": Benchmark("search.recall", {"sentences": 2000, "queries": 50}),
    "search": Benchmark(
        "search.search", {"vectors": 20_000, "dtypes": ("float32", "int8"), "rounds": 1}
    ),
    "search_kinds": Benchmark(
        "search.search_kinds", {"sparse": 10_000, "multi": 2000, "rounds": 1}
    ),
    "exactness": Benchmark("exactness.exactness", {"families": ("bert", "xlm-roberta")}),
    "heads": Benchmark("exactness.heads", {"families": ("multilingual", "modernbert")}),
}


def main() -> int:
    """Runs the benchmarks that were named, or all; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="small inputs, nothing kept")
    parser.add_argument("--tables", action="store_true", help="only write the pages anew")
    parser.add_argument(
        "--price_per_hour", type=float, default=PRICE_PER_HOUR, help="of the readme's table of cost"
    )
    parser.add_argument("--set", nargs="+", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    unknown = sorted(set(args.names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]}")
    if args.here:
        (name,) = args.names
        BENCHMARKS[name].call(name, json.loads(args.set[0]))
        return 0
    changes = dict(map(_setting, args.set))
    names = args.names or [name for name, one in BENCHMARKS.items() if one.usual]
    failed = [] if args.tables else _run_all(names, args.quick, changes)
    if not args.quick and not changes:
        write_pages(args.price_per_hour)
    if failed:
        print(f"failed: {', '.join(failed)}")
    return 1 if failed else 0


def _setting(word: str) -> tuple[str, object]:
    name, _, value = word.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _run_all(names: Sequence[str], quick: bool, changes: Mapping[str, object]) -> list[str]:
    if not quick and os.getloadavg()[0] > 0.5:
        print("this machine is busy: figures of a busy machine favour one side or the other")
    failed = []
    for name in names:
        code, printed = run(name, {**(BENCHMARKS[name].quick if quick else {}), **changes})
        if code != 0:
            failed.append(name)
        elif not quick and not changes:
            keep(json.loads(printed[-1]))
    return failed


def run(name: str, changes: Mapping[str, object]) -> tuple[int, list[str]]:
    """Runs a benchmark in a process, shows what it prints, returns its exit code and its lines."""
    words = ["-m", "benchmarks.run", name, "--here", "--set", json.dumps(changes)]
    print(f"\n{name} {json.dumps(changes)}", flush=True)
    printed = []
    with subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True) as process:
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


def write_pages(price_per_hour: float = PRICE_PER_HOUR) -> None:
    """Writes the tables of every page that has markers for a benchmark's results."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*"))]
    # What was compiled for chips, and not run, is of no machine.
    results = [one for one in files if all("machine" in record for record in one.values())]
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        new = with_section(text, "headline", headline(results))
        new = with_section(new, "cost", cost(results, price_per_hour))
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
