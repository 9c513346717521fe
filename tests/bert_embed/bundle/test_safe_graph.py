"""A SavedModel of somebody else computes, and does nothing but compute."""

import shutil
from pathlib import Path

import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow.python.framework import op_def_registry

import bert_embed
from bert_embed.bundle.bundle import write_metadata
from bert_embed.bundle.files import METADATA
from bert_embed.bundle.find import resolve_model
from bert_embed.bundle.safe_graph import ALLOWED, check_graph
from bert_embed.importers import import_model
from bert_embed.pipeline.cli import main
from bert_embed.storage.errors import InputError
from tests.support.command import embed, record
from tests.support.models.hub import TinyHub, write_tiny_hub
from tests.support.models.tiny import write_tiny_huggingface

pytestmark = pytest.mark.slow

INPUTS = {
    name: tf.TensorSpec([None, None], tf.int32, name=name)
    for name in ("input_word_ids", "input_mask", "input_type_ids")
}


class Spy(TinyHub):
    """An encoder that notes each call in a file, as an attacker's would send it somewhere."""

    @tf.function(input_signature=[INPUTS])
    def __call__(self, inputs):
        done = tf.io.write_file(self.place, "called")
        with tf.control_dependencies([done]):
            return dict(TinyHub.__call__.python_function(self, inputs))


def write_spy(folder: Path, traces: Path) -> None:
    tensors = write_tiny_huggingface(folder.parent / "huggingface", heads=4, hidden_act="gelu_new")
    spy = Spy(tensors, 4, "gelu_new", 0.5, layers_given=True)
    spy.name_variables("", official=False)
    spy.place = tf.constant(str(traces))
    spy.vocab_file = tf.saved_model.Asset(str(folder.parent / "huggingface" / "vocab.txt"))
    spy.do_lower_case = tf.Variable(True, trainable=False)
    tf.saved_model.save(spy, str(folder))


def change_graph(folder, change):
    """Rewrites a SavedModel's graph."""
    path = folder / "saved_model.pb"
    saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    change(saved.meta_graphs[0])
    path.write_bytes(saved.SerializeToString())


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """An encoder as TF Hub keeps it, which no test changes."""
    folder = tmp_path_factory.mktemp("hub") / "hub"
    write_tiny_hub(folder)
    return folder


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("the bank\nof the river\n")
    return path


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BERT_EMBED_CACHE", str(tmp_path / "cache"))


def test_a_model_that_writes_files_is_refused_and_runs_nothing(tmp_path, texts, capsys):
    traces = tmp_path / "traces"
    write_spy(tmp_path / "hub", traces)
    assert main(["model", "import", str(tmp_path / "hub"), str(tmp_path / "bundle")]) == 2
    told = capsys.readouterr().err
    assert "operations that no BERT encoder has (WriteFile)" in told
    assert "--allow_untrusted_model" in told
    assert embed(tmp_path / "out", str(tmp_path / "hub"), texts) == 2
    assert "WriteFile" in capsys.readouterr().err
    assert not traces.exists()
    assert not (tmp_path / "bundle").exists()
    assert not (tmp_path / "out" / "run.json").exists()


def test_who_trusts_its_maker_may_use_it(tmp_path, texts):
    traces, bundle = tmp_path / "traces", str(tmp_path / "bundle")
    write_spy(tmp_path / "hub", traces)
    words = ["model", "import", str(tmp_path / "hub"), bundle, "--allow_untrusted_model"]
    assert main(words) == 0
    assert traces.read_text() == "called"
    with pytest.raises(ValueError, match="WriteFile"):
        bert_embed.load(bundle)
    assert main(["model", "verify", bundle, "--allow_untrusted_model"]) == 0
    assert embed(tmp_path / "out", bundle, texts, allow_untrusted_model=True) == 0
    assert record(tmp_path / "out")["counts"]["embedded"] == 2


def test_a_bundle_may_lie_in_the_folder_that_it_copies(tmp_path):
    write_tiny_hub(tmp_path / "hub", twist=0.5)
    bundle = import_model(str(tmp_path / "hub"), str(tmp_path / "hub" / "bundle"))
    assert bundle.kind == "saved_model"
    named = {path.name for path in Path(bundle.path).iterdir()}
    assert named - {METADATA, "probe.npz", "vocab.txt"} == {
        path.name for path in (tmp_path / "hub").iterdir() if path.name != "bundle"
    }


def hash_again(bundle):
    """Writes the metadata of a bundle with the hashes that its files have now."""
    Path(bundle.path, METADATA).unlink()
    write_metadata(bundle.path, bundle)


