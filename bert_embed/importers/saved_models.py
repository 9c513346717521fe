"""Reads vocabulary, casing and variables of a SavedModel, and calls it."""

from pathlib import Path
from typing import Any

import numpy as np

from bert_embed.bundle.files import SAVED_MODEL, TF1_HUB
from bert_embed.bundle.safe_graph import check_graph, is_of_objects, parse_graph
from bert_embed.storage.errors import InputError

Rows = tuple[np.ndarray, np.ndarray, np.ndarray]  # ids, mask and types, int32 [batch, length]
CLOSE = 1e-3  # more than the rounding of 24 layers, less than another activation or norm
_MOST_POSITIONS = 512  # of BERT; a SavedModel does not say how many it has
_OTHER_EXPORT = "take version 3 or later of the model, or the checkpoint that it was made from"


def _check_kind(root: Path) -> None:
    """Checks that it is a SavedModel of TensorFlow 2; InputError says what to do if not."""
    if (root / TF1_HUB).is_file() or not (root / SAVED_MODEL).is_file():
        raise InputError(
            f"{root}: is a TensorFlow 1 hub.Module, {_OTHER_EXPORT}"
            if (root / TF1_HUB).is_file()
            else f"{root}: {SAVED_MODEL} is missing"
        )
    if not is_of_objects(parse_graph(root)):
        raise InputError(f"{root}: is a SavedModel of TensorFlow 1, {_OTHER_EXPORT}")


def load_saved_model(root: Path, trusted: bool = False) -> Any:
    """Loads a TensorFlow 2 SavedModel.

    Args:
        root: Its folder.
        trusted: Whether its graph may hold any operation that TensorFlow has.

    Raises:
        InputError: It is of TensorFlow 1, damaged, or has operations that no encoder needs.
    """
    import tensorflow as tf

    _check_kind(root)
    check_graph(root, trusted)

    try:
        return tf.saved_model.load(str(root))
    except (OSError, ValueError, IndexError, tf.errors.OpError) as error:  # IndexError: too short
        if "not registered" in str(error):
            raise InputError(
                f"{root}: uses operations that no BERT encoder has; where it is the preprocessing "
                "of a model, name the encoder itself"
            ) from error
        raise InputError(f"{root}: the SavedModel cannot be loaded, perhaps cut") from error


def find_vocabulary(loaded: Any, root: Path) -> Path:
    """Returns the file with the WordPiece vocabulary among the SavedModel's assets.

    Raises:
        InputError: There is none, it is a sentencepiece model, or it is outside the folder.
    """
    asset = getattr(loaded, "vocab_file", None)
    if asset is not None:
        vocabulary = Path(asset.asset_path.numpy().decode())
        if not vocabulary.resolve().is_relative_to(root.resolve()):
            raise InputError(f"{root}: its vocabulary {vocabulary} lies outside of the model")
        return vocabulary
    if hasattr(loaded, "sp_model_file") or list((root / "assets").glob("*.model")):
        raise InputError(
            f"{root}: has a sentencepiece vocabulary, which BERT models do not have; its models "
            "(ALBERT, XLNet) are not supported"
        )
    if (root / "assets" / "vocab.txt").is_file():
        return root / "assets" / "vocab.txt"
    raise InputError(
        f"{root}: has no vocabulary, put the model's vocab.txt into its folder {root / 'assets'}"
    )


def find_casing(loaded: Any, root: Path) -> bool:
    """Returns whether the SavedModel says that it is uncased; InputError if it does not say."""
    said = getattr(loaded, "do_lower_case", None)
    if said is None:
        raise InputError(
            f"{root}: does not say whether the model lowers case; import it with "
            "`model import SOURCE DEST` and lower_case or cased",
            "lower_case",
            "cased",
        )
    return bool(said.numpy())


