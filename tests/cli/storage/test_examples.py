"""Examples in Cloud Storage: written there, read from there, kept there."""

from bert_embed.pipeline.cli import main
from tests.support.command import embed, files


def test_examples_on_cloud_storage(tmp_path, tiny_bundle, gcs):
    gcs.client.create_bucket("examples-stage")
    (tmp_path / "in.txt").write_text("the bank of the river\nmoney\n")
    there, text = "gs://examples-stage", tmp_path / "in.txt"
    words = [f"--input={text}", f"--output={there}/examples", f"--model={tiny_bundle}"]
    assert main(["tokenize", *words]) == 0
    assert embed(tmp_path / "out", tiny_bundle, f"{there}/examples/") == 0
    assert embed(tmp_path / "direct", tiny_bundle, text) == 0
    found = files(tmp_path / "out")
    assert found
    assert found == files(tmp_path / "direct")
