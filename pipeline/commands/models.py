"""Runs `model import`, `model export`, `model inspect` and `model verify`."""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert_embed.bundle.bundle import AGAIN, Bundle
from bert_embed.bundle.files import METADATA, WEIGHTS
from bert_embed.bundle.find import resolve_model
from bert_embed.graph.load import load_encoder
from bert_embed.graph.weight_names import parameter_count
from bert_embed.pipeline.console import say, warn
from bert_embed.pipeline.errors import ExitCode, UsageError, usage_errors
from bert_embed.pipeline.parser import Parser
from bert_embed.storage.errors import InputError
from bert_embed.storage.packages import requires
from bert_embed.storage.plurals import counted

if TYPE_CHECKING:
    from bert_embed.self_test import Verification

_ACTIONS = "import SOURCE DEST | export MODEL DEST | inspect MODEL | verify MODEL"


def run_model(arguments: list[str]) -> int:
    """Runs one of `model`'s actions; FAILED if a model differs from what was imported."""
    parsed = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], int] = parsed.run
    with usage_errors():
        return run(parsed)


def _parser() -> argparse.ArgumentParser:
    parser = Parser("model")
    parser.usage = f"{parser.prog} {_ACTIONS}"
    actions = parser.add_subparsers(
        dest="action",
        required=True,
        metavar="ACTION",
        prog=parser.prog,
        parser_class=Parser,
    )
    importing = actions.add_parser(
        "import", help="converts a model to a bundle", description="Converts a model to a bundle."
    )
    importing.set_defaults(run=_import)
    importing.add_argument(
        "source",
        help="folder or .tar.gz of a Hugging Face, sentence-transformers, google-research or TF "
        "Hub BERT, local or gs://; hf://ORG/NAME@REVISION of the Hugging Face hub (requires "
        "huggingface-hub); ORG/NAME in its local cache; or a handle of TF Hub",
    )
    importing.add_argument("dest", help="folder for the bundle, which must not exist")
    google = importing.add_argument_group("where the source does not say")
    google.add_argument(
        "--checkpoint", metavar="NAME", help="of a google-research folder, such as model.ckpt-2345"
    )
    casing = google.add_mutually_exclusive_group()
    casing.add_argument("--lower_case", action="store_const", const=True, help="uncased model")
    casing.add_argument("--cased", action="store_const", const=False, dest="lower_case")
    google.add_argument(
        "--activation", choices=("gelu", "gelu_new", "relu"), help="of a google-research model"
    )
    exporting = actions.add_parser(
        "export",
        help="writes a model as a SavedModel",
        description="Writes a model as a SavedModel that takes and returns what the encoders of TF "
        "Hub do, for hub.KerasLayer and tf.saved_model.load. Requires TensorFlow.",
    )
    exporting.set_defaults(run=_export)
    exporting.add_argument("model", help="as --model of embed")
    exporting.add_argument("dest", help="folder for the SavedModel, which must not exist")
    for name, run, what in (
        ("inspect", _inspect, "prints facts about a model"),
        ("verify", _verify, "compares a model's files and vectors with those of its import"),
    ):
        action = actions.add_parser(name, help=what, description=f"{what.capitalize()}.")
        action.set_defaults(run=run)
        action.add_argument("model", help="as --model of embed")
        action.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _import(arguments: argparse.Namespace) -> int:
    from bert_embed.importers import import_model

    settings = {
        name: getattr(arguments, name) for name in ("checkpoint", "lower_case", "activation")
    }
    bundle = import_model(arguments.source, arguments.dest, **settings)
    config = bundle.config
    say(
        f"{bundle.path}: {config.num_hidden_layers} layers of {config.hidden_size}, "
        f"{config.hidden_act}, {_casing(bundle)}, "
        f"{config.vocab_size:,} entries, fingerprint {bundle.fingerprint}"
    )
    return ExitCode.DONE


def _export(arguments: argparse.Namespace) -> int:
    bundle = resolve_model(arguments.model)
    if os.path.lexists(arguments.dest):
        raise UsageError(f"{arguments.dest} exists, name a new folder for the SavedModel")
    with requires("a SavedModel", "tensorflow"):
        from bert_embed.graph.export import save

        save(load_encoder(bundle), arguments.dest)
    say(f"{arguments.dest}: a SavedModel with the interface of TF Hub's encoders")
    return ExitCode.DONE


