"""What opens doors, and what the documents say, stands in no log, message or record."""

import ast
import io
import json
import logging
import re

import pytest

from bert_embed.base.errors import InputError, StepError
from bert_embed.pipeline.cli import main
from bert_embed.pipeline.console import SecretFilter, hide_in_flags, hide_secrets
from bert_embed.results.run_record import parse_record
from bert_embed.transforms.steps import RedactErrors
from tests.support.command import ROOT, Hold, embed, flags_of, ran, record, rejected
from tests.support.forks import python
from tests.support.outputs import contents

pytestmark = pytest.mark.slow

SECRET = "hunter2swordfish"
WORKER = json.dumps({"command": "boot.sh", "env": {"DB": SECRET}, "auth_token": SECRET})
FLAGS = [
    f"--s3_secret_access_key={SECRET}",
    "--s3_session_token",
    SECRET,
    f"--environment_config={WORKER}",
    f"--sdk_location=https://me:{SECRET}@host/sdk.tar.gz?X-Goog-Signature={SECRET}",
    "--service_account_email=runner@project.iam.gserviceaccount.com",
    "--dataflow_kms_key=projects/p/keys/k",
]


def test_neither_record_nor_advice_of_a_run_holds_a_secret(tmp_path, tiny_bundle, capfd):
    """The advice is how to continue."""
    path, output = tmp_path / "in.txt", tmp_path / "out"
    path.write_text("".join(f"the bank of river {n}\n" for n in range(1000)))
    words = ["embed", *flags_of(output, tiny_bundle, path, block_bytes=1000), *FLAGS]
    code, out, err = Hold(tmp_path / "hold", 1).interrupt(*words)
    assert code == 130, err
    assert "--s3_session_token '***'" in err
    assert SECRET not in out + err
    assert SECRET.encode() not in b"".join(contents(output).values())
    assert main(words) == 0
    assert SECRET.encode() not in b"".join(contents(output).values())
    shown = record(output)["options"]["beam_args"]
    assert "--s3_secret_access_key=***" in shown
    assert shown[shown.index("--s3_session_token") + 1] == "***"
    assert "--service_account_email=runner@project.iam.gserviceaccount.com" in shown
    assert "--dataflow_kms_key=projects/p/keys/k" in shown
    assert '--environment_config={"command": "boot.sh", "env": {"DB": "***"}' in " ".join(shown)
    assert SECRET not in "".join(capfd.readouterr())
    assert main(words) == 0
    assert record(output)["options"]["input"] == [str(path)]


def test_a_configuration_file_may_hold_them_too(run):
    texts = {"in.txt": "the bank\nof the river\n"}
    (config,) = run.written({"run.yaml": f"s3_secret_access_key: {SECRET}\nmax_seq_length: 16\n"})
    output = run(texts, config=config)
    assert SECRET.encode() not in b"".join(contents(output).values())
    for wrong in ("s3_secret_access_kei: {}", 'key: "{}', "key: *{}", "key: !{} a"):
        run.written({"run.yaml": f"{wrong.format(SECRET)}\n"})
        run(texts, "other", code=2, config=config)
        assert SECRET not in run.out + run.err


def test_messages_show_none(tmp_path, command):
    for words in (
        [f"--input=/nowhere/none-*.txt?password={SECRET}"],
        ["--input=/nowhere", f"--model=https://u:{SECRET}@tfhub.dev/x"],
        ["--input=/nowhere", f"https://host/file?token={SECRET}"],
        ["--input=/nowhere", f"--model=/models/x?access_token={SECRET}"],
    ):
        said = command("embed", *words, output=tmp_path / "out", code=2)
        assert SECRET not in said.out + said.err


def test_log_lines_show_none(caplog):
    logger = logging.getLogger("somebody.else")
    logger.addFilter(SecretFilter())
    try:
        logger.warning("GET %s", f"https://storage/x?X-Amz-Signature={SECRET}&a=1")
        try:
            raise ValueError(f"https://me:{SECRET}@host")
        except ValueError:
            logger.exception("it failed")
    finally:
        logger.filters.clear()
    assert SECRET not in caplog.records[0].getMessage()
    assert SECRET not in caplog.records[1].exc_text


