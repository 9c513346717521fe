"""Dispatches a command line to its command, which imports no more than it needs.

Errors become exit codes.
"""

import difflib
import gc
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import astuple
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import bert_embed
from bert_embed.base.environment import Absent, missing, set_up_process
from bert_embed.base.errors import InputError, TextError, is_passing
from bert_embed.pipeline import console
from bert_embed.pipeline.console import AnswerLost, answer, hide_secrets, program, warn
from bert_embed.pipeline.errors import ExitCode, UsageError, exhausted, flag_message
from bert_embed.pipeline.runners.options import BEAM_WITHOUT, DEFAULT_RUNNER

if TYPE_CHECKING:
    from bert_embed.pipeline.options.embed import Options

_OF_TENSORFLOW = ("tensorflow", "tensorflow_text", "tensorflow_hub")
# The options of each command, and what runs it, which is imported only once the flags are right:
# neither `--help` nor a mistyped flag waits for Beam.
_COMMANDS = {
    "embed": ("options.embed:Options", "job:start"),
    "tokenize": ("options.embed:TokenizeOptions", "job:start"),
    "estimate": ("options.embed:EstimateOptions", "commands.estimate:run_estimate"),
    "search": ("options.commands:SearchOptions", "commands.search:run_search"),
    "compare": ("options.commands:CompareOptions", "commands.compare:run_compare"),
    "verify": ("options.commands:VerifyOptions", "commands.outputs:run_verify"),
    "report": ("options.commands:ReportOptions", "commands.outputs:run_report"),
    "export": ("options.commands:ExportOptions", "commands.export:run_export"),
    "model import": ("options.commands:ModelImportOptions", "commands.models:run_import"),
    "model export": ("options.commands:ModelExportOptions", "commands.models:run_export"),
    "model inspect": ("options.commands:ModelInspectOptions", "commands.models:run_inspect"),
    "model verify": ("options.commands:ModelVerifyOptions", "commands.models:run_verify"),
}
_HELP = """\
usage: {program} COMMAND [flags]

Embeds a corpus of text with BERT.

commands:
  embed      --input GLOB --output DIR       text to vectors
  estimate   --input GLOB                    tokens, files and hours of such an embed
  search     DIR... QUERY                    the nearest documents in runs' outputs
  compare    OLD NEW                         how two outputs of the same documents differ
  verify     DIR                             check that an output is as its run wrote it
  report     DIR                             write report.html, which shows a run and its vectors
  export     DIR DEST --to TARGET            to npy, Parquet, faiss, Vertex AI
  tokenize   --input GLOB --output DIR       text to TFRecord files of examples, for `embed`
  model      import SOURCE DEST              a model folder to a bundle
  model      export MODEL DEST               a model to a SavedModel with TF Hub's interface
  model      inspect MODEL [--text TEXT]     facts about a model, or the tokens of a text
  model      verify MODEL                    check that a model is undamaged

{program} COMMAND --help lists the everyday flags of a command, --help all every flag.
{program} --version prints the version.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, whose words are by default those of this process; returns the ExitCode."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    asks = {"-h", "--help", "help"}
    if not words or words[0] in asks or (words[0] == "model" and asks & {*words[1:2]}):
        code = ExitCode.DONE if words else ExitCode.USAGE
        lines = _HELP.format(program=program()).splitlines()
        return exit_code("help", partial(_answered, lines, code))
    if words[0] == "--version":
        return exit_code("version", partial(_answered, [bert_embed.__version__]))
    if arguments is None:
        set_up_process()
    return exit_code(words[0], partial(_run, words, own_process=arguments is None))


def _answered(lines: Sequence[str], code: ExitCode = ExitCode.DONE) -> ExitCode:
    answer(*lines)
    return code


def exit_code(command: str, work: Callable[[], int]) -> int:
    """The exit code of a command's work; what fails becomes one sentence on stderr."""
    try:
        console.quiet_logs()
        return work()
    except TextError as error:  # a query, to which this model gives no vector
        warn(f"error: {error}")
        return ExitCode.FAILED
    except KeyboardInterrupt:
        warn("", "interrupted")
        return ExitCode.INTERRUPTED
    except AnswerLost as error:
        # Else somebody has seen enough, as with `| head`.
        if not isinstance(error.__cause__, BrokenPipeError):
            warn(f"error: {error}")
        return ExitCode.FAILED
    except Exception as error:  # noqa: BLE001
        lacking = exhausted(error)
        if lacking or isinstance(error, InputError | OSError):  # of a file that cannot be read
            warn(f"error: {hide_secrets(lacking or flag_message(error))}")
            return ExitCode.FAILED if is_passing(error) or lacking else ExitCode.USAGE
        if isinstance(error, ModuleNotFoundError) and error.name in _OF_TENSORFLOW:
            package = error.name.replace("_", "-")
            warn(f"error: {missing(f'{program()} {command} here', package)}")
            return ExitCode.USAGE
        # A bug of ours: its place matters more than a sentence.
        warn(*hide_secrets(traceback.format_exc()).splitlines())
        warn(f"error: unexpected {type(error).__name__}, a bug of this program")
        return ExitCode.FAILED


