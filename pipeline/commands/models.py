"""Runs `model import`, `model export`, `model inspect` and `model verify`."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bert_embed.base.environment import requires
from bert_embed.base.errors import InputError, counted
from bert_embed.bundle.bundle import AGAIN, METADATA, WEIGHTS, Bundle
from bert_embed.bundle.find import resolve_model
from bert_embed.models.encoder import EncoderConfig
from bert_embed.pipeline.console import answer, answer_json, say, warn
from bert_embed.pipeline.errors import ExitCode, UsageError
from bert_embed.pipeline.options.commands import (
    ModelExportOptions,
    ModelImportOptions,
    ModelInspectOptions,
    ModelVerifyOptions,
)
from bert_embed.text.tokenizer import load_tokenizer


def run_import(options: ModelImportOptions) -> int:
    """Converts a model to a bundle."""
    from bert_embed.importers import import_model

    bundle = import_model(
        options.source,
        options.dest,
        checkpoint=options.checkpoint,
        lower_case=options.casing,
        activation=options.activation,
    )
    config = bundle.config
    say(
        f"{bundle.path}: {_layers(config)}, {_tokenizer(bundle)}, "
        f"{config.vocab_size:,} entries, fingerprint {bundle.fingerprint}"
    )
    return ExitCode.DONE


def run_export(options: ModelExportOptions) -> int:
    """Writes a model as a SavedModel."""
    bundle = resolve_model(options.model)
    if os.path.lexists(options.dest):
        raise UsageError(f"{options.dest} exists, name a new folder for the SavedModel")
    with requires("a SavedModel", "tensorflow"):
        from bert_embed.backends.tensorflow.model import TensorFlowModule, save

        save(TensorFlowModule(bundle), options.dest)
    say(f"{options.dest}: a SavedModel with the interface of TF Hub's encoders")
    return ExitCode.DONE


def run_inspect(options: ModelInspectOptions) -> int:
    """Prints facts about a model, which is not loaded, or the tokens of a text."""
    if options.text is not None:
        bundle = resolve_model(options.model, lambda bundle: ())  # no weights
        tokens = _tokens(bundle, options.text)
        if options.json:
            answer_json(*_json_lines({"tokens": tokens}))
            return ExitCode.DONE
        width = max((len(row["token"]) for row in tokens), default=0)
        places = (f"{row['start']}:{row['stop']}" if "start" in row else "" for row in tokens)
        for row, place in zip(tokens, places, strict=True):
            answer(f"{row['token']:<{width}}  {row['id']:>6}  {place}".rstrip())
        return ExitCode.DONE
    facts = model_facts(resolve_model(options.model))
    if options.json:
        answer_json(*_json_lines(facts))
    else:
        rows = [*_rows(facts)]
        width = max(len(name) for name, _ in rows)
        answer(*(f"{name:<{width}}  {value}" for name, value in rows))
    return ExitCode.DONE


def run_verify(options: ModelVerifyOptions) -> int:
    """Compares a model with its import; FAILED if it differs."""
    try:
        bundle = resolve_model(options.model)
        from bert_embed.backends.probe import verify

        verification = verify(bundle)
    except InputError as error:
        if not Path(options.model, METADATA).is_file():
            raise
        return _damaged(str(error))
    if options.json:
        figures = {"files": len(bundle.files), **asdict(verification)}
        if not verification.outputs:  # of which nothing is known
            figures |= {"max_difference": None, "least_cosine": None}
        answer_json(*_json_lines(figures | {"problem": verification.problem}))
    elif verification.outputs:
        say(
            f"{bundle.path}: {counted(len(bundle.files), 'file')} unchanged; "
            f"{', '.join(verification.outputs)} of the fixed sentences: largest difference "
            f"{verification.max_difference:.2g}, least cosine {verification.least_cosine:.7f}"
        )
    return (
        _damaged(f"{bundle.path}: {verification.problem}")
        if verification.problem
        else ExitCode.DONE
    )


def _damaged(problem: str) -> int:
    advice = "" if problem.endswith(AGAIN) else f"; {AGAIN}"
    warn(f"error: {problem}{advice}")
    return ExitCode.FAILED


def model_facts(bundle: Bundle) -> dict[str, Any]:
    """Returns facts about a model without loading it, as JSON-able values."""
    return {
        "path": bundle.path,
        **bundle.described(),
        "parameters": sum(map(math.prod, bundle.tensor_shapes().values())),
        "weight_bytes": bundle.sizes()[WEIGHTS],
        "width": bundle.defaults.width(bundle.config),
    }


def _json_lines(facts: dict[str, Any]) -> list[str]:
    return json.dumps(facts, indent=2, ensure_ascii=False).split("\n")


def _rows(facts: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """The facts one by one, those within others by names with dots: texts, or as JSON."""
    for name, value in facts.items():
        if isinstance(value, dict) and value:
            yield from _rows(value, f"{above}{name}.")
        else:
            is_text = isinstance(value, str) and value
            yield f"{above}{name}", value if is_text else json.dumps(value, ensure_ascii=False)


def _layers(config: EncoderConfig) -> str:
    if not config.num_hidden_layers:
        return f"a table of {config.hidden_size}, no layers"
    return f"{config.num_hidden_layers} layers of {config.hidden_size}, {config.hidden_act}"


def _tokenizer(bundle: Bundle) -> str:
    settings = bundle.tokenizer_settings
    if "kind" in settings:
        return f"{settings['kind']} of {bundle.tokenizer_file}"
    casing = "lower case" if settings["lower_case"] else "cased"
    return f"WordPiece, {casing}, words of up to {settings['max_word_chars']} characters"


def _tokens(bundle: Bundle, text: str) -> list[dict[str, Any]]:
    """The tokens of a text with their ids and places, special tokens around them."""
    tokenizer = load_tokenizer(bundle)
    encoded = tokenizer.encode_with_offsets([text])
    begin, end = (
        [{"token": tokenizer.vocab[number], "id": number}] if tokenizer.special_tokens else []
        for number in (tokenizer.cls_id, tokenizer.sep_id)
    )
    columns = encoded.ids.tolist(), encoded.starts.tolist(), encoded.stops.tolist()
    names = tokenizer.tokens(encoded.ids)
    rows = [
        {"token": token, "id": number, "start": start, "stop": stop}
        for token, number, start, stop in zip(names, *columns, strict=True)
    ]
    return [*begin, *rows, *end]
