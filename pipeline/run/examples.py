"""Checks options against examples, which were tokenized before: their settings are the run's."""

from collections.abc import Sequence
from dataclasses import asdict, replace

from bert_embed.bundle.bundle import Bundle
from bert_embed.pipeline.errors import UsageError
from bert_embed.pipeline.options.embed import Options
from bert_embed.settings import TextSpec
from bert_embed.storage.files import read_bytes
from bert_embed.text.tokenizer import load_tokenizer
from bert_embed.transforms.examples import ExampleSettings, settings_from_json
from bert_embed.transforms.output_folder import SETTINGS_FILE, settings_places
from bert_embed.transforms.parts import InputFile
from bert_embed.transforms.read.examples import ExampleReading, first_examples

_OF_TEXTS = "text_column", "text_b_column", "id_column", "extra_columns", "chunk"


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
        differ = [f"whether there is {SETTINGS_FILE}"] * (settings is not theirs)
        if settings is not None and theirs is not None:
            ours, values = asdict(settings), asdict(theirs)
            differ = [name for name in ours if name != "run" and ours[name] != values[name]]
        if differ:
            raise UsageError(
                f"--input names examples of {first} and {folder}, which differ in "
                f"{', '.join(differ)}; embed them in two runs"
            )
    first_examples(files[0])
    return settings


def _settings(places: Sequence[str]) -> ExampleSettings | None:
    """The settings from the first of these files that exists."""
    for path in places:
        if (data := read_bytes(path)) is not None:
            return settings_from_json(data, path)
    return None


def text_options(options: Options, settings: ExampleSettings | None, bundle: Bundle) -> Options:
    """The options with all settings that the examples were tokenized with."""
    long_text = "truncate" if settings is None else settings.long_text
    if (options.long_text, long_text) == ("windows", "window"):
        long_text = "windows"
    if options.long_text not in ("truncate", long_text):
        raise _contradiction("long_text", options.long_text, long_text)
    missing = "is not available for these examples, which do not hold"
    has_words = settings is not None and "word" in settings.granularity
    if "word" in options.granularity and not has_words:
        flag = "--granularity word"
        raise UsageError(f"{flag} {missing} words; tokenize the texts with {flag}")
    if options.keep_text and settings is not None and not settings.keep_text:
        flag = "--keep_text"
        raise UsageError(f"{flag} {missing} their texts; tokenize the texts with {flag}")
    if settings is None:
        if options.prompt:
            raise UsageError("--prompt is for texts, not for tokens; tokenize the texts with it")
        length = options.max_seq_length or bundle.config.max_position_embeddings
        return replace(options, long_text=long_text, prompt="", max_seq_length=length)
    if settings.tokenizer != bundle.tokenizer_fingerprint:
        raise UsageError(
            f"--model {options.model} has another tokenizer ({bundle.tokenizer_fingerprint}) than "
            f"the model of the examples ({settings.tokenizer}); tokenize the texts with it"
        )
    requested: dict[str, object] = {
        "max_seq_length": options.max_seq_length,
        "overlap": options.overlap,
        "prompt": None if options.prompt is None else bundle.prompt_text(options.prompt),
    }
    recorded = {name: getattr(settings, name) for name in requested}
    for name, value in requested.items():
        if value is not None and value != recorded[name]:
            raise _contradiction(name, value, recorded[name])
    return replace(options, long_text=long_text, **recorded)


def _contradiction(name: str, requested: object, actual: object) -> UsageError:
    return UsageError(
        f"--{name} {requested} conflicts with these examples, tokenized with {actual!r}; "
        "tokenize the texts again"
    )


def reading_of(
    bundle: Bundle, text_spec: TextSpec, settings: ExampleSettings | None
) -> ExampleReading:
    """How the examples are read and checked."""
    tokenizer = load_tokenizer(bundle)
    return ExampleReading(
        bundle.tokenizer_fingerprint,
        bundle.config.vocab_size,
        max(bundle.config.segments, 2),  # those of pairs, of models that know one, too
        text_spec,
        0 if settings is None else settings.prompt_tokens,
        tokenizer.pad_id,
        tokenizer.unk_id,
        special=tokenizer.special_tokens,
    )
