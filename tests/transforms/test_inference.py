"""RunInference over blocks: vectors go back to their documents, a bad row takes nobody along."""

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.util import assert_that, equal_to

from bert.bundle import read_bundle
from bert.encoder import EmbeddedRows
from bert.vector_spec import VectorSpec
from transforms.inference import BertModelHandler, EmbedBlocks, embedding_block
from transforms.part import Part
from transforms.sources import DocumentBlock
from transforms.tokenization import TokenBlock, TokenizeBlocks

SECOND_ROW_FAILED = EmbeddedRows(
    vectors=np.array([[1.0], [0.0], [3.0]], np.float32), failed={1: "vector is not finite"}
)


def token_rows(rows, row_of_document):
    """A TokenBlock of rows of given lengths."""
    count = len(row_of_document)
    places = pa.array([f"in.txt:{n}" for n in range(count)])
    return TokenBlock(
        Part(0, 0, records=count),
        places,
        places,
        np.arange(count),
        np.full(count, 3, np.int32),
        np.zeros(count, bool),
        np.array(row_of_document, np.int32),
        np.arange(rows * 3, dtype=np.int32),
        np.arange(rows + 1, dtype=np.int64) * 3,
    )


def test_documents_of_a_failed_row_are_rejected_alone():
    block = token_rows(3, [0, 1, 0, 2, 1])
    found = embedding_block(block, SECOND_ROW_FAILED, 0.0)
    assert found.ids.to_pylist() == ["in.txt:0", "in.txt:2", "in.txt:3"]
    assert found.vectors.tolist() == [[1.0], [1.0], [3.0]]
    assert found.text_hash.tolist() == [0, 2, 3]
    assert [(each.id, each.stage, each.reason) for each in found.part.rejected] == [
        ("in.txt:1", "infer", "vector is not finite"),
        ("in.txt:4", "infer", "vector is not finite"),
    ]


def test_as_many_failures_as_doubles_do_not_mix_rows_up():
    block = token_rows(3, [0, 0, 1, 2])
    assert embedding_block(block, SECOND_ROW_FAILED, 0.0).vectors.tolist() == [[1.0], [1.0], [3.0]]


def test_transforms_run_alone_in_other_pipelines(tiny_bundle):
    bundle = read_bundle(tiny_bundle)
    places = pa.array(["a", "b", "c"])
    blocks = [
        DocumentBlock(Part(0, 0, records=3), places, ["one", "two three", "one"], places),
        DocumentBlock(Part(1, 0), pa.array([], pa.string()), [], pa.array([], pa.string())),
    ]
    handler = BertModelHandler(tiny_bundle, bundle.fingerprint, VectorSpec(dim=4), 64, 1)
    with beam.Pipeline(options=PipelineOptions(["--runner=FnApiRunner"])) as pipeline:
        found = (
            pipeline
            | beam.Create(blocks)
            | TokenizeBlocks(tiny_bundle, 16)
            | EmbedBlocks(handler)
            | beam.Map(lambda block: (block.vectors.shape, block.ids.to_pylist(), block.batches))
        )
        assert_that(found, equal_to([((3, 4), ["a", "b", "c"], 1), ((0, 4), [], 0)]))


def test_a_bundle_that_was_exchanged_is_refused(tiny_bundle):
    handler = BertModelHandler(tiny_bundle, "another fingerprint", VectorSpec(), 64, 1)
    with pytest.raises(ValueError, match="holds another model than when the job started"):
        handler.load_model()
