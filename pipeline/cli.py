"""The command line: arguments in, an exit code out."""

import argparse
import difflib
import logging
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NoReturn

import bert

DONE, FAILED, USAGE, TOO_MANY_REJECTED, INTERRUPTED = 0, 1, 2, 3, 130

_HELP = """\
usage: python -m pipeline COMMAND [flags]      (or: bert-embed COMMAND [flags])

Turns a corpus of text into BERT vectors.

commands:
  embed      --input GLOB --output DIR       text to vectors
  search     --embeddings DIR --query TEXT   the nearest documents of a run's output
  tokenize   --input GLOB --output DIR       text to TFRecord files of examples, for `embed`
  tokenize   --text TEXT                     the tokens, ids and offsets of a text
  model      import SOURCE DEST              a model folder to a bundle
  model      inspect MODEL, verify MODEL     what a model is; whether it still is

python -m pipeline COMMAND --help lists a command's flags, --version tells the version.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Returns:
        0 done; 1 the job failed, or a store did not answer; 2 the command line or configuration is
        wrong; 3 done, but more records were rejected than `--max_rejected` allows; 130 interrupted.
    """
    from pipeline.options import UsageError
    from pipeline.secrets import hide_secrets
    from transforms.file_info import StorageError

    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        print(_HELP, end="")
        return DONE if words else USAGE
    if words[0] == "--version":
        print(bert.__version__)
        return DONE
    try:
        return _command(words[0])(words[1:])
    except (UsageError, StorageError) as error:
        print(f"error: {hide_secrets(str(error))}", file=sys.stderr)
        # A store that does not answer is not the command's fault, and nothing was started.
        return USAGE if isinstance(error, UsageError) else FAILED
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return INTERRUPTED