def _inspect(arguments: argparse.Namespace) -> int:
    bundle = resolve_model(arguments.model)
    facts = model_facts(bundle)
    say(*(_json_lines(facts) if arguments.json else _table(bundle, facts)))
    return ExitCode.DONE


def _verify(arguments: argparse.Namespace) -> int:
    try:
        bundle = resolve_model(arguments.model)
        from bert_embed.self_test import verify

        verification = verify(bundle)
    except InputError as error:
        if not Path(arguments.model, METADATA).is_file():
            raise
        return _damaged(str(error))
    if arguments.json:
        say(*_json_lines(_figures(bundle, verification)))
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
    config = bundle.config
    weights = bundle.sizes()[WEIGHTS]
    return {
        "path": bundle.path,
        "fingerprint": bundle.fingerprint,
        "config": config.to_dict(),
        "parameters": parameter_count(config, bundle.has_pooler, bundle.dense),
        "weight_bytes": weights,
        "has_pooler": bundle.has_pooler,
        "tokenizer": bundle.tokenizer_settings,
        "max_seq_length": bundle.max_seq_length,
        "defaults": bundle.defaults.to_dict(),
        "width": bundle.defaults.width(config),
        "dense": [module.to_dict() for module in bundle.dense],
        "prompts": dict(bundle.prompts),
        "default_prompt": bundle.default_prompt,
        "source": bundle.source,
        "licence": bundle.licence,
    }


def _json_lines(facts: dict[str, Any]) -> list[str]:
    return json.dumps(facts, indent=2, ensure_ascii=False).split("\n")


def _table(bundle: Bundle, facts: dict[str, Any]) -> list[str]:
    """The facts for reading, one a line."""
    config, spec = bundle.config, bundle.defaults
    modules = [
        f"{module.in_features}x{module.out_features} {module.activation}" for module in bundle.dense
    ]
    parts = [f"layers {','.join(map(str, spec.layers))} {spec.layer_combine}", spec.pooling]
    parts += ["special tokens counted" if spec.pool_special_tokens else "no special tokens"]
    parts += [] if spec.pool_prompt else ["no prompt"]
    parts += ["unit length"] if spec.normalize else []
    rows = {
        "model": bundle.path,
        "fingerprint": bundle.fingerprint,
        "encoder": f"{config.num_hidden_layers} layers of {config.hidden_size}, "
        f"{config.num_attention_heads} heads, inner {config.intermediate_size}, "
        f"{config.hidden_act}, {'a' if bundle.has_pooler else 'no'} pooler",
        "size": f"{facts['parameters']:,} parameters, {facts['weight_bytes'] / 1e6:,.1f} MB",
        "vocabulary": f"{config.vocab_size:,} entries",
        "tokenizer": _tokenizer(bundle),
        "length": f"{bundle.max_seq_length} tokens, at most {config.max_position_embeddings}",
        "vectors": f"{', '.join(parts)}: {facts['width']} numbers",
        "dense modules": ", ".join(modules) or "none",
        "prompts": ", ".join(
            f"{name}{' (default)' if name == bundle.default_prompt else ''} {text!r}"
            for name, text in bundle.prompts.items()
        )
        or "none",
        "source": bundle.source or "unknown",
        "licence": bundle.licence or "unknown",
    }
    width = max(map(len, rows))
    return [f"{name:<{width}}  {value}" for name, value in rows.items()]


def _tokenizer(bundle: Bundle) -> str:
    settings = bundle.tokenizer_settings
    if "kind" in settings:
        return _casing(bundle)
    return f"WordPiece, {_casing(bundle)}, words of up to {settings['max_word_chars']} characters"


def _casing(bundle: Bundle) -> str:
    settings = bundle.tokenizer_settings
    if "kind" in settings:
        return f"{settings['kind']} of {bundle.tokenizer_file}"
    return "lower case" if settings["lower_case"] else "cased"
