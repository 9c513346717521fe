"""Multi-vectors of late-interaction models, beside those that sentence-transformers makes."""

import json
import re
import string
from functools import cache, partial
from itertools import product

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import load_file

from bert_embed.base.errors import SettingError
from bert_embed.encoder import Encoder
from bert_embed.text.tokenizer import load_tokenizer
from tests.support.engines import ENGINES
from tests.support.models.architectures import write_architecture
from tests.support.models.folder import imported, refused
from tests.support.models.heads import run_texts
from tests.support.models.multi_vectors import CASES, DIM, GOLDEN, TEXTS, write_multi_vectors
from tests.support.models.tiny import WORDS, small_vocabulary

pytestmark = pytest.mark.filterwarnings("ignore::bert_embed.TruncationWarning")

ST, BERT = "config_sentence_transformers.json", "sentence_bert_config.json"
SLOW, WEIGHTS = "tokenizer_config.json", "model.safetensors"
ROLES, VECTORS = ("query", "document"), np.load(GOLDEN)
MARKED = {"query": "[Q] of [D] a", "document": "[D] "}
FIXED = {"strategy": "fixed", "length": 16}


@pytest.fixture(scope="module")
def models(model_of):
    """The bundle of each case."""
    return partial(model_of, write_multi_vectors)


@pytest.fixture(scope="module")
def encoders(models):
    return cache(lambda case: Encoder(models(case), threads=2))


@pytest.mark.numeric
@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES)
def test_documents_and_queries_are_those_of_sentence_transformers(models, case, engine):
    encoder = Encoder(models(case), threads=1, load_engine=ENGINES[engine])
    for role in ("document", "query"):
        vectors = getattr(encoder, f"encode_{role}")(TEXTS, kind="multi")
        assert vectors.vectors.dtype == np.float32
        for number, rows in enumerate(vectors.rows()):
            expected = VECTORS[f"{case}/{role}/{number}"]
            assert rows.shape == expected.shape, (role, number)
            np.testing.assert_allclose(rows, expected, atol=1e-4)


def test_maxsim_is_that_of_the_definition(encoders):
    encoder = encoders("stanford")
    queries = encoder.encode_query(TEXTS[:2], kind="multi")
    documents = encoder.encode(TEXTS, kind="multi")
    assert documents == encoder.encode_document(TEXTS, kind="multi")
    scores = encoder.similarity(queries, documents)
    pairs = product(queries.rows(), documents.rows())
    expected = [(query @ rows.T).max(axis=1).sum() for query, rows in pairs]
    assert scores.dtype == np.float32
    np.testing.assert_allclose(scores, np.reshape(expected, scores.shape), rtol=1e-5)
    one = encoder.encode_query(TEXTS[1], kind="multi")
    np.testing.assert_array_equal(encoder.similarity(one, documents), scores[1:])
    pairs = encoder.similarity_pairwise(queries, documents[:2])
    np.testing.assert_array_equal(pairs, np.diag(scores))
    assert encoder.similarity(queries[:0], documents).shape == (0, len(TEXTS))
    assert encoder.similarity(queries, documents[:0]).shape == (2, 0)
    for wrong in (encoder.encode(TEXTS, kind="dense"), [0.5]):
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


@pytest.mark.parametrize(
    ("method", "words", "said"),
    [
        ("encode_query", {"kind": "multi", "top_k": 2}, "top_k is not a setting"),
        ("encode_query", {"kind": "multi", "long_text": "window"}, "window is for documents"),
        ("encode_query", {"kind": "multi", "long_text": "reject"}, r"set long_text to truncate$"),
        ("encode", {"kind": "multi", "normalize": True}, "normalize is not a setting"),
        ("encode", {"kind": "multi", "texts_b": "b"}, "is for pairs, which have no multi vectors"),
        ("encode", {"kind": "sparse"}, "kind sparse: this model makes dense, multi vectors"),
    ],
)
def test_settings_that_are_not_of_such_vectors_are_refused(encoders, method, words, said):
    with pytest.raises(SettingError, match=said):
        getattr(encoders("own"), method)("a " * 99, **words)


@pytest.mark.parametrize("case", ["pylate", "own"])
def test_a_marker_in_a_text_is_text(encoders, models, case):
    encoder, head = encoders(case), models(case).heads["multi"]
    rows, _ = run_texts(encoder, "multi", ["[D] the [Q] bank [D] "])
    ids = rows.input_ids.tolist()
    assert ids[1] == head.document_marker
    assert ids.count(head.document_marker) == 1
    assert head.query_marker not in ids
    assert head.query_marker != head.document_marker


