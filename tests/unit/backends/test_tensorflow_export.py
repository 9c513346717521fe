import subprocess
import sys

import numpy as np
import pytest

from bert_embed.backends.tensorflow.model import load_encoder
from bert_embed.bundle.bundle import read_bundle
from bert_embed.pipeline.cli import main
from tests.support.command import files_of_at_most
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
    encoder = load_encoder(read_bundle(tiny_bundle))
    found = encoder.hidden_states(IDS, MASK, IDS * 0)
    return [state.numpy() for state in found], encoder.call("pooler", found[-1][:, 0], MASK).numpy()


def test_a_saved_model_answers_as_tf_hubs_encoders_do(saved_model, states):
    import tensorflow as tf

    layers, pooled = states
    outputs = tf.saved_model.load(saved_model)(INPUTS)
    assert sorted(outputs) == ["default", "encoder_outputs", "pooled_output", "sequence_output"]
    for name in ("default", "pooled_output"):
        assert_near(outputs[name], pooled)
    assert_near(outputs["sequence_output"], layers[-1])
    for found, wanted in zip(outputs["encoder_outputs"], layers[1:], strict=True):
        assert_near(found, wanted)


def test_the_serving_signature_has_flat_names(saved_model, states):
    import tensorflow as tf

    serve = tf.saved_model.load(saved_model).signatures["serving_default"]
    outputs = serve(**{name: tf.constant(array) for name, array in INPUTS.items()})
    assert sorted(name for name in outputs if "_outputs_" in name) == [
        "encoder_outputs_0",
        "encoder_outputs_1",
    ]
    assert_near(outputs["encoder_outputs_0"], states[0][1])


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
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    count, without, loss = done.stdout.split()
    assert (int(count), int(without)) == (31, 0)
    assert float(loss) == pytest.approx(states[1].sum(), abs=1e-4)


def test_a_model_without_a_pooler_has_no_pooled_output(tmp_path):
    import tensorflow as tf

    write_tiny_huggingface(tmp_path / "source", pooler=False)
    assert main(["model", "export", str(tmp_path / "source"), str(tmp_path / "saved")]) == 0
    outputs = tf.saved_model.load(str(tmp_path / "saved"))(INPUTS)
    assert sorted(outputs) == ["encoder_outputs", "sequence_output"]


def test_what_is_there_is_not_overwritten(tmp_path, tiny_bundle, capsys):
    (tmp_path / "mine.txt").write_text("my own notes")
    assert main(["model", "export", tiny_bundle, str(tmp_path)]) == 2
    assert f"{tmp_path} exists, name a new folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_no_layer_above_the_highest_asked_for_is_computed(tiny_bundle):
    encoder = load_encoder(read_bundle(tiny_bundle))
    every = encoder.hidden_states(IDS, MASK, IDS * 0)
    some = encoder.hidden_states(IDS, MASK, IDS * 0, highest=1)
    assert (len(every), len(some)) == (3, 2)
    np.testing.assert_array_equal(some[1], every[1])


def test_a_vector_of_a_batch_without_rows_is_empty(tiny_bundle):
    encoder = load_encoder(read_bundle(tiny_bundle))
    empty = np.zeros((0, 4), np.int32)
    assert encoder.hidden_states(empty, empty, empty)[-1].shape == (0, 4, 32)


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