def test_a_bundle_that_was_exchanged_is_refused_at_each_load(tmp_path, texts, capsys):
    write_tiny_hub(tmp_path / "hub", twist=0.5)
    bundle = import_model(str(tmp_path / "hub"), str(tmp_path / "bundle"))
    assert bundle.kind == "saved_model"
    path = tmp_path / "bundle" / "saved_model.pb"
    data = path.read_bytes()
    path.write_bytes(data.replace(b"Tanh", b"Sinh"))  # the size stays
    with pytest.raises(InputError, match=r"saved_model\.pb is damaged or was changed"):
        bert_embed.load(bundle.path)
    path.write_bytes(data.replace(b"SelectV2", b"ReadFile"))
    assert embed(tmp_path / "out", bundle.path, texts) == 2
    assert "saved_model.pb is damaged or was changed" in capsys.readouterr().err
    hash_again(bundle)  # whoever exchanges a file can write its hash, too
    assert embed(tmp_path / "out", bundle.path, texts) == 1
    assert "(ReadFile)" in capsys.readouterr().err


def called(graph):
    return next(f for f in graph.graph_def.library.function if "__call__" in f.signature.name)


def in_function(op):
    return lambda graph: called(graph).node_def.add(name="evil", op=op)


def calls_the_saver(graph):
    library = graph.graph_def.library.function
    saver = next(each for each in library if "traced_restore" in each.signature.name)
    node = called(graph).node_def.add(name="evil", op="StatefulPartitionedCall")
    node.attr["f"].func.name = saver.signature.name


def hides_an_operation(graph):
    graph.graph_def.library.function.add().signature.name = "ReadFile"
    in_function("ReadFile")(graph)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        *(
            (in_function(op), op)
            for op in (
                "ReadFile",
                "MatchingFiles",
                "SaveV2",
                "RestoreV2",
                "PyFunc",
                "EagerPyFunc",
                "PyFuncStateless",
                "TextLineReaderV2",
                "WholeFileReaderV2",
                "TFRecordReaderV2",
                "FixedLengthRecordReaderV2",
                "InitializeTableFromTextFileV2",
                "PrintV2",
                "DebugIdentityV3",
                "CollectiveReduceV2",
                "RemoteCall",
                "XlaLaunch",
                "ImportEvent",
                "LoadDataset",
                "IO>Custom",
            )
        ),
        (lambda graph: graph.graph_def.node.add(name="evil", op="WriteFile"), "WriteFile"),
        (calls_the_saver, "RestoreV2"),
        (hides_an_operation, "ReadFile"),
    ],
)
def test_whatever_is_no_computation_is_named_wherever_it_stands(tmp_path, hub, change, named):
    shutil.copytree(hub, tmp_path / "hub")
    check_graph(tmp_path / "hub")
    change_graph(tmp_path / "hub", change)
    with pytest.raises(ValueError, match=rf"no BERT encoder has \([^)]*{named}"):
        check_graph(tmp_path / "hub")
    check_graph(tmp_path / "hub", trusted=True)


def test_a_saver_that_is_called_by_another_name_is_no_saver(tmp_path, hub):
    shutil.copytree(hub, tmp_path / "hub")

    def change(graph):
        saver = next(
            each
            for each in graph.graph_def.library.function
            if "traced_restore" in each.signature.name
        )
        saver.attr["api_implements"].s = b"encoder"

    change_graph(tmp_path / "hub", change)
    with pytest.raises(ValueError, match="RestoreV2"):
        check_graph(tmp_path / "hub")


def test_what_is_allowed_has_no_effect_but_on_variables_and_chance():
    assert len(ALLOWED) > 200
    assert [name for name in ALLOWED if not hasattr(tf.raw_ops, name)] == []
    known = {name: op_def_registry.get(name) for name in ALLOWED}
    stateful = {name for name, definition in known.items() if definition.is_stateful}
    variables = {each for each in stateful if "Variable" in each or "Resource" in each}
    control = {"Assert", "Case", "CheckNumerics", "If", "StatefulPartitionedCall", "While"}
    chance = {each for each in stateful if "Random" in each or "Normal" in each}
    rest = {"DisableCopyOnRead", "Multinomial", "VarHandleOp", "VarIsInitializedOp"}
    assert stateful == variables | control | chance | rest


def test_a_vocabulary_outside_of_the_model_is_not_read(tmp_path, hub):
    secret = tmp_path / "secret.txt"
    secret.write_text("[PAD]\n")
    shutil.copytree(hub, tmp_path / "hub")

    def change(graph):
        graph.asset_file_def[0].filename = "../../secret.txt"

    change_graph(tmp_path / "hub", change)
    with pytest.raises(ValueError, match="lies outside of the model"):
        import_model(str(tmp_path / "hub"), str(tmp_path / "bundle"))


def test_pickled_weights_are_never_read(tmp_path):
    folder = tmp_path / "hf"
    write_tiny_huggingface(folder)
    (folder / "model.safetensors").unlink()
    trap = b"cos\nsystem\n(S'touch " + str(tmp_path / "ran").encode() + b"'\ntR."
    (folder / "pytorch_model.bin").write_bytes(trap)
    with pytest.raises(ValueError, match="pickled weights can run code"):
        resolve_model(str(folder))
    assert not (tmp_path / "ran").exists()
