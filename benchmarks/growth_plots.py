"""The page on growth: docs/growth.json in, two plots and the tables of docs/growth.md out.

matplotlib draws, from an environment of its own, which the product's never holds:

    python -m venv build/plots-venv
    build/plots-venv/bin/pip install -r benchmarks/growth-requirements.txt
    build/plots-venv/bin/python -m benchmarks.growth_plots
"""

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

_DOCS = Path("docs")
_SMALL = "1000 documents"
_SIZE = re.compile(r"\d+ documents")


def main() -> None:
    """Writes the plots and what stands between the page's markers."""
    found = json.loads((_DOCS / "growth.json").read_text(encoding="utf-8"))
    cases = found["cases"]
    sizes = sorted(
        (case for name, case in cases.items() if _SIZE.fullmatch(name)),
        key=lambda case: case["documents"],
    )
    others = {name: case for name, case in cases.items() if not _SIZE.fullmatch(name)}
    plot(
        "growth_time.svg",
        "microseconds of one core a document",
        [more["documents"] for more in sizes[1:]],
        [each_more(less, more) for less, more in pairwise(sizes)],
    )
    plot(
        "growth_memory.svg",
        "peak of memory, MiB",
        [case["documents"] for case in sizes],
        [case["peak_mib"] for case in sizes],
    )
    page = _DOCS / "growth.md"
    text = page.read_text(encoding="utf-8")
    text = with_lines(text, "machine", [_machine(found)])
    text = with_lines(text, "sizes", size_rows(sizes))
    text = with_lines(text, "others", other_rows(others, cases[_SMALL]))
    page.write_text(text, encoding="utf-8")


def each_more(less: dict[str, Any], more: dict[str, Any]) -> float:
    """Microseconds that each document costs which the larger case has and the smaller has not."""
    documents = more["documents"] - less["documents"]
    return (more["cpu_seconds"] - less["cpu_seconds"]) / documents * 1e6


def size_rows(sizes: list[dict[str, Any]]) -> list[str]:
    """A table of the cases of ever more documents."""
    rows = [
        "| documents | blocks | CPU s | start-up CPU s | µs each document more | peak MiB | runs |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for less, case in zip([None, *sizes], sizes, strict=False):
        more = "" if less is None else f"{each_more(less, case):.2f}"
        cells = (
            f"{case['documents']:,}",
            f"{case['blocks']:,}",
            f"{case['cpu_seconds']:.2f}",
            f"{case['startup_cpu_seconds']:.1f}",
            more,
            f"{case['peak_mib']:,.0f}",
            f"{case['rounds']}",
        )
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def other_rows(others: dict[str, dict[str, Any]], small: dict[str, Any]) -> list[str]:
    """A table of the odd inputs."""
    rows = [
        "| input | bytes | documents | blocks | CPU s | MB of input a CPU s | peak MiB | runs |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, case in others.items():
        seconds = case["cpu_seconds"] - small["cpu_seconds"]
        cells = (
            name,
            f"{case['bytes']:,}",
            f"{case['documents']:,}",
            f"{case['blocks']:,}",
            f"{case['cpu_seconds']:.2f}",
            f"{case['bytes'] / max(seconds, 1e-3) / 1e6:.1f}",
            f"{case['peak_mib']:,.0f}",
            f"{case['rounds']}",
        )
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def plot(name: str, label: str, documents: list[int], values: list[float]) -> None:
    """Draws values over numbers of documents, these by their logarithm, into an SVG."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = name  # else equal plots are not equal bytes
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3), layout="constrained")
    axes.semilogx(documents, values, marker="o")
    axes.set_ylim(0, 1.25 * max(values))
    axes.set_xlabel("documents")
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    figure.savefig(_DOCS / name, metadata={"Date": None})


def with_lines(text: str, name: str, lines: list[str]) -> str:
    """The page with what stands between the markers of `name` replaced.

    Raises:
        ValueError: It has no such markers.

    >>> with_lines("<!-- a -->\\nold\\n<!-- /a -->", "a", ["new"])
    '<!-- a -->\\nnew\\n<!-- /a -->'
    """
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"docs/growth.md has no markers <!-- {name} --> and <!-- /{name} -->")
    made = "\n".join(lines)
    return pattern.sub(lambda found: f"{found[1]}{made}\n{found[2]}", text, count=1)


def _machine(found: dict[str, Any]) -> str:
    machine = found["machine"]
    libraries = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    dates = sorted({case["date"] for case in found["cases"].values()})
    dims = sorted({case["dim"] for case in found["cases"].values()})
    where = f"{machine['processor']}, one core, Python {machine['python']}; {libraries}"
    numbers = " and ".join(map(str, dims))
    return f"{' to '.join({dates[0]: 0, dates[-1]: 0})}, {where}; vectors of {numbers} numbers."


if __name__ == "__main__":
    main()
