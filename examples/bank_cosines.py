"""Show that a word's vector depends on its sense: three times "bank" in one sentence.

The sentence is that of McCormick and Ryan, "BERT Word Embeddings Tutorial" (2019). The vector of
a token is the sum of the last four layers. The bank of "bank vault" and of "bank robber" keeps
money, that of "river bank" water; so the first cosine should be larger than the second.

Usage, from the clone's folder: python -m examples.bank_cosines [--model MODEL] [--token_types 1]

The tutorial's figures, 0.946 and 0.680, are those of bert-base-uncased with token_type_ids of 1
throughout; the reference code gives a single text 0, as does everything else in this repository.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bert_embed.backends.tensorflow.model import TensorFlowModule
from bert_embed.bundle.bundle import Bundle
from bert_embed.bundle.find import resolve_model
from bert_embed.text.tokenizer import load_tokenizer

SENTENCE = (
    "After stealing money from the bank vault, "
    "the bank robber was seen fishing on the Mississippi river bank."
)
_WORD = "bank"
_LAST_LAYERS = 4


@dataclass(frozen=True)
class Banks:
    """The sentence as a model sees it.

    Attributes:
        tokens: Its tokens, [CLS] and [SEP] included.
        input_ids: Their ids, int32 `[tokens]`.
        places: Where "bank" stands among them: of the vault, the robber, the river.
        vectors: float32 `[3, hidden]`, of those three.
    """

    tokens: list[str]
    input_ids: np.ndarray
    places: tuple[int, int, int]
    vectors: np.ndarray

    def cosine(self, one: int, other: int) -> float:
        """Cosine of two of the three vectors."""
        a, b = self.vectors[one].astype(np.float64), self.vectors[other].astype(np.float64)
        return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def banks(bundle: Bundle, token_types: int = 0) -> Banks:
    """Computes the vectors of the three tokens "bank".

    Args:
        bundle: The model.
        token_types: Type id of every token: 0 as in the reference, 1 as in the tutorial.

    Raises:
        ValueError: The model has fewer than four layers or no such type, or its vocabulary does
            not hold the word.
    """
    config = bundle.config
    if config.num_hidden_layers < _LAST_LAYERS:
        raise ValueError(f"--model must have {_LAST_LAYERS} layers, {bundle.path} has fewer")
    if not 0 <= token_types < config.segments:
        most = config.segments - 1
        raise ValueError(f"--token_types must be between 0 and {most}, got {token_types}")
    tokenizer = load_tokenizer(bundle)
    ids = tokenizer.encode(SENTENCE)
    tokens = tokenizer.tokens(ids)
    places = [at for at, token in enumerate(tokens) if token == _WORD]
    if len(places) != 3:
        raise ValueError(f"--model must know the word {_WORD!r}, {bundle.path} does not")
    input_ids = np.array(ids, np.int32)
    summed = _summed_layers(bundle, input_ids, token_types)
    return Banks(tokens, input_ids, (places[0], places[1], places[2]), summed[places])


def _summed_layers(bundle: Bundle, input_ids: np.ndarray, token_types: int) -> np.ndarray:
    """The sum of the last four hidden states of one row, float32 `[tokens, hidden]`."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # before TensorFlow is imported
    encoder = TensorFlowModule(bundle)
    row = input_ids[np.newaxis]
    states = encoder.hidden_states(row, np.ones_like(row), np.full_like(row, token_types))
    return np.sum([state.numpy()[0] for state in states[-_LAST_LAYERS:]], axis=0)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints tokens, ids and both cosines; returns 0, or 2 where the model will not do."""
    parser = argparse.ArgumentParser(description='Cosines between the senses of "bank".')
    parser.add_argument("--model", default="minilm", help="as embed takes it (default: minilm)")
    parser.add_argument(
        "--token_types", type=int, choices=(0, 1), default=0, help="of every token (default: 0)"
    )
    args = parser.parse_args(arguments)
    try:
        senses = banks(resolve_model(args.model), args.token_types)
    except ValueError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    for place, (token, number) in enumerate(zip(senses.tokens, senses.input_ids, strict=True)):
        print(f"{place:3} {token:12} {number:6}{'  <' if place in senses.places else ''}")
    print(f"bank robber and bank vault  {senses.cosine(1, 0):.4f}")
    print(f"bank robber and river bank  {senses.cosine(1, 2):.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
