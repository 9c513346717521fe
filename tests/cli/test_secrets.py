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


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("the bank\nof the river\n")
    return path


def everything(folder):
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_the_record_of_a_run_holds_no_secret(tmp_path, texts, tiny_bundle, capfd):
    output = tmp_path / "out"
    assert main(["embed", *flags_of(output, tiny_bundle, texts), *FLAGS]) == 0
    assert SECRET.encode() not in everything(output)
    shown = record(output)["options"]["beam_args"]
    assert "--s3_secret_access_key=***" in shown
    assert shown[shown.index("--s3_session_token") + 1] == "***"
    assert "--service_account_email=runner@project.iam.gserviceaccount.com" in shown
    assert "--dataflow_kms_key=projects/p/keys/k" in shown
    assert '--environment_config={"command": "boot.sh", "env": {"DB": "***"}' in " ".join(shown)
    assert SECRET not in "".join(capfd.readouterr())
    assert main(["embed", *flags_of(output, tiny_bundle, texts), *FLAGS]) == 0
    assert record(output)["options"]["input"] == [str(texts)]


def test_a_configuration_file_may_hold_them_too(tmp_path, texts, tiny_bundle, capfd):
    config = tmp_path / "run.yaml"
    config.write_text(f"s3_secret_access_key: {SECRET}\nmax_seq_length: 16\n")
    assert embed(tmp_path / "out", tiny_bundle, texts, config=config) == 0
    assert SECRET.encode() not in everything(tmp_path / "out")
    config.write_text(f"s3_secret_access_kei: {SECRET}\n")
    assert embed(tmp_path / "other", tiny_bundle, texts, config=config) == 2
    assert SECRET not in "".join(capfd.readouterr())


def test_the_command_that_continues_shows_none(tmp_path, tiny_bundle):
    path = tmp_path / "in.txt"
    path.write_text("".join(f"the bank of river {n}\n" for n in range(1000)))
    output, hold = tmp_path / "out", Hold(tmp_path / "hold", 1)
    code, out, err = hold.interrupt(
        "embed", *flags_of(output, tiny_bundle, path, block_bytes=1000), *FLAGS
    )
    assert code == 130, err
    assert "--s3_session_token '***'" in err
    assert SECRET not in out + err
    assert SECRET.encode() not in everything(output)


@pytest.mark.parametrize(
    "arguments",
    [
        [f"--input=/nowhere/none-*.txt?password={SECRET}"],
        ["--input=/nowhere", f"--model=https://u:{SECRET}@tfhub.dev/x"],
        ["--input=/nowhere", f"https://host/file?token={SECRET}"],
        ["--input=/nowhere", f"--model=/models/x?access_token={SECRET}"],
    ],
)
def test_messages_show_none(tmp_path, arguments, capfd):
    assert main(["embed", *arguments, f"--output={tmp_path / 'out'}"]) == 2
    assert SECRET not in "".join(capfd.readouterr())


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
    ("text", "shown"),
    [
        ("--id_column key is not in the first record", None),
        ("no such key: id; 12 tokens: [SEP]", None),
        ("BigQuery needs credentials: run `gcloud auth application-default login`", None),
        ("gs://bucket/a@b.txt", None),
        ("basic documents/*.jsonl", None),
        ("Basic information: ", None),
        ("bearer documents-of-2024", None),
        ("WHERE primary_key = 'x' AND key='y'", None),
        ("WHERE password = 'x' or token=5", None),
        (f"https://host/a?x=1&key={SECRET}", "https://host/a?x=1&key=***"),
        (f"gs://me:{SECRET}@host/a", "gs://***@host/a"),
    ],
)
def test_what_is_hidden_and_what_is_not(text, shown):
    assert hide_secrets(text) == (text if shown is None else shown)
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
    """Every text with a space in it that stands in the code, but for docstrings and patterns."""
    for package in ("bert_embed", "transforms", "pipeline"):
        for path in sorted((ROOT / package).rglob("*.py")):
            nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
            docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            texts = [
                node.value
                for node in nodes
                if isinstance(node, ast.Constant) and id(node) not in docstrings
            ]
            if path.name != "secrets.py":
                yield from (text for text in texts if isinstance(text, str) and " " in text)


def test_no_message_of_our_own_is_masked():
    found = list(sentences())
    assert len(found) > 1000
    assert [text for text in found if hide_secrets(text) != text] == []


TEXT = "Zwiebelkuchen"  # a word that stands nowhere but in the documents
_RUN = """
import logging, sys
logging.basicConfig(level=logging.DEBUG)
fault, *arguments = sys.argv[1:]
import bert_embed.backends.runner
right = bert_embed.backends.runner._keep
def wrong(*given, **named):
    kept = right(*given, **named)
    int("Zwiebel" + "kuchen")
if fault == "infer":
    bert_embed.backends.runner._keep = wrong
import bert_embed.pipeline.cli, bert_embed.pipeline.console
# As on a cluster, where Beam's own lines are kept, too.
bert_embed.pipeline.console.quiet_logs = lambda: None
sys.exit(bert_embed.pipeline.cli.main(["embed", *arguments]))
"""


