"""Search shows where a hit is in its document; all number types: unit/search/test_nearest.py."""

import pytest

import bert_embed
from bert_embed.base.errors import SettingError
from bert_embed.pipeline.cli import main
from tests.support.rounding import relative_error

LONG = "the people could find the two banks of the river and the money of a robber in the vault"
LAW = "seven stars"


@pytest.fixture
def encoder(tiny_bundle):
    return bert_embed.load(tiny_bundle)


@pytest.mark.parametrize(
    ("output_format", "dtype", "within"),
    [("parquet", "float32", 1e-5), ("jsonl", "int8", 0.01), ("parquet", "ubinary", 0.3)],
)
def test_hits_are_windows_with_their_place_and_text(
    tmp_path, run, capsys, encoder, output_format, dtype, within
):
    flags = {"long_text": "windows", "max_seq_length": 14, "overlap": 2, "output_dtype": dtype}
    output = run({"in.txt": f"{LONG}\n{LAW}\n"}, output_format=output_format, **flags)
    query = "the money of a robber in the vault"
    hits = bert_embed.nearest(str(output), [query], k=9)[0]
    assert [hit.id for hit in hits].count(f"{tmp_path}/in.txt:0") == len(hits) - 1 > 1
    texts = {f"{tmp_path}/in.txt:0": LONG, f"{tmp_path}/in.txt:{len(LONG) + 1}": LAW}
    for hit in hits:
        assert hit.text == texts[hit.id][hit.start : hit.stop]
        window, asked = encoder.encode([hit.text, query], normalize=True)
        assert abs(hit.score - window @ asked) < within
    assert main(["search", str(output), query, "--k", "1"]) == 0
    printed = capsys.readouterr().out
    assert f"{hits[0].id} {hits[0].start}:{hits[0].stop}" in printed
    assert hits[0].text in printed


def test_a_run_without_vectors_of_texts_is_refused(run, capsys):
    output = str(run({"in.txt": LAW}, granularity="token"))
    assert main(["search", output, "stars"]) == 2
    assert "holds vectors of token, none of sentence" in capsys.readouterr().err


def test_a_query_has_a_prompt_of_its_own_not_that_of_the_documents(run, encoder):
    output = str(run({"in.txt": f"{LONG}\n"}, prompt="people: ", normalize=True))
    document = encoder.encode(LONG, prompt="people: ", normalize=True)
    for asked, used in ((None, ""), ("money: ", "money: ")):
        (hit,) = bert_embed.nearest(output, ["vault"], k=1, prompt=asked)[0]
        expected = document @ encoder.encode("vault", prompt=used, normalize=True)
        assert abs(hit.score - expected) <= 4 * relative_error() + 1e-5
    with pytest.raises(SettingError, match=r"^prompt name:passage is none of this model's prompts"):
        bert_embed.nearest(output, ["vault"], k=1, prompt="name:passage")


def test_documents_of_one_id_keep_their_own_texts(run):
    files = {"in/a.csv": "id,text\n1,the money\n2,two banks of the river\n"}
    files["in/b.csv"] = "id,text\n1,a river and its banks\n2,seven stars\n"
    for block_bytes, known in ((30, True), (10_000, False)):
        output = run(files, str(block_bytes), block_bytes=block_bytes)
        hits = bert_embed.nearest(str(output), ["seven stars"], k=4)[0]
        texts = [hit.text for hit in hits]
        # In one part it cannot be told which of the two texts is the hit's.
        assert (texts[0] == "seven stars" and None not in texts) == known
        assert known or texts == [None] * 4


def test_the_second_text_of_a_pair_is_not_shown(run):
    lines = [{"text": "the money of a robber", "b": "in the vault"}, {"text": "a river", "b": "of"}]
    output = run({"in.jsonl": lines}, text_b_column="b")
    hits = bert_embed.nearest(str(output), ["the money"], k=2)[0]
    assert {hit.text for hit in hits} == {"the money of a robber", "a river"}
