"""Prints what each extra weighs: `python -m tests.integration.install.sizes`.

Megabytes and packages are those that come on top of the base install. Seconds are of uv, with the
files in its cache: what remains is what the machine does, whatever the connection.
"""

import sys

from tests.integration.install.environments import EXTRAS, build_wheel, environment

_BASE_GIVES = "`embed`, `search`, … of files on a processor; the encoder"


def main() -> None:
    """Makes an environment for the base, each extra and all of them, and prints a row of each."""
    wheel = build_wheel()
    base = environment("base", wheel)
    _print("| extra | packages | MB | seconds | gives |")
    _print("|---|---|---|---|---|")
    _print(_row("(none)", len(base.names), base.megabytes, base.seconds, _BASE_GIVES))
    for name, gives in {
        **{name: each.gives for name, each in EXTRAS.items()},
        "all": "all",
    }.items():
        environment(f"extra-{name}", wheel, [name])  # fills uv's cache
        made = environment(f"extra-{name}", wheel, [name])
        more = len(made.names - base.names)
        _print(_row(f"`{name}`", more, made.megabytes - base.megabytes, made.seconds, gives))


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _row(name: str, packages: int, megabytes: float, seconds: float, gives: str) -> str:
    return f"| {name} | {packages} | {megabytes:,.0f} | {seconds:.1f} | {gives} |"


if __name__ == "__main__":
    main()
