"""One day of a corpus in, a run of `embed` out: its input, its folder, the days it compares with.

python -m deploy.cron.embed_day --input '/data/texts/{day}' --output /data/vectors
    --day 2026-01-02 [--ready FILE] [--earlier all|N] [--begun FOLDER] [-- FLAGS OF EMBED]
"""

import argparse
import datetime
import glob
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from bert_embed.base.errors import InputError, StorageError
from bert_embed.pipeline import cli
from bert_embed.pipeline.console import hide_secrets
from bert_embed.pipeline.errors import ExitCode, UsageError, flag_message
from bert_embed.pipeline.options.command_line import parse_embed
from bert_embed.pipeline.runners.beam import configure_storage
from bert_embed.results.chain import earlier_runs
from bert_embed.results.run_record import RunRecord, read_record
from bert_embed.storage.files import absolute, for_each, join, list_files
from bert_embed.transforms.output_folder import RUN_FILE

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


class NotYet(Exception):
    """A day that cannot be embedded now, but can later.

    Attributes:
        code: The exit code that says why.
    """

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def main(arguments: Sequence[str] | None = None) -> int:
    """Embeds a day.

    Returns:
        The ExitCode of `embed`; NO_INPUT, or EARLIER_UNFINISHED.
    """
    try:
        args = _parse(list(sys.argv[1:] if arguments is None else arguments))
        words = day_words(args)
    except NotYet as reason:
        sys.stderr.write(f"not yet: {reason}\n")
        return reason.code
    except (InputError, OSError) as error:
        sys.stderr.write(f"error: {hide_secrets(flag_message(error))}\n")
        return ExitCode.FAILED if isinstance(error, StorageError) else ExitCode.USAGE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    code = cli.main(["embed", *words])
    with suppress(InputError, OSError):  # else the mark stays, which a run.json outweighs
        if args.begun and read_record(join(absolute(args.output), args.day)) is not None:
            Path(args.begun, args.day).unlink(missing_ok=True)
    return code


def _parse(arguments: list[str]) -> argparse.Namespace:
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(prog="embed_day", allow_abbrev=False)
    parser.add_argument("--input", required=True, help="with {day} where the date stands")
    parser.add_argument("--output", required=True, help="holds a folder for each day")
    parser.add_argument("--day", required=True, help="such as 2026-01-02")
    parser.add_argument("--ready", default="", help="a file, with {day}: no input before it")
    parser.add_argument("--earlier", default="all", help="all days before, or how many")
    parser.add_argument("--begun", default="", help="a folder for marks of days without run.json")
    args = parser.parse_args(arguments[:cut])
    try:
        if not _DAY.fullmatch(args.day):  # fromisoformat takes other spellings, too
            raise ValueError
        datetime.date.fromisoformat(args.day)
    except ValueError as error:
        raise UsageError(f"--day must be a date such as 2026-01-02, got {args.day!r}") from error
    args.flags = [word.replace("{day}", args.day) for word in arguments[cut + 1 :]]
    if "{day}" not in args.input:
        raise UsageError(f"INPUT {args.input} must say with {{day}} where the date stands")
    if args.earlier != "all" and not re.fullmatch("[0-9]{1,5}", args.earlier):
        raise UsageError(f"EARLIER must be all or a number of days, not {args.earlier}")
    return args


def day_words(args: argparse.Namespace) -> list[str]:
    """The flags of `embed` for a day.

    Raises:
        NotYet: The input is not there, or a day before is not finished.
        ValueError: A flag is wrong.
        OSError: A place cannot be read.
    """
    root = absolute(args.output)
    source = args.input.replace("{day}", args.day)
    words = [f"--input={source}", f"--output={join(root, args.day)}", *args.flags]
    options = parse_embed(words)
    configure_storage(options.job)
    ready = args.ready.replace("{day}", args.day)
    for place in (ready, source):
        if place and not list_files(place):
            what = "no file in" if os.path.isdir(place) else "no"
            raise NotYet(
                ExitCode.NO_INPUT,
                f"{args.day} has {what} {place}; a day without documents needs an empty file",
            )
    # A run that was started keeps the days it was started with, or it would be another run.
    record = None if options.overwrite else read_record(join(root, args.day))
    if record is None:
        days = _days_before(root, args)
    else:
        days = _known_days(join(root, args.day), record)
        skipped = record.options.get("skip_blocks")
        if skipped and not options.skip_blocks:  # else catching up would meet those blocks again
            words.append(f"--skip_blocks={','.join(map(str, skipped))}")
    if args.begun and not options.dry_run:
        Path(args.begun, args.day).touch()
    return [*words, *(f"--skip_existing={join(root, day)}" for day in days)]


def _known_days(folder: str, record: RunRecord) -> list[str]:
    """The days that a run compares with, by its record."""
    # The folder may have been moved since; what lies beside it moved along.
    beside = absolute(record.options.get("output", "")).rpartition("/")[0]
    places = [run.output for run in earlier_runs(folder, record)]
    parts = [place.rpartition("/") for place in places]
    return [name for folder, _, name in parts if folder == beside and _DAY.fullmatch(name)]


def _days_before(root: str, args: argparse.Namespace) -> list[str]:
    """The finished days before a day that wrote anything, oldest first.

    Raises:
        NotYet: One of them is not finished: what it lacks would be embedded on both days.
    """
    finished = []
    begun = frozenset(os.listdir(args.begun) if args.begun else ())
    folders = list(_folders_before(root, args.day, args.earlier, begun))
    records = for_each(root, lambda folder: read_record(join(root, folder)), folders)
    for folder, record in zip(folders, records, strict=True):
        if record is None and folder not in begun:
            continue
        if record is None or not record.is_done:
            where = f"it has no {RUN_FILE} yet; {args.begun}/{folder} says that it was begun"
            if record is not None:
                where = f"{record.status}, see {join(join(root, folder), RUN_FILE)}"
            raise NotYet(
                ExitCode.EARLIER_UNFINISHED,
                f"{folder} comes before {args.day} and is not finished ({where}); run it first",
            )
        finished.append(folder)
    return finished


def _folders_before(root: str, day: str, earlier: str, begun: frozenset[str]) -> Iterator[str]:
    if earlier == "all":
        files = list_files(join(glob.escape(root), f"*/{RUN_FILE}"))
        names = sorted({*begun, *(file.path.split("/")[-2] for file in files)})
        yield from (name for name in names if _DAY.fullmatch(name) and name < day)
        return
    date = datetime.date.fromisoformat(day)
    for back in range(int(earlier), 0, -1):
        yield str(date - datetime.timedelta(days=back))


def run() -> None:
    """Ends the process with the day's exit code."""
    code = main()
    if code == ExitCode.INTERRUPTED:
        # A worker thread in the middle of a block would be waited for; its files are whole or
        # not there, so it can be left.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