def _command(name: str) -> Callable[[list[str]], int]:
    from pipeline.options import UsageError

    commands = {"embed": _embed, "search": _search, "tokenize": _tokenize, "model": _model}
    if name not in commands:
        nearest = difflib.get_close_matches(name, commands, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"use one of {', '.join(commands)}"
        raise UsageError(f"unknown command {name}; {hint}")
    return commands[name]


class _Parser(argparse.ArgumentParser):
    """Raises where argparse would print its usage and exit."""

    def __init__(self, command: str, description: str) -> None:
        super().__init__(
            prog=f"python -m pipeline {command}", description=description, allow_abbrev=False
        )

    def error(self, message: str) -> NoReturn:
        from pipeline.options import UsageError

        raise UsageError(message)


def _embed(arguments: list[str]) -> int:
    from pipeline.options import embed_parser, parse_embed

    if {"-h", "--help"} & set(arguments):
        embed_parser().print_help()
        return DONE
    return _start(parse_embed(arguments))


def _start(options: Any) -> int:
    """What `embed` and `tokenize` have in common."""
    from pipeline.contradictions import check_contradictions

    check_contradictions(options)
    _quiet()
    from pipeline import run_record
    from pipeline.dataflow import for_dataflow
    from pipeline.dataflow_plan import plan_lines
    from pipeline.deaths import death_lines
    from pipeline.embed_run import prepare

    run = prepare(for_dataflow(options))
    plan = "\n".join([_plan_text(run), *plan_lines(run)])
    if options.dry_run:
        print(plan)
        return DONE
    record = run_record.start(run)
    if record["status"] == "done":
        print(f"nothing to do: {run.output} holds this run, complete since {record['ended']}")
        print(_summary(run.output, record))
        _print_statements(record)
        return _judge(record, options.max_rejected)
    print(plan, file=sys.stderr)
    for line in death_lines(run):
        print(line, file=sys.stderr)
    return _run(run, record)


def _run(run: Any, record: dict[str, Any]) -> int:
    from pipeline import run_record
    from pipeline.deaths import death_lines
    from pipeline.job_errors import JobGoesOn, explains_itself, root_message, was_interrupted
    from pipeline.progress import Progress
    from pipeline.secrets import hide_secrets
    from transforms.under_way import marks

    if run.kind == "examples":
        from pipeline.tokenize_job import run_job
    else:
        from pipeline.embed_job import run_job
    before = marks(run.output)
    try:
        with Progress(run.output, run.to_cover):
            run_job(run, record)
    except JobGoesOn as job:
        return _goes_on(run, job)
    except (Exception, KeyboardInterrupt) as error:  # whatever a runner raises: the job failed
        if was_interrupted(error):
            return _interrupted(run, record, before)
        message = hide_secrets(root_message(error))
        run_record.fail(run.output, record, message)
        if not explains_itself(error):
            sys.stderr.write(hide_secrets(traceback.format_exc()))
        print(f"error: the job failed: {message}", file=sys.stderr)
        for line in death_lines(run):
            print(line, file=sys.stderr)
        print(
            "finished blocks are kept; with that mended, the same command continues",
            file=sys.stderr,
        )
        return FAILED
    done = run_record.read_record(run.output) or record
    print(_summary(run.output, done))
    _print_statements(done)
    return _judge(done, run.options.max_rejected)


def _interrupted(run: Any, record: dict[str, Any], marks_before: frozenset[str]) -> int:
    """Says how to go on. Ctrl-C ends a local job, but not one that a cluster has."""
    from pipeline import run_record
    from pipeline.options import command_of
    from pipeline.secrets import hide_in_flags
    from pipeline.worker_model import runs_here
    from transforms.under_way import forget_deaths

    if runs_here(run.options):
        run_record.fail(run.output, record, "interrupted")
        with suppress(OSError):  # workers were ended here, no block is to blame
            forget_deaths(run.output, marks_before)
        said = "finished blocks are kept"
    else:
        said = "a job that was handed over goes on, unless it is cancelled where it runs"
    print(f"\ninterrupted; {said}. Continue with:", file=sys.stderr)
    print(f"  {shlex.join(hide_in_flags(command_of(run.options)))}", file=sys.stderr)
    return INTERRUPTED


def _goes_on(run: Any, job: Any) -> int:
    """Says what becomes of a job that this command does not see the end of."""
    if job.why == "running":
        print(f"error: {job}", file=sys.stderr)
        return FAILED
    print(job)
    print(f"{run.output}/run.json tells when it is done; the same command then sums it up")
    return DONE if job.why == "asked" else INTERRUPTED


def _print_statements(record: dict[str, Any]) -> None:
    """Prints what can be asked of the table that a run's vectors are in."""
    if record.get("table"):
        from pipeline.load import statements

        print(statements(record))


def _judge(record: dict[str, Any], allowed: str | None) -> int:
    """Exit code by --max_rejected; blank lines of a text are not held against it."""
    counts = record["counts"]
    rejected = counts["rejected"] - counts["blank_lines"]
    if rejected and not counts["embedded"] and not counts["skipped"]:
        print("note: nothing was embedded, see the rejected-… files for why", file=sys.stderr)
    if allowed is None:
        return DONE
    records = counts["records"] - counts["blank_lines"]
    most = float(allowed[:-1]) / 100 * records if allowed.endswith("%") else int(allowed)
    if rejected <= most:
        return DONE
    print(
        f"error: {rejected:,} of {records:,} records were rejected, "
        f"--max_rejected allows {allowed}",
        file=sys.stderr,
    )
    return TOO_MANY_REJECTED


def _plan_text(run: Any) -> str:
    from pipeline.earlier import earlier_lines

    spec, config = run.spec, run.bundle.config
    listed = (
        f"{len(run.planned.paths):,} files, {run.input_bytes / 1e6:,.1f} MB, about "
        f"{run.estimated_documents:,} documents, in {run.planned.blocks:,} blocks\n"
    )
    rows = f"{_LONG_TEXTS[run.text_spec.long_text]} {run.text_spec.max_seq_length} tokens"
    written = f"to {run.output}, about {run.estimated_bytes / 1e6:,.1f} MB"
    if run.kind == "examples":
        tokenizer = run.bundle.tokenizer_fingerprint
        return f"{listed}tokenizer of {run.options.model} ({tokenizer}): {rows}\n{written}"
    layers = ",".join(map(str, spec.layers))
    made = []
    if "sentence" in run.text_spec.granularity:
        shape = "x".join(map(str, spec.shape(config)))
        made.append(f"pooling {spec.pooling}, {shape} numbers a document")
    for kind in run.text_spec.granularity:
        if kind != "sentence":
            made.append(f"{'x'.join(map(str, spec.token_shape(config)))} numbers a {kind}")
    return (
        f"{listed}model {run.options.model} ({run.bundle.fingerprint[:12]}): layers {layers} "
        f"{spec.layer_combine}, {', '.join(made)}, "
        f"{rows}\n{written}" + "".join(f"\n{line}" for line in earlier_lines(run.earlier))
    )


def _cut_text(record: dict[str, Any]) -> str:
    made = record["vectors" if "vectors" in record else "examples"]
    if made["long_text"] == "truncate":
        cut = record["counts"]["truncated"]
        return f"{cut:,} texts cut at {made['max_seq_length']} tokens"
    return f"{_LONG_TEXTS[made['long_text']]} {made['max_seq_length']} tokens"


_LONG_TEXTS = {
    "truncate": "texts cut at",
    "window": "texts in windows of",
    "reject": "texts refused over",
}


def _summary(output: str, record: dict[str, Any]) -> str:
    from pipeline.earlier import increment_lines

    counts, seconds = record["counts"], record["seconds"]
    skipped = f"{counts['skipped']:,} skipped, " if counts["skipped"] else ""
    rejected = ", ".join(f"{count:,} {reason}" for reason, count in record["rejected"].items())
    rooms = ", ".join(f"{room} {spent:.1f}" for room, spent in seconds.items() if room != "elapsed")
    kind = "vectors" if "vectors" in record else "examples"
    done = "embedded" if kind == "vectors" else "tokenized"
    again = counts["parts_reused"] > 0
    lines = [
        f"{counts['records']:,} records: {counts['embedded']:,} {done}, {skipped}"
        f"{counts['rejected']:,} rejected{f' ({rejected})' if rejected else ''}",
        f"{record['tokens']:,} tokens, padding {100 * record['padding_share']:.1f}%, "
        f"{_cut_text(record)}",
        f"{seconds['elapsed']:.1f} s{' this time' if again else ''}: "
        f"{record['documents_per_second']:,.0f} documents/s, "
        f"{record['tokens_per_second']:,.0f} tokens/s (seconds in each room"
        f"{', of all attempts' if again else ''}: {rooms})",
        f"{kind} in {output}, everything about the run in {output}/run.json",
    ]
    lines[1:1] = increment_lines(record)
    if again:
        lines.insert(
            1, f"{counts['parts_reused']:,} of {counts['parts']:,} parts were there before"
        )
    return "\n".join(lines)


def _search(arguments: list[str]) -> int:
    from pipeline.flags import add_trust_flag

    parser = _Parser("search", "Prints the documents whose vectors are nearest to a query's.")
    parser.add_argument("--embeddings", required=True, metavar="DIR", help="a run's output")
    parser.add_argument("--query", required=True, metavar="TEXT")
    parser.add_argument("--k", type=int, default=10, help="how many (default: 10)")
    parser.add_argument("--model", help="where the model is, if it was moved")
    parser.add_argument("--prompt", help="before the query (default: the model's query prompt)")
    add_trust_flag(parser)
    given = parser.parse_args(arguments)
    if given.k < 1:
        parser.error(f"--k must be at least 1, got {given.k}")
    if not given.query.strip():
        parser.error("--query must not be blank")
    _quiet()
    from pipeline.search import excerpt, output_problem, search

    trusted = given.allow_untrusted_model
    hits = search(given.embeddings, given.query, given.k, given.model, given.prompt, trusted)
    problem = output_problem(given.embeddings, hits)
    if problem:
        print(f"note: {problem}", file=sys.stderr)
    for rank, hit in enumerate(hits, 1):
        print(f"{rank:3d}. {hit.score:.4f}  {hit.place}")
        if hit.text is not None:
            print(f"             {excerpt(hit.text, 200)}")
    return DONE


def _tokenize(arguments: list[str]) -> int:
    from pipeline.flags import add_model_flag
    from pipeline.options import UsageError, parse_tokenize, tokenize_parser

    if {"-h", "--help"} & set(arguments):
        tokenize_parser().print_help()
        return DONE
    if not any(word.partition("=")[0] == "--text" for word in arguments):
        return _start(parse_tokenize(arguments))
    parser = _Parser("tokenize", "Prints the tokens of a text, their ids and where they stand.")
    parser.add_argument("--text", required=True)
    add_model_flag(parser)
    given = parser.parse_args(arguments)
    _quiet()
    from bert.resolve import resolve_model

    try:
        tokenizer = resolve_model(
            given.model or "minilm", given.allow_untrusted_model
        ).load_tokenizer()
    except ValueError as error:
        raise UsageError(str(error)) from error
    found = tokenizer.encode_with_offsets([given.text])
    rows = [("[CLS]", tokenizer.cls_id, "")]
    for token, number, start, stop in zip(
        tokenizer.tokens(found.ids), found.ids, found.starts, found.stops, strict=True
    ):
        rows.append((token, int(number), f"{start}:{stop}"))
    rows.append(("[SEP]", tokenizer.sep_id, ""))
    width = max(len(token) for token, _, _ in rows)
    for token, number, place in rows:
        print(f"{token:<{width}}  {number:>6}  {place}".rstrip())
    return DONE


def _model(arguments: list[str]) -> int:
    _quiet()
    from pipeline.model_command import run_model

    return run_model(arguments)


def _quiet() -> None:
    """Keeps TensorFlow's notes on the machine and Beam's remarks on itself off the terminal."""
    from pipeline.secrets import SecretFilter

    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    for handler in logging.getLogger().handlers:
        # Errors of a step come back as the job's error; Beam also logs them, with a traceback.
        handler.addFilter(lambda entry: "apache_beam" not in entry.pathname)
        handler.addFilter(SecretFilter())
