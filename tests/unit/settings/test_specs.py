import json

import pytest

from bert_embed.models.bert import BertConfig
from bert_embed.settings import VectorSpec

CONFIG = BertConfig(100, 8, 6, 2, 16, 32)


@pytest.mark.parametrize(
    ("settings", "numbers", "shape"),
    [
        ({}, (6,), (8,)),
        ({"layers": (0,)}, (0,), (8,)),
        ({"layers": (-7,)}, (0,), (8,)),
        ({"layers": (2, -2)}, (5,), (8,)),
        ({"layers": (-1, -2), "layer_combine": "sum"}, (6, 5), (8,)),
        ({"layers": (-2, 6), "layer_combine": "concat"}, (5, 6), (16,)),
        ({"layers": (1, 2, 3), "layer_combine": "stack"}, (1, 2, 3), (3, 8)),
        ({"layers": (1, 2), "layer_combine": "stack", "dim": 3}, (1, 2), (2, 3)),
        ({"pooling": "mean_max"}, (6,), (16,)),
        ({"pooling": "mean_max", "layers": (1, 2), "layer_combine": "concat"}, (1, 2), (32,)),
        ({"pooling": "pooler", "layers": (1, 2), "layer_combine": "concat"}, (6,), (8,)),
        ({"dim": 5}, (6,), (5,)),
    ],
)
def test_layers_and_shape(settings, numbers, shape):
    spec = VectorSpec(**settings)
    spec.check(CONFIG)
    assert spec.layer_numbers(CONFIG) == numbers
    assert spec.shape(CONFIG) == shape
    assert spec.width(CONFIG) == (shape[0] * shape[1] if len(shape) == 2 else shape[0])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": (9,)}, "layers must be between -7 and 6 for this 6-layer model, got 9"),
        ({"layers": (-8,)}, "layers must be between -7 and 6 for this 6-layer model, got -8"),
        ({"layers": ()}, "layers must name at least one layer"),
        ({"layers": ("1",)}, "layers must be an integer, got '1'"),
        ({"dim": 1.5}, r"dim must be an integer, got 1\.5"),
        ({"layer_combine": "max"}, "layer_combine must be one of last, .*, got 'max'"),
        ({"pooling": "median"}, "pooling must be one of mean, .*, got 'median'"),
        ({"dim": 0}, "dim must be at least 1, got 0"),
        ({"dim": 9}, "dim must be between 1 and 8 for this model, got 9"),
        ({"dim": 9, "layers": (1, 2), "layer_combine": "stack"}, "dim must be between 1 and 8 for"),
    ],
)
def test_what_a_model_cannot_give_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        VectorSpec(**settings).check(CONFIG)


def test_a_spec_survives_json():
    spec = VectorSpec(layers=[-1, -2], layer_combine="mean", pooling="cls", normalize=True, dim=4)
    assert VectorSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    with pytest.raises(ValueError, match="unknown vector settings: colour"):
        VectorSpec.from_dict({"colour": "red"})
