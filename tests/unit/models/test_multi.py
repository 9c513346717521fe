"""Multi-vectors of late-interaction models, beside those that sentence-transformers makes."""

import json
import string
from functools import cache, partial

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import load_file, save_file

from bert_embed.backends.probe import verify
from bert_embed.base.errors import InputError, SettingError
from bert_embed.encoder import Encoder, TruncationWarning
from bert_embed.importers import import_model
from bert_embed.model import Request
from bert_embed.settings import TextSpec
from bert_embed.text.layout import text_rows
from bert_embed.text.tokenizer import load_tokenizer
from tests.support.engines import ENGINES
from tests.support.models.architectures import write_architecture
from tests.support.models.multi_vectors import CASES, DIM, GOLDEN, TEXTS, write_multi_vectors
from tests.support.models.tiny import WORDS, small_vocabulary, write_tiny_huggingface

pytestmark = pytest.mark.filterwarnings("ignore::bert_embed.TruncationWarning")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The bundle of each case, imported when it is first asked for."""

    @cache
    def model(case):
        place = tmp_path_factory.mktemp(case)
        write_multi_vectors(place / "source", case)
        return import_model(str(place / "source"), str(place / "bundle"))

    return model


@pytest.fixture(scope="module")
def encoders(models):
    return cache(lambda case: Encoder(models(case), threads=2))


@pytest.fixture(scope="module")
def golden():
    return dict(np.load(GOLDEN))


@pytest.mark.numeric
@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES)
def test_documents_and_queries_are_those_of_sentence_transformers(models, golden, case, engine):
    encoder = Encoder(models(case), threads=1, load_engine=ENGINES[engine])
    encoded = {
        "document": encoder.encode(TEXTS, kind="multi"),
        "query": encoder.encode_query(TEXTS, kind="multi"),
    }
    for role, vectors in encoded.items():
        assert vectors.vectors.dtype == np.float32
        for number, rows in enumerate(vectors.rows()):
            expected = golden[f"{case}/{role}/{number}"]
            assert rows.shape == expected.shape, (role, number)
            np.testing.assert_allclose(rows, expected, atol=1e-4)


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("case", ["stanford", "own"])
def test_vectors_have_the_same_bits_in_every_batch(models, case, precision):
    encoder = Encoder(models(case), threads=2, precision=precision)
    texts = [*TEXTS, *TEXTS[::-1], "the river", "a bank"]
    for method in (encoder.encode, encoder.encode_query):
        encode = partial(method, kind="multi")
        together = encode(texts).rows()
        for number, text in enumerate(texts):
            assert np.array_equal(together[number], encode(text, batch_tokens=16).vectors)


def test_maxsim_is_that_of_the_definition(encoders):
    encoder = encoders("stanford")
    queries, documents = (
        encoder.encode_query(TEXTS[:2], kind="multi"),
        encoder.encode(TEXTS, kind="multi"),
    )
    scores = encoder.similarity(queries, documents)
    expected = [
        [(query @ rows.T).max(axis=1).sum() for rows in documents.rows()]
        for query in queries.rows()
    ]
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    one = encoder.encode_query(TEXTS[1], kind="multi")
    np.testing.assert_array_equal(encoder.similarity(one, documents), scores[1:])
    pairs = encoder.similarity_pairwise(queries, documents[:2])
    np.testing.assert_array_equal(pairs, np.diag(scores))
    dense = encoder.encode(TEXTS, kind="dense")
    for wrong in (dense, [0.5], encoder.encode(TEXTS[0], kind="dense")):
        with pytest.raises(SettingError, match="other must be multi vectors as the first, got de"):
            encoder.similarity(one, wrong)
        with pytest.raises(SettingError, match="other must be dense vectors as the first, got mul"):
            encoder.similarity_pairwise(wrong, one)


def test_a_row_of_multi_vectors_is_one(encoders):
    vectors = encoders("own").encode(TEXTS, kind="multi")
    assert (vectors.kind, vectors.width) == ("multi", vectors.vectors.shape[1])
    for number, row in enumerate(vectors):
        np.testing.assert_array_equal(row, vectors.rows()[number])
        np.testing.assert_array_equal(vectors[np.int64(number)], row)
        assert (row.kind, row.width, len(row)) == ("multi", vectors.width, len(row.vectors))
    assert len(vectors[-2:]) == 2
    np.testing.assert_array_equal(vectors[-1], vectors.rows()[-1])
    with pytest.raises(IndexError):
        vectors[len(TEXTS)]


def test_a_colbert_model_names_the_kind_to_give(encoders):
    encoder = encoders("own")
    for call in (encoder.encode, encoder.encode_query, encoder.encode_document):
        for texts in ("a", ["a", "the bank"], []):
            with pytest.raises(SettingError, match=r"kind must be named, .*: give kind='multi';"):
                call(texts)
    found = encoder.encode("the bank", kind="multi")
    document = encoder.encode_document("the bank", kind="multi")
    np.testing.assert_array_equal(found, document)
    with pytest.raises(SettingError, match="top_k is not a setting"):
        encoder.encode_query("a", kind="multi", top_k=2)
    assert encoder.encode_query(TEXTS, kind="dense").shape == (len(TEXTS), encoder.dimension)
    with pytest.raises(SettingError, match="kind sparse: this model makes dense, multi vectors"):
        encoder.encode(TEXTS, kind="sparse")
    with pytest.raises(SettingError, match="kind must be one of dense, sparse, multi, scores, g"):
        encoder.encode(TEXTS, kind="colbert")
    with pytest.raises(SettingError, match="texts_b is for pairs, which have no multi vectors"):
        encoder.encode(["a"], ["b"], kind="multi")
    with pytest.raises(SettingError, match="normalize is not a setting"):
        encoder.encode(TEXTS, kind="multi", normalize=True)


@pytest.mark.parametrize("case", ["pylate", "own"])
def test_a_marker_in_a_text_is_text(encoders, models, case):
    encoder, head = encoders(case), models(case).heads["multi"]
    rows = text_rows(
        encoder.tokenizer,
        TextSpec(40, vectors=("multi",), marker=head.document_marker),
        ["[D] the [Q] bank [D] "],
    )
    ids = rows.rows.input_ids.tolist()
    assert ids[1] == head.document_marker
    assert ids.count(head.document_marker) == 1
    assert head.query_marker not in ids
    assert head.query_marker != head.document_marker


def test_windows_give_each_token_of_a_document_once(encoders):
    encoder = encoders("stanford")
    whole = encoder.encode(TEXTS, max_seq_length=64, long_text="truncate", kind="multi")
    merged = encoder.encode(TEXTS[:4], max_seq_length=9, long_text="window", stride=3, kind="multi")
    assert np.diff(merged.splits).tolist() == np.diff(whole.splits)[:4].tolist()
    short = encoder.encode(["a"], max_seq_length=9, long_text="window", stride=3, kind="multi")
    assert np.array_equal(short.vectors, encoder.encode(["a"], kind="multi").vectors)


def test_kept_windows_have_vectors_of_their_own(encoders, models):
    encoder = encoders("stanford")
    spec = TextSpec(
        9,
        long_text="window",
        stride=3,
        merge_windows=False,
        vectors=("multi",),
        marker=models("stanford").heads["multi"].document_marker,
    )
    rows = text_rows(encoder.tokenizer, spec, ["people could find two banks of the river"])
    vectors = encoder.embedder.run(Request(spec, rows=rows)).vectors
    assert len(vectors.heads["multi"]) == 2
    assert np.diff(vectors.heads["multi"].splits).tolist() == np.diff(rows.rows.row_splits).tolist()
    assert not np.allclose(vectors.heads["multi"].rows()[0][0], vectors.heads["multi"].rows()[1][0])


def test_equal_rows_are_computed_once_and_given_to_each_document(encoders, models):
    encoder = encoders("stanford")
    marker = models("stanford").heads["multi"].document_marker
    spec = TextSpec(24, vectors=("multi",), marker=marker)
    rows = text_rows(encoder.tokenizer, spec, ["the bank", "a river", "the bank"])
    done = encoder.embedder.run(Request(spec, rows=rows))
    embedded, vectors = done.rows, done.vectors
    assert len(embedded.heads["multi"]) == 2
    first, _, third = vectors.heads["multi"].rows()
    assert np.array_equal(first, third)


def test_a_bundle_keeps_its_head_and_is_what_it_was(models):
    bundle = models("own")
    head = bundle.heads["multi"]
    assert (head.dim, head.fill_length, head.attends_fill) == (DIM, 16, False)
    assert bundle.default_vectors == ("multi",)
    assert bundle.max_seq_length == 50
    result = verify(bundle)
    assert not result.problem
    assert "multi_output" in result.outputs


def test_a_row_that_is_not_finite_fails(tmp_path):
    write_multi_vectors(tmp_path / "source", "stanford")
    tensors = load_file(tmp_path / "source" / "model.safetensors")
    tensors["bert.embeddings.word_embeddings.weight"][small_vocabulary().index("people")] = np.nan
    save_file(tensors, tmp_path / "source" / "model.safetensors")
    bundle = import_model(str(tmp_path / "source"), str(tmp_path / "bundle"))
    encoder = Encoder(bundle, threads=1)
    spec = TextSpec(24, vectors=("multi",), marker=bundle.heads["multi"].document_marker)
    rows = text_rows(encoder.tokenizer, spec, ["the bank", "people", "a river"])
    done = encoder.embedder.run(Request(spec, rows=rows))
    vectors = done.vectors
    assert done.rejected == {1: ("infer", "vector is not finite")}
    assert np.diff(vectors.heads["multi"].splits).tolist() == [5, 0, 5]
    good = encoder.encode(["the bank", "a river"], kind="multi")
    assert np.array_equal(vectors.heads["multi"].vectors, good.vectors)


def test_long_texts_are_cut_with_a_warning(encoders):
    with pytest.warns(TruncationWarning, match="1 of 5 texts was cut at 24 tokens"):
        encoders("stanford").encode(TEXTS, kind="multi")


def test_what_a_model_cannot_do_is_refused(encoders, tmp_path):
    write_tiny_huggingface(tmp_path / "source")
    dense = Encoder(import_model(str(tmp_path / "source"), str(tmp_path / "bundle")), threads=1)
    for encode in (dense.encode, dense.encode_query):
        with pytest.raises(SettingError, match="multi: this model makes dense vectors alone"):
            encode("a", kind="multi")
    with pytest.raises(SettingError, match="window is for documents"):
        encoders("own").encode_query("a", long_text="window", kind="multi")
    with pytest.raises(SettingError, match=r"set long_text to truncate$"):
        encoders("own").encode_query("a " * 99, long_text="reject", kind="multi")


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("case", "file", "changes", "message"),
    [
        ("stanford", "artifact.metadata", {"query_maxlen": "32"}, "query_maxlen must be a whole"),
        ("pylate", "config_sentence_transformers.json", {"skiplist_words": ","}, "list of texts"),
        ("pylate", "1/config.json", {"use_residual": True}, "use_residual is not supported"),
        ("own", "3/config.json", {"keep_only_token_ids": [1]}, "is for images"),
        ("own", "3/config.json", {"skiplist_tasks": ["image"]}, "query and document"),
        ("own", "3/config.json", {"skiplist_tasks": [["query"]]}, "query and document"),
        ("own", "3/config.json", {"skiplist_tasks": ["query"]}, "must name document, too"),
        (
            "own",
            "config_sentence_transformers.json",
            {"prompts": {"query": "[Q] of [D] a", "document": "[D] "}},
            r"prompt query holds the special token \[D\] , which is read as text",
        ),
        ("pylate", "config_sentence_transformers.json", {"query_prefix": 1}, "must be a text, got"),
        ("own", "4/config.json", {"module_input_name": "sentence_embedding"}, "token_embeddings"),
        ("own", "config_sentence_transformers.json", {"query_length": 9}, "query_length is not su"),
        ("pylate", "config_sentence_transformers.json", {"pool_factor": 2}, "pool_factor is not s"),
        (
            "own_bert",
            "config_sentence_transformers.json",
            {"similarity_fn_name": "meanmaxsim"},
            "similarity_fn_name must be maxsim, got 'meanmaxsim'",
        ),
        ("own", "sentence_bert_config.json", {"query_expansion": {"length": 16}}, "fixed or min"),
        (
            "own",
            "sentence_bert_config.json",
            {"query_expansion": {"strategy": "fixed", "length": 16, "token": "[GAP]"}},
            r"filled with \[GAP\], which the vocabulary lacks",
        ),
        (
            "own",
            "sentence_bert_config.json",
            {"query_expansion": {"strategy": "fixed", "length": 16, "token": ["[MASK]"]}},
            "token must be a text",
        ),
    ],
)
def test_files_that_say_what_is_not_supported_are_named(tmp_path, case, file, changes, message):
    write_multi_vectors(tmp_path / "source", case)
    edit(tmp_path / "source" / file, **changes)
    with pytest.raises(InputError, match=message) as error:
        import_model(str(tmp_path / "source"), str(tmp_path / "bundle"))
    assert str(tmp_path / "source") in str(error.value)


@pytest.mark.parametrize("case", ["pylate_bert", "own_bert"])
def test_the_length_of_documents_is_none_of_queries(tmp_path, case):
    """They have that of the model, where no file names one for them."""
    source, text = tmp_path / "source", " ".join(WORDS[:50])
    write_multi_vectors(source, case)
    for file, of_queries in (
        ("config_sentence_transformers.json", {"do_query_expansion": False}),
        ("sentence_bert_config.json", {"query_expansion": None, "query_length": None}),
    ):
        if case == "pylate_bert" or file.startswith("sentence"):
            edit(source / file, document_length=20, **of_queries)
    encoder = Encoder(import_model(str(source), str(tmp_path / "bundle")), threads=1)
    document = encoder.encode(text, kind="multi", long_text="truncate")
    assert len(document.vectors) <= 20
    assert len(encoder.encode_query(text, kind="multi").vectors) > 50


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
def test_queries_are_filled_with_the_mask_that_the_tokenizers_files_name(tmp_path, file):
    write_multi_vectors(tmp_path / "source", "stanford")
    edit(tmp_path / "source" / "tokenizer_config.json", mask_token="[MASK]")
    (tmp_path / "source" / "special_tokens_map.json").write_text("{}")
    edit(tmp_path / "source" / file, mask_token={"content": "[unused1]"})
    bundle = import_model(str(tmp_path / "source"), str(tmp_path / "bundle"))
    assert load_tokenizer(bundle).vocab[bundle.heads["multi"].fill_id] == "[unused1]"


METASPACE = {"unk_token": "<unk>", "mask_token": "<mask>", "tokenizer_class": "XLMRobertaTokenizer"}


@pytest.mark.parametrize(
    ("slow", "unknown"),
    [
        (METASPACE, "<unk>"),
        (METASPACE | {"unk_token": "bank"}, "bank"),
        ({"tokenizer_class": "XLMRobertaTokenizer"}, "<unk>"),
        ({"tokenizer_class": "PreTrainedTokenizerFast"}, None),
    ],
)
def test_a_marker_of_stanford_that_is_no_entry_is_the_unknown_token(tmp_path, slow, unknown):
    """As `convert_tokens_to_ids` gives it to their code; where there is none, theirs fails."""
    source = tmp_path / "source"
    write_architecture(source, "xlm-roberta")
    path = source / "tokenizer.json"
    values = json.loads(path.read_text("utf-8"))
    marks = [[mark, 0.0] for mark in ("bank", ",", "▁!")]
    values["model"]["vocab"] += [mark for mark in marks if mark not in values["model"]["vocab"]]
    path.write_text(json.dumps(values), "utf-8")
    (source / "modules.json").unlink()
    (source / "tokenizer_config.json").write_text(json.dumps(slow))
    tensors = load_file(source / "model.safetensors")
    embeddings = "embeddings.word_embeddings.weight"
    entries = [entry for entry, _ in values["model"]["vocab"]]
    more = np.ones((len(entries) - len(tensors[embeddings]), 32), np.float32)
    tensors[embeddings] = np.concatenate([tensors[embeddings], more])
    tensors["linear.weight"] = np.ones((DIM, 32), np.float32)
    save_file(tensors, source / "model.safetensors")
    edit(source / "config.json", architectures=["HF_ColBERT"], vocab_size=len(entries))
    (source / "artifact.metadata").write_text('{"query_maxlen": 16}')
    if unknown is None:
        with pytest.raises(
            InputError, match=r"metadata: the marker '\[unused0\]' must be an entry"
        ):
            import_model(str(source), str(tmp_path / "bundle"))
        return
    bundle = import_model(str(source), str(tmp_path / "bundle"))
    head, encoder = bundle.heads["multi"], Encoder(bundle, threads=1)
    assert head.query_marker == head.document_marker == entries.index(unknown)
    plain = encoder.tokenizer.encode("the river")
    kept = [number for number in plain if number not in head.skip_ids]
    assert len(encoder.encode_document("the river", kind="multi").vectors) == len(kept) + 1
    assert len(encoder.encode_query("the river", kind="multi").vectors) == 16
    # Their code masks the first token of each mark, "▁" here, or "▁!" which is one.
    library = tokenizers.Tokenizer.from_file(str(path))
    firsts = {library.encode(mark, add_special_tokens=False).ids[0] for mark in string.punctuation}
    assert {*head.skip_ids} == firsts - {entries.index("<unk>")}


def test_a_marker_may_be_followed_by_words(tmp_path):
    write_multi_vectors(tmp_path / "source", "own", prompts={"query": "[Q] of: ", "document": "a"})
    bundle = import_model(str(tmp_path / "source"), str(tmp_path / "bundle"))
    entries, head = load_tokenizer(bundle).vocab, bundle.heads["multi"]
    assert (head.query_marker, head.document_marker) == (entries.index("[Q] "), None)
    assert bundle.prompts == {"query": "of: ", "document": "a"}


def test_a_prefix_of_pylate_is_the_marker_before_a_prompt(tmp_path):
    write_multi_vectors(tmp_path / "source", "pylate")
    path = tmp_path / "source" / "config_sentence_transformers.json"
    edit(path, prompts={"query": "[Q] find: ", "document": "a: "})
    bundle = import_model(str(tmp_path / "source"), str(tmp_path / "bundle"))
    entries, head = load_tokenizer(bundle).vocab, bundle.heads["multi"]
    assert [head.query_marker, head.document_marker] == [*map(entries.index, ("[Q] ", "[D] "))]
    assert bundle.prompts == {"query": "find: ", "document": "a: "}


def test_chunks_have_vectors_of_their_own_and_the_marker(encoders, models):
    encoder, head = encoders("stanford"), models("stanford").heads["multi"]
    spec = TextSpec(
        9, chunk="tokens", chunk_tokens=4, vectors=("multi",), marker=head.document_marker
    )
    rows = text_rows(encoder.tokenizer, spec, ["people could find two banks of the river"])
    assert (rows.rows.input_ids[rows.rows.row_splits[:-1] + 1] == head.document_marker).all()
    vectors = encoder.embedder.run(Request(spec, rows=rows)).vectors
    chunks = encoder.encode(["people could find two", "bank"], max_seq_length=9, kind="multi")
    assert len(vectors.heads["multi"]) == len(rows.rows.row_splits) - 1 > 1
    assert np.array_equal(vectors.heads["multi"].rows()[0], chunks.rows()[0])
