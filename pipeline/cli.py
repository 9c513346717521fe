"""Dispatches a command line to its command and turns errors into exit codes."""

import difflib
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial

import bert
from pipeline import console
from pipeline.console import say, warn
from pipeline.errors import ExitCode, UsageError, flag_message
from pipeline.parser import plain_words, program
from pipeline.secrets import hide_secrets
from storage.errors import InputError, StorageError

_HELP = """\
usage: {program} COMMAND [flags]

Embeds a corpus of text with BERT.

commands:
  embed      --input GLOB --output DIR       text to vectors
  search     DIR QUERY                       the nearest documents in a run's output
  verify     DIR                             check that an output is as its run wrote it
  card       DIR                             describe an output in README.md and croissant.json
  cluster    DIR OUT                         the clusters of a run's vectors
  dedup      DIR OUT                         documents that are nearly the same, and which to keep
  tokenize   --input GLOB --output DIR       text to TFRecord files of examples, for `embed`
  tokenize   --text TEXT                     the tokens, ids and offsets of a text
  model      import SOURCE DEST              a model folder to a bundle
  model      inspect MODEL, verify MODEL     facts about a model; check that it is undamaged

{program} COMMAND --help lists the everyday flags of a command, --help all every flag.
{program} --version prints the version.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Returns:
        The ExitCode.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help", "help"):
        say(*_HELP.format(program=program()).splitlines())
        return ExitCode.DONE if words else ExitCode.USAGE
    if words[0] == "--version":
        say(bert.__version__)
        return ExitCode.DONE
    try:
        run = _command(words[0])
        console.quiet_logs()
        return run(plain_words(words[1:]))
    except (InputError, StorageError) as error:
        warn(f"error: {hide_secrets(flag_message(error))}")
        # A store that does not answer is not the command's fault, and nothing was started.
        return ExitCode.USAGE if isinstance(error, InputError) else ExitCode.FAILED
    except KeyboardInterrupt:
        warn("", "interrupted")
        return ExitCode.INTERRUPTED
    except BrokenPipeError:  # the reader of our output has closed it
        raise
    except Exception as error:  # a bug of ours: its place matters more than a sentence
        warn(*hide_secrets(traceback.format_exc()).splitlines())
        warn(f"error: unexpected {type(error).__name__}, a bug of this program")
        return ExitCode.FAILED


def _command(name: str) -> Callable[[list[str]], int]:
    commands: dict[str, Callable[[list[str]], int]] = {
        "embed": partial(_start, "embed"),
        "tokenize": partial(_start, "tokenize"),
        "search": _search,
        "verify": _verify,
        "card": _card,
        "cluster": partial(_clusters, "cluster"),
        "dedup": partial(_clusters, "dedup"),
        "model": _model,
    }
    if name in commands:
        return commands[name]
    nearest = difflib.get_close_matches(name, commands, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else f"use one of {', '.join(commands)}"
    raise UsageError(f"unknown command {name}; {hint}")


# What runs a command is imported only when its flags are right: neither `--help` nor a mistyped
# flag waits for Beam.
def _start(command: str, arguments: list[str]) -> int:
    from pipeline.parser import command_parser, parse_embed, parse_tokenize

    if {"-h", "--help"} & set(arguments):
        say(*command_parser(command, "all" in arguments).format_help().splitlines())
        return ExitCode.DONE
    if command == "tokenize" and any(word.partition("=")[0] == "--text" for word in arguments):
        from pipeline.commands.tokens import run_tokens

        return run_tokens(arguments)
    options = (parse_embed if command == "embed" else parse_tokenize)(arguments)
    from pipeline.commands.start import start

    return start(options)


def _search(arguments: list[str]) -> int:
    from pipeline.commands.arguments import parse_search

    given = parse_search(arguments)
    from pipeline.commands.search import run_search

    return run_search(given)


def _verify(arguments: list[str]) -> int:
    from pipeline.commands.arguments import parse_verify

    given = parse_verify(arguments)
    from pipeline.commands.verify import run_verify

    return run_verify(given)


def _card(arguments: list[str]) -> int:
    from pipeline.commands.arguments import parse_card

    given = parse_card(arguments)
    from pipeline.commands.card import run_card

    return run_card(given)


def _clusters(command: str, arguments: list[str]) -> int:
    from pipeline.clusters.arguments import parse_clusters

    given = parse_clusters(command, arguments)
    from pipeline.clusters.run import run_clusters

    return run_clusters(given)


def _model(arguments: list[str]) -> int:
    from pipeline.commands.models import run_model

    return run_model(arguments)
