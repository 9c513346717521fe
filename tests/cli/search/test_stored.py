"""Search reads every output type and kept windows, and refuses a run without vectors of texts."""

import functools
import json

import numpy as np
import pyarrow as pa
import pytest

import bert_embed
from bert_embed.base.errors import SettingError
from bert_embed.pipeline.cli import main
from bert_embed.results.names import OUTPUT_DTYPES
from bert_embed.transforms.blocks import EmbeddingBlock, KeptWindows
from bert_embed.transforms.parts import Part
from bert_embed.transforms.write import write_vectors
from tests.support.command import embed, record, sentence_files
from tests.support.rounding import MINILM, relative_error

pytestmark = pytest.mark.slow

LONG = "Knead the dough for ten minutes and let it rise. The ship left the harbour at dawn."
TEXTS = {"long": LONG, "law": "The court heard both parties before it ruled."}
WINDOWS = [("long", 0, 48), ("long", 49, 83), ("law", 0, 45)]


@functools.cache
def encoder():
    return bert_embed.load("minilm")


@pytest.fixture(scope="module")
def embedded(minilm, tmp_path_factory):
    folder = tmp_path_factory.mktemp("search")
    lines = [json.dumps({"id": name, "text": text}) for name, text in TEXTS.items()]
    (folder / "in.jsonl").write_text("\n".join(lines))
    assert embed(folder / "out", "minilm", folder / "in.jsonl") == 0
    return folder / "out"


def rewrite(embedded, output_format, **changes):
    """Puts windows in the place of the run's documents, as a run that keeps them would."""
    names = list(TEXTS)
    document = np.array([names.index(name) for name, _, _ in WINDOWS], np.int32)
    starts, stops = np.array([place[1:] for place in WINDOWS], np.int32).T
    block = EmbeddingBlock(
        part=Part(0, 0, records=2),
        ids=pa.array(names),
        num_tokens=np.array([20, 11], np.int32),
        truncated=np.zeros(2, bool),
        text_hash=np.zeros(2, np.int64),
        vectors=encoder().encode([TEXTS[name][start:stop] for name, start, stop in WINDOWS]),
        windows=KeptWindows(document, np.array([0, 1, 0]), starts, stops, document + 11),
    )
    for path in sentence_files(embedded):
        path.unlink()
    run = record(embedded)
    run["vectors"] |= changes
    report = write_vectors(str(embedded), run["run"], output_format, run["vectors"]).write(block)
    ((_, file),) = report.files.items()
    run["written"] = {"windows": {"files": 1, "bytes": file.bytes, "rows": file.rows}}
    (embedded / "run.json").write_text(json.dumps(run))


@pytest.mark.parametrize(
    ("dtype", "output_format"), [*((each, "parquet") for each in OUTPUT_DTYPES), ("int8", "jsonl")]
)
def test_hits_are_windows_with_their_place_and_text(embedded, dtype, output_format):
    rewrite(embedded, output_format, output_dtype=dtype)
    hits = bert_embed.nearest(str(embedded), ["a boat on the ocean"], k=3)[0]
    assert (hits[0].id, hits[0].start, hits[0].stop) == ("long", 49, 83)
    assert hits[0].text == "The ship left the harbour at dawn."
    assert sorted((hit.id, hit.start, hit.stop) for hit in hits) == sorted(WINDOWS)
    window, query = encoder().encode([LONG[49:83], "a boat on the ocean"])
    assert abs(hits[0].score - window @ query) < {"int8": 0.01, "ubinary": 0.15}.get(dtype, 0.002)


def test_the_command_prints_where_the_window_is(embedded, capsys):
    rewrite(embedded, "parquet", output_dtype="float32")
    words = [str(embedded), "baking", "--k", "1"]
    assert main(["search", *words]) == 0
    printed = capsys.readouterr().out
    assert "long 0:48" in printed
    assert "Knead the dough for ten minutes and let it rise." in printed
    assert "harbour" not in printed


def test_a_run_without_vectors_of_texts_is_refused(embedded, capsys):
    rewrite(embedded, "parquet", granularity=["token"])
    assert main(["search", str(embedded), "baking"]) == 2
    assert "holds vectors of token, none of sentence" in capsys.readouterr().err
    rewrite(embedded, "parquet", granularity=["sentence", "token"])
    assert bert_embed.nearest(str(embedded), ["baking"], k=1)[0][0].id == "long"


def test_windows_of_a_run_are_found_with_their_text(tmp_path, run):
    flags = {"long_text": "windows", "max_seq_length": 14, "overlap": 2}
    text = {"in.txt": LONG + "\n" + TEXTS["law"] + "\n"}
    output = run(text, model="minilm", output_dtype="int8", **flags)
    hit = bert_embed.nearest(str(output), ["a boat on the ocean"], k=1)[0][0]
    assert hit.id == f"{tmp_path}/in.txt:0"
    assert hit.text == LONG[hit.start : hit.stop]
    assert "harbour" in hit.text
    assert hit.start > 0


def test_a_query_has_a_prompt_of_its_own_not_that_of_the_documents(run):
    texts = {"in.txt": "".join(f"{text}\n" for text in TEXTS.values())}
    output = str(run(texts, model="minilm", prompt="passage: "))
    document = encoder().encode([LONG], prompt="passage: ")[0]
    for asked, used in ((None, ""), ("query: ", "query: ")):
        hits = bert_embed.nearest(output, ["baking"], k=1, prompt=asked)[0]
        expected = document @ encoder().encode(["baking"], prompt=used)[0]
        assert abs(hits[0].score - expected) <= 4 * relative_error(MINILM)  # of both vectors, twice
    with pytest.raises(SettingError, match=r"^prompt name:passage is none of this model's prompts"):
        bert_embed.nearest(output, ["baking"], k=1, prompt="name:passage")


def test_documents_of_one_id_keep_their_own_texts(run):
    files = {"in/a.csv": "id,text\n1,bread and butter\n2,ships at sea\n"}
    files["in/b.csv"] = "id,text\n1,a boat on the ocean\n2,baking a loaf\n"
    for block_bytes, texts in ((30, ["a boat on the ocean", "ships at sea"]), (10_000, [None] * 2)):
        output = run(files, str(block_bytes), model="minilm", block_bytes=block_bytes)
        hits = bert_embed.nearest(str(output), ["a boat on the sea"], k=2)[0]
        # In one part it cannot be told which of the two texts is the hit's.
        assert [hit.text for hit in hits] == texts


def test_the_second_text_of_a_pair_is_not_shown(run):
    pairs = [("Bake the bread.", "In the oven."), ("Sail away.", "At dawn.")]
    lines = [{"text": text, "b": text_b} for text, text_b in pairs]
    output = run({"in.jsonl": lines}, model="minilm", text_b_column="b")
    assert bert_embed.nearest(str(output), ["baking"], k=1)[0][0].text == "Bake the bread."