def test_windows_give_each_token_of_a_document_once(encoders):
    encoder = encoders("stanford")
    whole = encoder.encode(TEXTS, max_seq_length=64, long_text="truncate", kind="multi")
    windows = {"max_seq_length": 9, "long_text": "window", "overlap": 3}
    merged = encoder.encode(TEXTS[:4], **windows, kind="multi")
    assert np.diff(merged.splits).tolist() == np.diff(whole.splits)[:4].tolist()
    short = encoder.encode(["a"], **windows, kind="multi")
    assert np.array_equal(short.vectors, encoder.encode(["a"], kind="multi").vectors)


def test_kept_windows_and_chunks_have_vectors_of_their_own(encoders, models):
    encoder, text = encoders("stanford"), "people could find two banks of the river"
    short = {"max_seq_length": 9}
    rows, done = run_texts(encoder, "multi", [text], **short, long_text="windows", overlap=3)
    found = done.heads["multi"]
    assert len(found) == 2
    assert np.diff(found.splits).tolist() == np.diff(rows.row_splits).tolist()
    assert not np.allclose(found.rows()[0][0], found.rows()[1][0])
    rows, done = run_texts(encoder, "multi", [text], **short, chunk="tokens", chunk_tokens=4)
    marker = models("stanford").heads["multi"].document_marker
    assert (rows.input_ids[rows.row_splits[:-1] + 1] == marker).all()
    chunk = encoder.encode("people could find two", max_seq_length=9, kind="multi")
    assert len(done.heads["multi"]) == len(rows.row_splits) - 1 > 1
    assert np.array_equal(done.heads["multi"].rows()[0], chunk.vectors)


def test_a_row_that_is_not_finite_fails(tmp_path):
    write_multi_vectors(tmp_path / "source", "stanford")
    name = "bert.embeddings.word_embeddings.weight"
    table = load_file(tmp_path / "source" / WEIGHTS)[name]
    table[small_vocabulary().index("people")] = np.nan
    encoder = Encoder(imported(tmp_path, files={WEIGHTS: {name: table}}), threads=1)
    _, done = run_texts(encoder, "multi", ["the bank", "people", "a river"])
    found = done.heads["multi"]
    assert done.rejected == {1: ("infer", "vector is not finite")}
    assert np.diff(found.splits).tolist() == [5, 0, 5]
    good = encoder.encode(["the bank", "a river"], kind="multi")
    assert np.array_equal(found.vectors, good.vectors)


@pytest.mark.parametrize(
    ("case", "file", "changes", "message"),
    [
        ("stanford", "artifact.metadata", {"query_maxlen": "32"}, "query_maxlen must be a whole"),
        ("stanford", "artifact.metadata", {"similarity": "l2"}, "must be 'cosine' for MaxSim"),
        ("pylate", ST, {"skiplist_words": ","}, "list of texts"),
        ("own", "3/config.json", {"keep_only_token_ids": [1]}, "_ids is not supported"),
        ("own", "3/config.json", {"skiplist_tasks": [["query"]]}, "be document, or query and docu"),
        ("own", ST, {"prompts": MARKED}, r"prompt query holds the special token \[D\] , which is"),
        ("pylate", ST, {"query_prefix": 1}, "must be a text, got"),
        ("own", "4/config.json", {"module_input_name": "sentence_embedding"}, "token_embeddings"),
        ("own", ST, {"query_length": 9}, "query_length is not su"),
        ("pylate", ST, {"pool_factor": 2}, "pool_factor is not s"),
        ("own_bert", ST, {"similarity_fn_name": "meanmaxsim"}, "must be maxsim, got 'meanmaxsim'"),
        ("own", BERT, {"query_expansion": {"length": 16}}, "fixed or min"),
        ("own", BERT, {"query_expansion": FIXED | {"token": "[GAP]"}}, r"filled with \[GAP\], whi"),
        ("own", BERT, {"query_expansion": FIXED | {"token": ["[MASK]"]}}, "token must be a text"),
    ],
)
def test_files_that_say_what_is_not_supported_are_named(tmp_path, case, file, changes, message):
    write_multi_vectors(tmp_path / "source", case)
    message = f"{re.escape(str(tmp_path / 'source'))}.*{message}"
    refused(tmp_path, message, {file: changes})


@pytest.mark.parametrize("case", ["pylate_bert", "own_bert"])
def test_the_length_of_documents_is_none_of_queries(tmp_path, case):
    """They have that of the model, where no file names one for them."""
    text = " ".join(WORDS[:50])
    write_multi_vectors(tmp_path / "source", case)
    files = {BERT: {"document_length": 20, "query_expansion": None, "query_length": None}}
    if case == "pylate_bert":
        files[ST] = {"document_length": 20, "do_query_expansion": False}
    encoder = Encoder(imported(tmp_path, files=files), threads=1)
    assert len(encoder.encode(text, kind="multi", long_text="truncate").vectors) <= 20
    assert len(encoder.encode_query(text, kind="multi").vectors) > 50