def sample_rows(vocab_size: int) -> Rows:
    """Returns four rows of up to 16 tokens: with and without padding, texts and pairs."""
    lengths, seconds = np.array([[16], [11], [5], [3]]), np.array([[9], [6], [16], [16]])
    place = np.arange(16)[None, :]
    mask = (place < lengths).astype(np.int32)
    ids = np.random.default_rng(0).integers(0, vocab_size, (4, 16)).astype(np.int32)
    return ids * mask, mask, (place >= seconds).astype(np.int32) * mask


def encoder_outputs(loaded: Any, rows: Rows, root: Path) -> dict[str, np.ndarray]:
    """Calls the SavedModel.

    Returns:
        "layers" float32 `[L, tokens, hidden]`, without padding, and "pooler" float32
        `[batch, hidden]` if it has one.

    Raises:
        InputError: It is not a BERT encoder, or its output for a row depends on other rows.
    """
    from bert_embed.graph.hub_encoder import layer_outputs

    interface = (
        f"{root}: is not a BERT encoder of TF Hub: called with input_word_ids, input_mask and "
        "input_type_ids, int32 [batch, length] of any size, it must give"
    )
    given = _called(loaded, rows, root, interface)
    last = given.get("sequence_output") if hasattr(given, "get") else None
    if last is None or last.shape.rank != 3 or tuple(last.shape[:2]) != rows[0].shape:
        raise InputError(f"{interface} sequence_output, [batch, length, hidden]")
    layers = layer_outputs(given)
    if any(layer.shape != last.shape for layer in layers) or not _close(layers[-1], last):
        raise InputError(f"{interface} encoder_outputs, the last of them being sequence_output")
    if not _close(last, _called(loaded, rows, root, interface)["sequence_output"]):
        raise InputError(f"{root}: answers differently at every call, export it without dropout")
    length = int(rows[1][-1].sum())
    ids, mask, types = (each[-1:, :length] for each in rows)
    alone = _called(loaded, (ids, mask, types), root, interface)["sequence_output"]
    if not _close(last[-1:, :length], alone):
        raise InputError(f"{root}: a row's answer depends on padding or other rows, no BERT's does")
    tokens = rows[1] > 0
    outputs = {"layers": np.stack([layer.numpy()[tokens] for layer in layers])}
    pooled = given.get("pooled_output")
    if pooled is not None and tuple(pooled.shape) == (len(tokens), last.shape[-1]):
        outputs["pooler"] = pooled.numpy()
    return outputs


def _called(loaded: Any, rows: Rows, root: Path, interface: str) -> Any:
    import tensorflow as tf

    from bert_embed.graph.hub_encoder import call_encoder

    refusals = (TypeError, ValueError, KeyError, AttributeError, tf.errors.OpError)
    if not callable(loaded):
        raise InputError(f"{interface} sequence_output, but it cannot be called")
    try:
        return call_encoder(loaded, *rows)
    except refusals as error:
        try:
            loaded([tf.constant(each) for each in rows])
        except refusals:
            raise InputError(f"{interface} sequence_output, but it cannot be called so") from error
        raise InputError(
            f"{root}: takes a list, as the first encoders of TF Hub did, {_OTHER_EXPORT}"
        ) from error


def _close(one: Any, other: Any) -> bool:
    return bool(np.allclose(one.numpy(), other.numpy(), atol=CLOSE))


def call_variables(loaded: Any) -> dict[str, np.ndarray]:
    """Returns the variables that its call reads, by name, without those of heads."""
    functions = getattr(loaded.__call__, "concrete_functions", ())
    used = {each.name.removesuffix(":0"): each for one in functions for each in one.variables}
    return {name: each.numpy() for name, each in used.items()}


def longest_row(loaded: Any) -> int:
    """Returns how many tokens a row may have, up to the 512 of BERT, found by trying."""
    import tensorflow as tf

    from bert_embed.graph.hub_encoder import call_encoder

    accepted, refused = 16, _MOST_POSITIONS + 1
    length = _MOST_POSITIONS
    while accepted + 1 < refused:
        row = np.ones((1, length), np.int32)
        try:
            call_encoder(loaded, row, row, row * 0)
            accepted = length
        except (ValueError, tf.errors.OpError):
            refused = length
        length = (accepted + refused) // 2
    return accepted
