"""Resolves how the TFRecord examples of an input were tokenized and are read."""

from collections.abc import Sequence
from dataclasses import asdict, replace

from bert_embed.bundle.bundle import Bundle
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options import Options
from bert_embed.specs import TextSpec
from bert_embed.storage.files import read_bytes
from bert_embed.tokenization.tokenizer import load_tokenizer
from bert_embed.transforms.examples.read import ExampleReading, first_examples
from bert_embed.transforms.examples.write import ExampleSettings, settings_from_json
from bert_embed.transforms.output_folder import SETTINGS_FILE, settings_places
from bert_embed.transforms.parts import InputFile

_OF_TEXTS = (
    "text_column",
    "text_b_column",
    "id_column",
    "extra_columns",
    "chunk",
)
_OFFERED = ("sentence", "token")  # by every example; words and spans must have been requested


def are_examples(files: Sequence[InputFile]) -> bool:
    """Whether the input is TFRecord files."""
    kinds = {file.format for file in files}
    if "tfrecord" in kinds and len(kinds) > 1:
        raise UsageError(
            "--input names TFRecord files of examples and files of texts; embed them in two runs"
        )
    return kinds == {"tfrecord"}


def example_settings(options: Options, files: Sequence[InputFile]) -> ExampleSettings | None:
    """How the examples were tokenized, by their `examples.json`; None without such a file."""
    for name in _OF_TEXTS:
        if getattr(options, name) is not None:
            raise UsageError(f"--{name} is for texts, but --input names TFRecord files of examples")
    if options.command == "tokenize":
        raise UsageError("--input names TFRecord files of examples, already tokenized")
    by_folder: dict[str, ExampleSettings | None] = {}
    for file in files:
        folder = file.info.path.rpartition("/")[0]
        if folder not in by_folder:
            by_folder[folder] = _settings(settings_places(file.info.path))
    (first, settings), *others = by_folder.items()
    for folder, theirs in others:
        differ = _differences(settings, theirs)
        if differ:
            raise UsageError(
                f"--input names examples of {first} and {folder}, which differ in {differ}; "
                "embed them in two runs"
            )
    first_examples(files[0])
    return settings


def _settings(places: Sequence[str]) -> ExampleSettings | None:
    """The settings from the first of these files that exists."""
    for path in places:
        data = read_bytes(path)
        try:
            if data is not None:
                return settings_from_json(data)
        except ValueError as error:
            raise UsageError(f"{path} is damaged: {error}") from error
    return None


def _differences(one: ExampleSettings | None, other: ExampleSettings | None) -> str:
    if one is None or other is None:
        return "" if one is other else f"whether there is {SETTINGS_FILE}"
    theirs = asdict(other)
    differ = [name for name, value in asdict(one).items() if value != theirs[name]]
    return ", ".join(name for name in differ if name != "run")


def with_long_text(options: Options, settings: ExampleSettings | None) -> Options:
    """The options with the --long_text that the examples were tokenized with."""
    long_text = settings.long_text if settings is not None else "truncate"
    if options.long_text not in ("truncate", long_text):
        raise _contradiction("long_text", options.long_text, long_text)
    return replace(options, long_text=long_text)


def text_options(options: Options, settings: ExampleSettings | None, bundle: Bundle) -> Options:
    """The options with all settings that the examples were tokenized with."""
    offered = _OFFERED if settings is None else (*_OFFERED, *settings.granularity)
    for kind in options.granularity:
        if kind not in offered and kind in ("word", "span"):
            raise UsageError(
                f"--granularity {kind} is not available for these examples, which do not hold "
                f"{kind}s; tokenize the texts with --granularity {kind}"
            )
    if options.keep_text and settings is not None and not settings.keep_text:
        raise UsageError(
            "--keep_text is not available for these examples, which do not hold their texts; "
            "tokenize the texts with --keep_text"
        )
    if settings is None:
        if options.prompt:
            raise UsageError("--prompt is for texts, not for tokens; tokenize the texts with it")
        length = options.max_seq_length or bundle.config.max_position_embeddings
        return replace(options, prompt="", max_seq_length=length)
    if settings.tokenizer != bundle.tokenizer_fingerprint:
        raise UsageError(
            f"--model {options.model} has another tokenizer ({bundle.tokenizer_fingerprint}) than "
            f"the model of the examples ({settings.tokenizer}); tokenize the texts with it"
        )
    requested: dict[str, object] = {
        "max_seq_length": options.max_seq_length,
        "stride": options.stride,
        "prompt": None if options.prompt is None else bundle.prompt_text(options.prompt),
    }
    for name, value in requested.items():
        if value is not None and value != getattr(settings, name):
            raise _contradiction(name, value, getattr(settings, name))
    return replace(options, **{name: getattr(settings, name) for name in requested})


def _contradiction(name: str, requested: object, actual: object) -> UsageError:
    return UsageError(
        f"--{name} {requested} conflicts with these examples, tokenized with {actual}; tokenize "
        "the texts again"
    )


def reading_of(
    bundle: Bundle, text_spec: TextSpec, settings: ExampleSettings | None
) -> ExampleReading:
    """How the examples are read and checked."""
    tokenizer = load_tokenizer(bundle)
    return ExampleReading(
        bundle.tokenizer_fingerprint,
        bundle.config.vocab_size,
        bundle.config.segments,
        text_spec,
        0 if settings is None else settings.prompt_tokens,
        tokenizer.pad_id,
        tokenizer.unk_id,
    )
