"""Example input: TFRecord files and options in, how their examples are to be read out."""

from collections.abc import Sequence
from dataclasses import asdict, replace

from bert.bundle import Bundle
from bert.text_spec import TextSpec
from pipeline.options import EmbedOptions, UsageError
from transforms.block_spec import InputFile
from transforms.example_rows import ExampleReading
from transforms.examples import SETTINGS_FILE, ExampleSettings, settings_from_json
from transforms.files import join, read_bytes
from transforms.sources.tfrecord import first_records

_OF_TEXTS = (
    "text_column",
    "text_b_column",
    "id_column",
    "span_columns",
    "pair_separator",
    "extra_columns",
)
_OFFERED = ("sentence", "token")  # by every example; words and spans must have been asked for


def are_examples(files: Sequence[InputFile]) -> bool:
    """Whether the input is TFRecord files.

    Raises:
        UsageError: Some of it is.
    """
    kinds = {file.format for file in files}
    if "tfrecord" in kinds and len(kinds) > 1:
        raise UsageError(
            "--input names TFRecord files of examples and files of texts; embed them in two runs"
        )
    return kinds == {"tfrecord"}


def example_settings(options: EmbedOptions, files: Sequence[InputFile]) -> ExampleSettings | None:
    """What `examples.json` beside the files says of them; None where there is none.

    Raises:
        UsageError: A flag that is for texts, or files that were written with other settings than
            their neighbours.
    """
    for name in _OF_TEXTS:
        if getattr(options, name) is not None:
            raise UsageError(f"--{name} is for texts, --input names TFRecord files of examples")
    if options.command == "tokenize":
        raise UsageError("--input names TFRecord files of examples, which are tokenized already")
    if options.tfrecord_output is not None:
        raise UsageError("--tfrecord_output keeps what was tokenized, --input names examples")
    found: dict[str, ExampleSettings | None] = {}
    for folder in dict.fromkeys(file.info.path.rpartition("/")[0] for file in files):
        path = join(folder, SETTINGS_FILE)
        data = read_bytes(path)
        try:
            found[folder] = None if data is None else settings_from_json(data)
        except ValueError as error:
            raise UsageError(f"{path} is damaged: {error}") from error
    folders = list(found)
    first = found[folders[0]]
    for folder in folders[1:]:
        differ = _differences(first, found[folder])
        if differ:
            raise UsageError(
                f"--input names examples of {folders[0]} and {folder}, which differ in {differ}; "
                "embed them in two runs"
            )
    first_records(files[0])
    return first


def _differences(one: ExampleSettings | None, other: ExampleSettings | None) -> str:
    if one is None or other is None:
        return "" if one is other else f"whether there is {SETTINGS_FILE}"
    theirs = asdict(other)
    differ = [name for name, value in asdict(one).items() if value != theirs[name]]
    return ", ".join(name for name in differ if name not in ("run", "tokens_with_ids"))


def with_long_text(options: EmbedOptions, settings: ExampleSettings | None) -> EmbedOptions:
    """The options with what became of long texts when they were tokenized."""
    made = settings.long_text if settings is not None else "truncate"
    if options.long_text not in ("truncate", made):
        raise UsageError(_contradiction("long_text", options.long_text, made))
    return replace(options, long_text=made)


def text_options(
    options: EmbedOptions, settings: ExampleSettings | None, bundle: Bundle
) -> EmbedOptions:
    """The options with everything that tokenizing settled.

    Raises:
        UsageError: Another tokenizer, a flag that asks for something else, or vectors that cannot
            be made of these examples.
    """
    offered = _OFFERED if settings is None else (*_OFFERED, *settings.granularity)
    for kind in options.granularity:
        if kind not in offered and kind in ("word", "span"):
            raise UsageError(
                f"--granularity {kind} cannot be made of these examples, which do not tell of "
                f"{kind}s; tokenize the texts with --granularity {kind}"
            )
    if settings is None:
        if options.prompt:
            raise UsageError("--prompt cannot be put before tokens; tokenize the texts with it")
        length = options.max_seq_length or bundle.config.max_position_embeddings
        return replace(options, prompt="", max_seq_length=length)
    if settings.tokenizer != bundle.tokenizer_fingerprint:
        raise UsageError(
            f"--model {options.model} has another tokenizer ({bundle.tokenizer_fingerprint}) than "
            f"the one that made the examples ({settings.tokenizer}); tokenize the texts with it"
        )
    asked: dict[str, object] = {"max_seq_length": options.max_seq_length, "stride": options.stride}
    if options.prompt is not None:
        asked["prompt"] = bundle.prompt_text(options.prompt)
    for name, value in asked.items():
        if value is not None and value != getattr(settings, name):
            raise UsageError(_contradiction(name, value, getattr(settings, name)))
    return replace(
        options,
        prompt=settings.prompt,
        max_seq_length=settings.max_seq_length,
        stride=settings.stride,
    )


def _contradiction(name: str, asked: object, made: object) -> str:
    return (
        f"--{name} {asked} cannot be had of these examples, which were made with {made}; tokenize "
        "the texts again"
    )


def reading_of(bundle: Bundle, made: TextSpec, settings: ExampleSettings | None) -> ExampleReading:
    """What the reader of the examples must know."""
    return ExampleReading(
        bundle.tokenizer_fingerprint,
        bundle.config.vocab_size,
        bundle.config.type_vocab_size,
        made,
        0 if settings is None else settings.prompt_tokens,
    )
