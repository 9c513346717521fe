"""python -m bert.importers SOURCE DEST: an import in a process of its own."""

import argparse
import sys

from bert.importers import import_model


def main(arguments: list[str] | None = None) -> int:
    """Imports SOURCE into DEST; what is wrong goes to stderr as one line, with exit code 2."""
    parser = argparse.ArgumentParser(prog="python -m bert.importers")
    parser.add_argument("source")
    parser.add_argument("dest")
    parser.add_argument("--name", help="what the bundle says of its source")
    parser.add_argument("--licence", help="what the bundle says of its licence")
    parser.add_argument("--allow_untrusted_model", action="store_true")
    given = parser.parse_args(arguments)
    try:
        import_model(
            given.source,
            given.dest,
            allow_untrusted=given.allow_untrusted_model,
            name=given.name,
            licence=given.licence,
        )
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
