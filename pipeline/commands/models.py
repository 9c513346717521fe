"""Runs `model import`, `model export`, `model inspect` and `model verify`."""

import json
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_embed.base.environment import requires
from bert_embed.base.errors import InputError, counted, shown_bytes
from bert_embed.bundle.bundle import AGAIN, METADATA, WEIGHTS, Bundle
from bert_embed.bundle.find import resolve_model
from bert_embed.models.encoder import EncoderConfig
from bert_embed.models.static import NO_LIMIT
from bert_embed.pipeline.console import answer, answer_json, say, warn
from bert_embed.pipeline.errors import ExitCode, UsageError
from bert_embed.pipeline.options.commands import (
    ModelExportOptions,
    ModelImportOptions,
    ModelInspectOptions,
    ModelVerifyOptions,
)
from bert_embed.text.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from bert_embed.backends.probe import Verification


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
        f"{bundle.path}: {_layers(config, config.hidden_act)}, {_tokenizer(bundle)}, "
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
    bundle = resolve_model(options.model)
    facts = model_facts(bundle)
    if options.json:
        answer_json(*_json_lines(facts))
    else:
        answer(*_table(bundle, facts))
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
        answer_json(*_json_lines(_figures(bundle, verification)))
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


def _figures(bundle: Bundle, verification: "Verification") -> dict[str, Any]:
    return {
        "files": len(bundle.files),
        "damaged": list(verification.damaged),
        "same_tokens": verification.same_tokens,
        "same_model": verification.same_model,
        "compared": list(verification.outputs),
        "max_difference": verification.max_difference if verification.outputs else None,
        "least_cosine": verification.least_cosine if verification.outputs else None,
        "problem": verification.problem,
    }


def _damaged(problem: str) -> int:
    advice = "" if problem.endswith(AGAIN) else f"; {AGAIN}"
    warn(f"error: {problem}{advice}")
    return ExitCode.FAILED


def model_facts(bundle: Bundle) -> dict[str, Any]:
    """Returns facts about a model without loading it, as JSON-able values."""
    said = bundle.described()

    def of(*names: str) -> dict[str, Any]:
        return {name: said[name] for name in names}

    return {
        "path": bundle.path,
        **of("fingerprint", "config"),
        "parameters": sum(map(math.prod, bundle.tensor_shapes().values())),
        "weight_bytes": bundle.sizes()[WEIGHTS],
        **of("has_pooler", "tokenizer", "max_seq_length", "defaults"),
        "width": bundle.defaults.width(bundle.config),
        **of("dense", "token_dense", "heads", "default_vectors", "similarity", "top_k"),
        **of("prompts", "default_prompt", "source"),
    }


def _json_lines(facts: dict[str, Any]) -> list[str]:
    return json.dumps(facts, indent=2, ensure_ascii=False).split("\n")


def _table(bundle: Bundle, facts: dict[str, Any]) -> list[str]:
    """The facts for reading, one a line."""
    config, spec = bundle.config, bundle.defaults
    modules = [*(f"of tokens {module}" for module in bundle.token_dense), *map(str, bundle.dense)]
    parts = [f"layers {','.join(map(str, spec.layers))} {spec.layer_combine}", spec.pooling]
    parts += ["special tokens counted" if spec.pool_special_tokens else "no special tokens"]
    parts += [] if spec.pool_prompt else ["no prompt"]
    parts += ["unit length"] if spec.normalize else []
    parts += ["then cut"] if spec.dim_last else []
    rows = {
        "model": bundle.path,
        "fingerprint": bundle.fingerprint,
        "encoder": _layers(
            config,
            f"{config.num_attention_heads} heads, inner {config.intermediate_size}, "
            f"{config.hidden_act}, {'a' if bundle.has_pooler else 'no'} pooler",
        ),
        "size": f"{facts['parameters']:,} parameters, {shown_bytes(facts['weight_bytes'])}",
        "vocabulary": f"{config.vocab_size:,} entries",
        "tokenizer": _tokenizer(bundle),
        "length": _length(bundle.max_seq_length, config.max_position_embeddings),
        "vectors": f"{', '.join(parts)}: {facts['width']} numbers",
        "compared by": {"cosine": "cosine", "dot": "dot product"}.get(
            bundle.similarity, f"{bundle.similarity} distance"
        ),
        "dense modules": ", ".join(modules) or "none",
        "kinds": ", ".join(
            f"{kind}{' (default)' if kind in bundle.default_vectors else ''}"
            for kind in ("dense", *bundle.heads)
        ),
        "prompts": ", ".join(
            f"{name}{' (default)' if name == bundle.default_prompt else ''} {text!r}"
            for name, text in bundle.prompts.items()
        )
        or "none",
        "source": bundle.source or "unknown",
    }
    width = max(map(len, rows))
    return [f"{name:<{width}}  {value}" for name, value in rows.items()]


def _layers(config: EncoderConfig, details: str) -> str:
    if not config.num_hidden_layers:
        return f"a table of {config.hidden_size}, no layers"
    return f"{config.num_hidden_layers} layers of {config.hidden_size}, {details}"


def _length(length: int, most: int) -> str:
    if length == NO_LIMIT:
        return "any number of tokens"
    return f"{length} tokens, at most {'any number' if most == NO_LIMIT else most}"


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
