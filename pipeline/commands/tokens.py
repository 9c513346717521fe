"""Prints the tokens of one text: `tokenize --text`."""

import argparse
from collections.abc import Sequence

from bert_embed.bundle.find import resolve_model
from bert_embed.pipeline.console import answer
from bert_embed.pipeline.errors import ExitCode
from bert_embed.pipeline.options.command_line import Parser, add_flag
from bert_embed.pipeline.options.embed import DEFAULTS, FLAGS
from bert_embed.text.tokenizer import load_tokenizer


def run_tokens(arguments: Sequence[str]) -> int:
    """Prints tokens, their ids and their places in the text, one token a line."""
    parser = Parser("tokenize", "Prints the tokens of a text, their ids and their places.")
    parser.add_argument("--text", required=True)
    add_flag(parser, "model", FLAGS["model"])
    words = parser.parse_args(arguments, argparse.Namespace(model=DEFAULTS["model"]))
    bundle = resolve_model(words.model, needed=lambda bundle: ())  # no weights
    tokenizer = load_tokenizer(bundle)
    encoded = tokenizer.encode_with_offsets([words.text])
    begin, end = (
        [(tokenizer.vocab[number], number, "")] if tokenizer.special_tokens else []
        for number in (tokenizer.cls_id, tokenizer.sep_id)
    )
    rows = [*begin]
    for token, number, start, stop in zip(
        tokenizer.tokens(encoded.ids), encoded.ids, encoded.starts, encoded.stops, strict=True
    ):
        rows.append((token, int(number), f"{start}:{stop}"))
    rows += end
    width = max((len(token) for token, _, _ in rows), default=0)
    for token, number, place in rows:
        answer(f"{token:<{width}}  {number:>6}  {place}".rstrip())
    return ExitCode.DONE