@pytest.mark.parametrize(
    "text",
    [
        "--id_column key is not in the first record",
        "no such key: id; 12 tokens: [SEP]",
        "gs://bucket/a@b.txt",
        "basic documents/*.jsonl",
        "Basic information: ",
        "bearer documents-of-2024",
        "WHERE primary_key = 'x' AND key='y'",
        "WHERE password = 'x' or token=5",
    ],
)
def test_what_is_no_secret_is_shown(text):
    assert hide_secrets(text) == text


def test_what_is_hidden_and_what_is_not():
    assert hide_secrets(f"https://host/a?x=1&key={SECRET}") == "https://host/a?x=1&key=***"
    assert hide_secrets(f"gs://me:{SECRET}@host/a") == "gs://***@host/a"
    words = ["--batch_tokens=12", "--layers", "-1,-2", "--normalize", "--threads", "2"]
    assert hide_in_flags(words) == words


@pytest.mark.parametrize(
    "piece", ["a.", "password", "-", "a://", "eyJ-", "key ", "-----BEGIN ", "authorization ", 'x="']
)
@pytest.mark.timeout(60)  # which would be an hour if the time grew with the square of the length
def test_long_texts_take_little_time(piece):
    hide_secrets(piece * 100_000)


def test_paths_prompts_and_queries_are_stored_as_they_are(tmp_path, run):
    prompt = "Basic information: "
    output = run({"basic documents/in.txt": "the bank\nof the river\n"}, prompt=prompt)
    found, folder = record(output), str(tmp_path / "basic documents")
    assert found["options"]["prompt"] == prompt
    assert found["input"]["patterns"] == found["options"]["input"] == [folder]
    (output / "embeddings" / "part-0000000-00000.parquet").unlink()
    assert main(["verify", str(output), "--repair"]) == 0
    run.refused(tmp_path / "basic information", f"{tmp_path}/basic information", "other")


def sentences():
    """Every text with a space in it that stands in the code, but for docstrings."""
    for package in ("bert_embed", "transforms", "pipeline"):
        for path in sorted((ROOT / package).rglob("*.py")):
            nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
            docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            constants = (node for node in nodes if isinstance(node, ast.Constant))
            texts = (node.value for node in constants if id(node) not in docstrings)
            yield from (text for text in texts if isinstance(text, str) and " " in text)


def test_no_message_of_our_own_is_masked():
    found = list(sentences())
    assert len(found) > 1000
    assert [text for text in found if hide_secrets(text) != text] == []


TEXT = "Zwiebelkuchen"  # a word that stands nowhere but in the documents
_RUN = """
import logging, sys
logging.basicConfig(level=logging.DEBUG)
import bert_embed.pipeline.cli, bert_embed.pipeline.console
# As on a cluster, where Beam's own lines are kept, too.
bert_embed.pipeline.console.quiet_logs = lambda: None
sys.exit(bert_embed.pipeline.cli.main(["embed", *sys.argv[1:]]))
"""


@pytest.fixture
def broken(monkeypatch, capfd, caplog):
    """Runs a command whose function fails as a library fails on a text; returns all that it says.

    As on a cluster the lines of Beam's own log are part of that, too.
    """
    monkeypatch.setattr("bert_embed.pipeline.console.quiet_logs", lambda: None)
    caplog.set_level(logging.DEBUG)
    said = io.StringIO()
    handler = logging.StreamHandler(said)  # those of pytest hold the filters of other runs
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logging.getLogger().addHandler(handler)

    def run(function, command, *words):
        with monkeypatch.context() as patched:
            patched.setattr(f"bert_embed.{function}", lambda *given, **named: int(TEXT))
            assert main([command, *words]) == 1
        assert "DEBUG " in said.getvalue()
        return said.getvalue() + "".join(capfd.readouterr())

    yield run
    logging.getLogger().removeHandler(handler)


def test_no_text_stands_in_the_errors_of_examples(tmp_path, tiny_bundle, broken):
    (tmp_path / "in.txt").write_text(f"the bank {TEXT}\n")
    examples, output = tmp_path / "examples", tmp_path / "out"
    words = flags_of(examples, tiny_bundle, tmp_path / "in.txt")
    told = broken("transforms.examples.example_bytes", "tokenize", *words)
    assert_no_text(told, examples, "write")
    assert main(["tokenize", *words]) == 0
    words = flags_of(output, tiny_bundle, examples)
    told = broken("transforms.read.examples.example_block", "embed", *words)
    assert_no_text(told, output, "read")