def _run(words: list[str], own_process: bool) -> int:
    work = _work(words[0], words[1:], own_process)
    if own_process:
        # Look for garbage from now on, but not among the modules: they are a million objects, to
        # walk through which takes a quarter of a small run's time.
        gc.freeze()
        gc.enable()
    return int(work())


def _work(word: str, arguments: list[str], own_process: bool) -> Callable[[], int]:
    """Returns what a command does; its options are checked, its modules imported."""
    command = word
    if command == "model" and arguments:
        command, arguments = f"model {arguments[0]}", arguments[1:]
    if command not in _COMMANDS:
        commands = [name for name in _COMMANDS if name.startswith("model ") or word != "model"]
        last = {name.split()[-1]: name for name in reversed(commands)}  # `verify` is no model's
        hint = f"use one of {', '.join(commands)}"
        for near in difflib.get_close_matches(command.rpartition(" ")[2], last, n=1):
            hint = f"did you mean {last[near]}?"
        raise UsageError(f"unknown command {command}; {hint}")
    # Here, because the options import NumPy and Arrow, without which `bert-embed --help` answers.
    from bert_embed.pipeline.options.command_line import parser_of, read_command

    kind, run = _named(_COMMANDS[command][0]), _COMMANDS[command][1]
    if {"-h", "--help"} & set(arguments):
        page = parser_of(kind, command, "all" in arguments).format_help()
        return partial(_answered, page.splitlines())
    options = read_command(kind, command, arguments)
    if own_process and command in ("embed", "tokenize", "estimate"):
        _import_beam(options)
    if own_process and command in ("search", "compare", "report"):
        _leave_out_pandas()
    return partial(_named(run), options)


def _named(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"bert_embed.pipeline.{module}"), name)


def _leave_out_pandas() -> None:
    """Does without pandas, which Arrow and scikit-learn, for a report's map, import where it is.

    It takes 0.5 s and 40 MiB. For processes that are a command of ours from start to end.
    """
    sys.meta_path.insert(0, Absent("pandas"))


def _import_beam(options: "Options") -> None:
    """Imports Beam for a run; of one on local files, as if its optional packages were missing.

    They take 2 s of processor time and 75 MiB. For processes that are a command of ours.
    """
    uses_tables = options.reads_table or options.loads_table
    uses_a_service = uses_tables or "://" in repr(astuple(options))
    if uses_a_service or options.job.name != DEFAULT_RUNNER.lower():
        import pyarrow as pa

        with Absent("pandas"):  # which the clients of services may use
            pa.array([], pa.string())  # Arrow's Python looks for it once,
            pa.scalar("")  # and its C++ does where it finds the type of a value
        return
    _leave_out_pandas()
    with Absent(*BEAM_WITHOUT):
        import apache_beam  # noqa: F401
