"""How far rounding alone may move a vector: from the number format and the model's depth.

A bound that was measured holds on the machine that measured it. Kernels for SSE, AVX2, AVX-512
with and without VNNI or BF16, AMX and Arm add up in other orders, fuse other operations and give
other last bits; what they share is the format in which they round, and how often.

One rounding to nearest in a format whose unit roundoff is u (Higham, "Accuracy and Stability of
Numerical Algorithms", 2nd edition, section 2.1) changes a number by at most u of it, uniformly
spread by u / sqrt(3). Errors of k roundings that do not depend on each other add up like sqrt(k),
not like k (Higham and Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM
Journal on Scientific Computing 41, 2019). A layer ends in a layer norm of the sum of its input and
what it computed, so errors of layers add up as well and are not multiplied. Over the numbers of a
vector such an error is close to its expectation, so it is held against the vector's length.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from bert_embed.models.bert import BertConfig
from tests.support.models.tiny import small_vocabulary

UNIT_ROUNDOFF = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
TINY = BertConfig(
    len(small_vocabulary()), 32, 2, 4, 64, 64
)  # tests.support.models.tiny without arguments
MINILM = BertConfig(30522, 384, 6, 12, 1536, 512)
# For weights that let an error grow, and texts where terms cancel.
_MARGIN = 1.5
# Numbers that a layer in a short format rounds to it one after the other (graph/model.py):
# four kernels, two inputs, and the results of four products, of their biases, of the two products
# of attention and its weights, of the two residuals and of the four steps of gelu. Sums, norms and
# softmax stay in float32.
_STORED = 23


def relative_error(config: BertConfig = TINY, precision: str = "float32") -> float:
    """Returns the largest distance that rounding explains, as a share of a vector's length."""
    # Sums, one term after the other as the worst kernel would: the products over the hidden size
    # (query, key and value side by side, attention's output, the first of the feed-forward layer)
    # and over the intermediate one, mean and variance of two norms, and those of attention.
    terms = 3 * config.hidden_size + config.intermediate_size + 4 * config.hidden_size
    terms += config.hidden_size // config.num_attention_heads + config.max_position_embeddings
    squares = terms * UNIT_ROUNDOFF["float32"] ** 2
    if precision != "float32":
        squares += _STORED * UNIT_ROUNDOFF[precision] ** 2
    return _MARGIN * math.sqrt(config.num_hidden_layers * squares / 3)


def least_cosine(config: BertConfig, precision: str) -> float:
    """Returns the cosine of two vectors whose distance is `relative_error` of their length."""
    return 1 - relative_error(config, precision) ** 2 / 2


def distance(found: ArrayLike, wanted: ArrayLike) -> float:
    """Returns the largest distance of two vectors of a row, as a share of the second's length.

    Args:
        found: Float `[..., width]`.
        wanted: The same shape; vectors of NaN, where there is none, must be the same ones.
    """
    one, other = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    assert one.shape == other.shape
    np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
    apart, length = (np.linalg.norm(np.nan_to_num(each), axis=-1) for each in (one - other, other))
    return float(np.max(apart / np.where(length > 0, length, 1), initial=0))


def assert_near(found: ArrayLike, wanted: ArrayLike, config: BertConfig = TINY) -> None:
    """Fails unless two results of one model are as near as two machines would compute them."""
    # Each of both has an error of its own.
    assert distance(found, wanted) <= 2 * relative_error(config)
