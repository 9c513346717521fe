"""bge-m3: sparse and multi-vectors beside dense ones, by heads in files of PyTorch."""

import zipfile

import numpy as np
import pytest

from bert_embed.encoder import Encoder
from bert_embed.settings import VectorSpec
from tests.support.engines import ENGINES
from tests.support.models.architectures import GOLDEN, TEXTS
from tests.support.models.folder import imported, refused
from tests.support.models.heads import colbert, linear, state_dict, write_m3

STATES = np.load(GOLDEN)  # of transformers
SPECIAL = (0, 1, 2, 3)  # <s>, <pad>, </s>, <unk>


def expected(number):
    """The weight of each id of a text."""
    states = STATES[f"xlm-roberta/states/{number}"][:, -1].astype(np.float64)
    weights = np.maximum(states @ linear()["weight"][0] + linear()["bias"][0], 0)
    largest = {}
    for token, weight in zip(STATES[f"xlm-roberta/ids/{number}"].tolist(), weights, strict=True):
        if weight > 0 and token not in SPECIAL:
            largest[token] = max(weight, largest.get(token, 0))
    return dict(sorted(largest.items()))


@pytest.mark.slow
@pytest.mark.numeric
@pytest.mark.parametrize("engine", ENGINES)
def test_a_token_has_the_largest_weight_and_all_but_the_first_a_unit_vector(model_of, engine):
    bundle = model_of(write_m3)
    assert bundle.default_vectors == ("dense",)
    assert bundle.defaults == VectorSpec(pooling="cls", normalize=True)
    encoder = Encoder(bundle, threads=1, load_engine=ENGINES[engine])
    sparse = encoder.encode(list(TEXTS), kind="sparse")
    multi = [encode(list(TEXTS), kind="multi") for encode in (encoder.encode, encoder.encode_query)]
    for number in range(len(TEXTS)):
        row, weights = sparse[number : number + 1], expected(number)
        assert row.indices.tolist() == list(weights)
        np.testing.assert_allclose(row.values, list(weights.values()), atol=1e-4)
        states = STATES[f"xlm-roberta/states/{number}"][1:, -1].astype(np.float64)
        projected = states @ colbert()["weight"].T + colbert()["bias"]
        unit = projected / np.linalg.norm(projected, axis=1, keepdims=True)
        for vectors in multi:
            assert vectors.rows()[number].shape == unit.shape
            np.testing.assert_allclose(vectors.rows()[number], unit, atol=1e-4)


EVIL = b"cposix\nsystem\n(X\x09\x00\x00\x00touch /x\ntR."
WIDE, FORTRAN = np.ones((1, 32), np.float32), np.asfortranarray(np.ones((2, 16), np.float32))


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ({"pickled": EVIL}, "posix.system is refused, a file can run code by it"),
        ({"pickled": b"\x80\x02"}, "cannot be read as tensors that torch.save wrote"),
        ({"arrays": {"weight": WIDE}}, "sparse_linear.pt: tensor bias is missing"),
        ({"arrays": {"weight": FORTRAN}}, "the numbers of a tensor do not lie in order"),
        ({"pickled": state_dict(linear(), "os\nsystem")}, "os.system is refused"),
        ({"pickled": state_dict(linear(), "torch\nload")}, "torch.load is refused"),
        ({"pickled": b"\x80\x02K\x01."}, "must hold tensors by their names, and nothing else"),
        ({"packing": zipfile.ZIP_DEFLATED}, "it is not as torch.save writes a small file"),
    ],
)
def test_files_that_hold_more_than_tensors_are_refused(tmp_path, file, said):
    write_m3(tmp_path / "source", **file)
    refused(tmp_path, said)


def test_other_types_of_numbers_are_read_and_a_cut_file_is_refused(tmp_path):
    for dtype in ("<f2", "<f8"):
        write_m3(tmp_path / "source", linear(dtype))
        assert imported(tmp_path, dtype).heads["sparse"].skip_ids == SPECIAL
    refused(tmp_path, "cannot be read as ten", {"sparse_linear.pt": lambda data: data[:200]})