@pytest.mark.parametrize("name", ["deal_out", "row_blocks"])
def test_no_text_stands_in_errors_of_a_tables_rows(tmp_path, tiny_bundle, bigquery, broken, name):
    table = f"secrets_{name}.t"
    bigquery.fill(f"test-project.{table}", [{"id": "a", "text": TEXT}])
    words = flags_of(tmp_path / "out", tiny_bundle, f"test-project:{table}")
    told = broken(f"transforms.bigquery.read.{name}", "embed", *words)
    assert_no_text(told, tmp_path / "out", "read( the table)?")


# A step by its name in messages; what fails in it, and the flags that lead there.
_STEPS = [
    ("read", "transforms.read.reader.parse_part", {}),
    ("tokenize", "text.layout.tokenize_documents", {}),
    ("write", "transforms.write.rejected_lines", {}),
    ("skip blocks", "transforms.steps.take", {"skip_blocks": 0}),
    ("read ids", "transforms.increments.input_keys", {"skip_existing": "old"}),
    ("read an earlier output", "transforms.increments.earlier_keys", {"skip_existing": "old"}),
]
_SOME_FAIL = {"long_text": "reject", "max_seq_length": 32, "max_rejected": "80%"}


def assert_no_text(told, output, step=None):
    """Neither in what a run said nor in what it writes down of itself."""
    paths = [output / "run.json", *(output / "_state" / "blocks").glob("*")]
    told += "".join(each.read_text() for each in paths if each.exists())
    assert TEXT.lower() not in told.lower()
    if step:
        assert re.search(rf"{step}: ValueError at .*its message may hold a text", told)


@pytest.fixture
def mixed(tmp_path):
    """Records of which two are embedded and four rejected, each for another reason."""
    path = tmp_path / "in.jsonl"
    lines = [{"id": "a", "text": f"the bank {TEXT}"}, {"id": "b", "text": f"{TEXT} river"}]
    lines += [{"id": "c", "text": [TEXT, 3]}, {"id": {TEXT: 1}, "text": TEXT}]
    lines += [{"id": "e", "text": " ".join([TEXT] * 99)}]
    rows = [*map(json.dumps, lines), f'{{"id": "d", "text": "{TEXT}']
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.mark.parametrize(("step", "function", "flags"), _STEPS, ids=[name for name, *_ in _STEPS])
def test_no_text_is_in_errors_of_steps(tmp_path, tiny_bundle, mixed, broken, step, function, flags):
    if "skip_existing" in flags:
        flags = {"skip_existing": tmp_path / "old"}
        assert embed(tmp_path / "old", tiny_bundle, mixed, **_SOME_FAIL) == 0
    words = flags_of(tmp_path / "out", tiny_bundle, mixed, **_SOME_FAIL, **flags)
    assert_no_text(broken(function, "embed", *words), tmp_path / "out", step)


def test_no_text_stands_in_logs_metrics_or_records(tmp_path, tiny_bundle, mixed, broken):
    """In a process of its own, from its imports to its end; nor if the model fails."""
    output = tmp_path / "out"
    words = flags_of(output, tiny_bundle, mixed, **_SOME_FAIL)
    done = ran([*python(), "-c", _RUN, *words, "--default_sdk_harness_log_level=DEBUG"])
    assert done.returncode == 0, done.stderr[-3000:]
    assert "DEBUG" in done.stderr
    assert_no_text(done.stdout + done.stderr, output)
    assert record(output)["counts"]["embedded"] == 2
    assert len(rejected(output)) == 4
    output = tmp_path / "failed"
    words = flags_of(output, tiny_bundle, mixed, **_SOME_FAIL)
    told = broken("backends.runner.padded_rows", "embed", *words)
    assert "the model failed on all of 2 rows: model error: ValueError" in told
    assert_no_text(told, output)


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (
            lambda: parse_record(b"[]", "DIR/run.json"),
            r"^DIR/run.json is damaged: it is not a JSON",
        ),
        (lambda: json.loads("a hidden"), r"^Read: json.decoder.JSONDecodeError at ((?!hidden).)*$"),
        (lambda: int("a hidden"), r"^Read: ValueError at ((?!hidden).)*$"),
    ],
)
def test_only_errors_of_our_own_classes_keep_their_words(work, told):
    with pytest.raises((InputError, StepError), match=told), RedactErrors("Read"):
        work()
