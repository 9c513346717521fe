import sys

import numpy as np
import pytest
import tensorflow as tf

from bert_embed.backends.tensorflow.model import TensorFlowModule
from bert_embed.bundle.bundle import read_bundle
from bert_embed.pipeline.cli import main
from tests.support.command import files_of_at_most, ran
from tests.support.models.tiny import write_tiny_huggingface
from tests.support.rounding import assert_near

IDS = np.array([[2, 40, 41, 3], [2, 50, 3, 0]], np.int32)
MASK = (IDS > 0).astype(np.int32)
INPUTS = {"input_word_ids": IDS, "input_mask": MASK, "input_type_ids": IDS * 0}


@pytest.fixture(scope="module")
def saved_model(tiny_bundle, tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("saved") / "model")
    assert main(["model", "export", tiny_bundle, folder]) == 0
    return folder


@pytest.fixture(scope="module")
def states(tiny_bundle):
    encoder = TensorFlowModule(read_bundle(tiny_bundle))
    found = encoder.hidden_states(IDS, MASK, IDS * 0)
    return [state.numpy() for state in found], encoder.call("pooler", found[-1][:, 0], MASK).numpy()


def test_a_saved_model_answers_as_tf_hubs_encoders_do(saved_model, states):
    layers, pooled = states
    loaded = tf.saved_model.load(saved_model)
    outputs = loaded(INPUTS)
    assert sorted(outputs) == ["default", "encoder_outputs", "pooled_output", "sequence_output"]
    for name in ("default", "pooled_output"):
        assert_near(outputs[name], pooled)
    assert_near(outputs["sequence_output"], layers[-1])
    for found, wanted in zip(outputs["encoder_outputs"], layers[1:], strict=True):
        assert_near(found, wanted)
    serve = loaded.signatures["serving_default"]  # whose names are flat
    flat = serve(**{name: tf.constant(array) for name, array in INPUTS.items()})
    names = sorted(name for name in flat if "_outputs_" in name)
    assert names == ["encoder_outputs_0", "encoder_outputs_1"]
    assert_near(flat["encoder_outputs_0"], layers[1])


@pytest.mark.slow
def test_a_keras_layer_of_tf_hub_can_be_trained(saved_model, states):
    # In a process of its own: tensorflow-hub turns Keras 2 on for the whole process.
    script = f"""if True:
        import tensorflow as tf, tensorflow_hub as hub
        layer = hub.KerasLayer({saved_model!r}, trainable=True)
        ids = tf.constant({IDS.tolist()}, tf.int32)
        inputs = dict(input_word_ids=ids, input_mask=tf.cast(ids > 0, tf.int32))
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(inputs | dict(input_type_ids=ids * 0))["pooled_output"])
        grads = tape.gradient(loss, layer.trainable_variables)
        print(len(grads), sum(grad is None for grad in grads), float(loss))
    """
    done = ran([sys.executable, "-c", script])
    assert done.returncode == 0, done.stderr
    count, without, loss = done.stdout.split()
    assert (int(count), int(without)) == (31, 0)
    assert float(loss) == pytest.approx(states[1].sum(), abs=1e-4)


def test_a_model_without_a_pooler_has_no_pooled_output(tmp_path, capsys):
    write_tiny_huggingface(tmp_path / "source", pooler=False)
    words = ["model", "export", str(tmp_path / "source"), str(tmp_path / "saved")]
    assert main(words) == 0
    outputs = tf.saved_model.load(str(tmp_path / "saved"))(INPUTS)
    assert sorted(outputs) == ["encoder_outputs", "sequence_output"]
    (tmp_path / "saved" / "saved_model.pb").write_text("mine")
    assert main(words) == 2  # what is there is not overwritten
    assert f"{tmp_path / 'saved'} exists, name a new folder" in capsys.readouterr().err
    assert (tmp_path / "saved" / "saved_model.pb").read_text() == "mine"


@pytest.mark.parametrize("action", ["import", "export"])
def test_a_disk_that_it_fills_is_named_with_its_folder(tiny_bundle, tmp_path, capsys, action):
    write_tiny_huggingface(tmp_path / "source")
    source = tiny_bundle if action == "export" else str(tmp_path / "source")
    with files_of_at_most(20_000):
        assert main(["model", action, source, str(tmp_path / "dest")]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert "File too large" in said
    assert str(tmp_path / "dest") in said
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