def test_settings_of_pylates_transformer_come_before_those_of_the_model(tmp_path):
    write_multi_vectors(tmp_path / "source", "pylate_bert")
    own = {"document_length": 9, "query_expansion": {"strategy": "fixed", "length": 7}}
    bundle = imported(tmp_path, files={BERT: own, ST: {"document_length": 30, "query_length": 20}})
    head = bundle.heads["multi"]
    assert (bundle.max_seq_length, head.query_length, head.fill_length) == (9, 7, 7)


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
def test_queries_are_filled_with_the_mask_that_the_tokenizers_files_name(tmp_path, file):
    write_multi_vectors(tmp_path / "source", "stanford")
    masks = {SLOW: {"mask_token": "[MASK]"}, "special_tokens_map.json": {}}
    bundle = imported(tmp_path, files=masks | {file: {"mask_token": {"content": "[unused1]"}}})
    assert load_tokenizer(bundle).vocab[bundle.heads["multi"].fill_id] == "[unused1]"


XLMR = {"tokenizer_class": "XLMRobertaTokenizer"}
METASPACE = XLMR | {"unk_token": "<unk>", "mask_token": "<mask>"}


@pytest.mark.parametrize(
    ("slow", "unknown"),
    [
        (METASPACE, "<unk>"),
        (METASPACE | {"unk_token": "bank"}, "bank"),
        (XLMR, "<unk>"),
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
    name = "embeddings.word_embeddings.weight"
    table = load_file(source / WEIGHTS)[name]
    entries = [entry for entry, _ in values["model"]["vocab"]]
    table = np.concatenate([table, np.ones((len(entries) - len(table), 32), np.float32)])
    files = {"tokenizer.json": values, "modules.json": None, SLOW: json.dumps(slow)}
    files[WEIGHTS] = {name: table, "linear.weight": np.ones((DIM, 32), np.float32)}
    files["config.json"] = {"architectures": ["HF_ColBERT"], "vocab_size": len(entries)}
    files["artifact.metadata"] = '{"query_maxlen": 16}'
    if unknown is None:
        refused(tmp_path, r"metadata: the marker '\[unused0\]' must be an entry", files)
        return
    bundle = imported(tmp_path, files=files)
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


@pytest.mark.parametrize(
    ("case", "prompts", "markers", "kept"),
    [
        ("own", ("[Q] of: ", "a"), ("[Q] ", None), ("of: ", "a")),
        # A prefix of PyLate is the marker before a prompt.
        ("pylate", ("[Q] find: ", "a: "), ("[Q] ", "[D] "), ("find: ", "a: ")),
    ],
)
def test_a_marker_may_be_followed_by_words(tmp_path, case, prompts, markers, kept):
    write_multi_vectors(tmp_path / "source", case)
    said = {ST: {"prompts": dict(zip(ROLES, prompts, strict=True))}}
    bundle = imported(tmp_path, files=said)
    entries, head = load_tokenizer(bundle).vocab, bundle.heads["multi"]
    numbers = [None if marker is None else entries.index(marker) for marker in markers]
    assert [head.query_marker, head.document_marker] == numbers
    assert bundle.prompts == dict(zip(ROLES, kept, strict=True))


def test_a_space_behind_a_marker_is_a_token_of_an_empty_query(tmp_path):
    """As theirs, whose tokenizer puts a space before all other texts itself."""
    write_multi_vectors(tmp_path / "source", "own")
    spaces = {"type": "ByteLevel", "trim_offsets": True, "use_regex": True}
    said = {"tokenizer.json": {"pre_tokenizer": spaces | {"add_prefix_space": True}}}
    said |= {ST: {"prompts": {"query": "[Q]  "}}, BERT: {"query_expansion": None}}
    encoder = Encoder(imported(tmp_path, files=said), threads=1)
    assert np.diff(encoder.encode_query(["", "a"], kind="multi").splits).tolist() == [4, 4]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_token_that_fills_a_query_and_sees_none_is_the_mask_alone(tmp_path, engine):
    """As in PyTorch: where all layers have a window it has the same vector in every query."""
    write_multi_vectors(tmp_path / "source", "own")
    window = {"layer_types": ["sliding_attention"] * 4, "local_attention": 4}
    bundle = imported(tmp_path, files={"config.json": window})
    encoder = Encoder(bundle, threads=1, load_engine=ENGINES[engine])
    queries = encoder.encode_query(["a", "the bank", "of a river"], kind="multi")
    far = [rows[-1] for rows in queries.rows()]
    np.testing.assert_allclose(far, [queries.rows()[0][-2]] * 3, atol=1e-5)
    assert np.abs(far[0] - queries.rows()[0][4]).max() > 1e-3  # which sees the text