# Steps by their names in messages: where an error is put, and the flags that lead there.
_FURTHER = {
    "read ids": ("bert_embed.transforms.increments", "input_keys", {"skip_existing": "old"}),
    "read an earlier output": (
        "bert_embed.transforms.increments",
        "earlier_keys",
        {"skip_existing": "old"},
    ),
    "skip blocks": ("bert_embed.transforms.steps", "take", {"skip_blocks": 0}),
}


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

    def run(module, name, command, *words):
        with monkeypatch.context() as patched:
            patched.setattr(f"{module}.{name}", lambda *given, **named: int(TEXT))
            assert main([command, *words]) == 1
        assert "DEBUG " in said.getvalue()
        return said.getvalue() + "".join(capfd.readouterr())

    yield run
    logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize("step", _FURTHER)
def test_no_text_stands_in_the_errors_of_steps_that_few_runs_have(
    tmp_path, tiny_bundle, broken, step
):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(json.dumps({"id": n, "text": TEXT}) + "\n" for n in range(3)))
    module, name, flags = _FURTHER[step]
    flags = {k: v if k == "skip_blocks" else tmp_path / v for k, v in flags.items()}
    if "skip_existing" in flags:
        assert embed(tmp_path / "old", tiny_bundle, path) == 0
    words = flags_of(tmp_path / "out", tiny_bundle, path, **flags)
    told = broken(module, name, "embed", *words)
    told += (tmp_path / "out" / "run.json").read_text()
    assert TEXT.lower() not in told.lower()
    assert re.search(rf"{step}: ValueError at .*its message may hold a text", told)


def test_no_text_stands_in_the_errors_of_examples(tmp_path, tiny_bundle, broken):
    path, examples = tmp_path / "in.txt", tmp_path / "examples"
    path.write_text(f"the bank {TEXT}\n")
    words = flags_of(examples, tiny_bundle, path)
    told = broken("bert_embed.transforms.examples", "example_bytes", "tokenize", *words)
    assert re.search(r"write: ValueError at .*its message may hold a text", told)
    assert main(["tokenize", *words]) == 0
    words = flags_of(tmp_path / "out", tiny_bundle, examples)
    told += broken("bert_embed.transforms.read.examples", "example_block", "embed", *words)
    assert re.search(r"read: ValueError at .*its message may hold a text", told)
    assert TEXT.lower() not in told.lower()


@pytest.mark.parametrize("name", ["deal_out", "row_blocks"])
def test_no_text_stands_in_the_errors_of_a_tables_rows(
    tmp_path, tiny_bundle, bigquery, broken, name
):
    table = f"secrets_{name}.t"
    schema = [("id", "STRING", "NULLABLE"), ("text", "STRING", "NULLABLE")]
    bigquery.fill(f"test-project.{table}", schema, [{"id": "a", "text": TEXT}])
    words = flags_of(tmp_path / "out", tiny_bundle, f"test-project:{table}")
    told = broken("bert_embed.transforms.bigquery.read", name, "embed", *words)
    assert TEXT.lower() not in told.lower()
    assert re.search(r"read( the table)?: ValueError at .*its message may hold a text", told)


_STEPS = {
    "read": ("bert_embed.transforms.read.reader", "parse_part"),
    "tokenize": ("bert_embed.text.layout", "tokenize_documents"),
    "write": ("bert_embed.transforms.write", "rejected_lines"),
}


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


def kept_beside(output):
    """What a run writes down of itself."""
    paths = [output / "run.json", *(output / "_state" / "blocks").iterdir()]
    return "".join(each.read_text() for each in paths)


@pytest.mark.parametrize("step", _STEPS)
def test_no_text_stands_in_the_errors_of_steps(tmp_path, tiny_bundle, mixed, broken, step):
    flags = {"long_text": "reject", "max_seq_length": 32, "max_rejected": "80%"}
    words = flags_of(tmp_path / "out", tiny_bundle, mixed, **flags)
    told = broken(*_STEPS[step], "embed", *words) + kept_beside(tmp_path / "out")
    assert TEXT.lower() not in told.lower()
    assert re.search(rf"{step}: ValueError at .*its message may hold a text", told)


@pytest.mark.parametrize("fault", ["none", "infer"])
def test_no_text_stands_in_logs_metrics_or_records(tmp_path, tiny_bundle, mixed, fault):
    """In a process of its own, from its imports to its end."""
    output = tmp_path / "out"
    flags = {"long_text": "reject", "max_seq_length": 32, "max_rejected": "80%"}
    words = flags_of(output, tiny_bundle, mixed, **flags)
    done = ran([*python(), "-c", _RUN, fault, *words, "--default_sdk_harness_log_level=DEBUG"])
    assert done.returncode == (0 if fault == "none" else 1), done.stderr[-3000:]
    assert "DEBUG" in done.stderr
    told = done.stdout + done.stderr + kept_beside(output)
    assert TEXT.lower() not in told.lower()
    if fault == "none":
        assert record(output)["counts"]["embedded"] == 2
        assert len(rejected(output)) == 4
    else:
        assert "the model failed on all of 2 rows: model error: ValueError" in told


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
