"""What opens doors, and what the documents say, stands in no log, message or record."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from pipeline.cli import main
from pipeline.secrets import SecretFilter, hide_in_flags, hide_secrets
from tests.pipeline.helpers import ROOT, embed, flags_of, record, rejected, start

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
    path.write_text("".join(f"the bank of river {n}\n" for n in range(60_000)))
    output = tmp_path / "out"
    job = start("embed", *flags_of(output, tiny_bundle, path, block_bytes=20_000), *FLAGS)
    deadline = time.monotonic() + 120
    while not list(output.glob("blocks/*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(job.pid, signal.SIGINT)
    out, err = job.communicate(timeout=120)
    assert job.returncode == 130, err
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
            raise ValueError(f"password={SECRET}")
        except ValueError:
            logger.exception("it failed")
    finally:
        logger.filters.clear()
    assert SECRET not in caplog.records[0].getMessage()
    assert SECRET not in caplog.records[1].exc_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"Authorization: Bearer {SECRET}", "Authorization: Bearer ***"),
        (f"AccountName=a;AccountKey={SECRET};x", "AccountName=a;AccountKey=***;x"),
        (f'{{"client_secret": "{SECRET}", "n": 1}}', '{"client_secret": "***", "n": 1}'),
        (f"ya29.{SECRET}-x", "***"),
        (f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----", "***"),
        (
            "--id_column key is not in the first record",
            "--id_column key is not in the first record",
        ),
        ("no such key: id; 12 tokens: [SEP]", "no such key: id; 12 tokens: [SEP]"),
        ("gs://bucket/a@b.txt", "gs://bucket/a@b.txt"),
    ],
)
def test_what_is_hidden_and_what_is_not(text, shown):
    assert hide_secrets(text) == shown


def test_our_own_flags_stay_as_they_are():
    words = ["--batch_tokens=12", "--layers", "-1,-2", "--pool_special_tokens", "--threads", "2"]
    assert hide_in_flags(words) == words


TEXT = "Zwiebelkuchen"  # a word that stands nowhere but in the documents
_RUN = """
import logging, sys
logging.basicConfig(level=logging.DEBUG)
fault, *arguments = sys.argv[1:]
import bert.documents, bert.row_runner, transforms.sources, transforms.sinks
def broken(module, name):
    right = getattr(module, name)
    def wrong(*given, **named):
        kept = right(*given, **named)
        int(TEXT)
    setattr(module, name, wrong)
TEXT = "Zwiebel" + "kuchen"
if fault == "read":
    broken(transforms.sources, "parse_part")
if fault == "tokenize":
    broken(bert.documents, "tokenize_documents")
if fault == "write":
    broken(transforms.sinks, "rejected_lines")
if fault == "infer":
    broken(bert.row_runner, "_keep")
import pipeline.cli
pipeline.cli._quiet = lambda: None  # as on a cluster, where Beam's own lines are kept, too
sys.exit(pipeline.cli.main(["embed", *arguments]))
"""


@pytest.mark.parametrize("fault", ["none", "read", "tokenize", "infer", "write"])
def test_no_text_stands_in_logs_metrics_or_records(tmp_path, tiny_bundle, fault):
    path = tmp_path / "in.jsonl"
    lines = [{"id": "a", "text": f"the bank {TEXT}"}, {"id": "b", "text": f"{TEXT} river"}]
    lines += [{"id": "c", "text": [TEXT, 3]}, {"id": {TEXT: 1}, "text": TEXT}]
    lines += [{"id": "e", "text": " ".join([TEXT] * 99)}]
    rows = [*map(json.dumps, lines), f'{{"id": "d", "text": "{TEXT}']
    path.write_text("\n".join(rows) + "\n")
    output = tmp_path / "out"
    words = flags_of(output, tiny_bundle, path, long_text="reject", max_seq_length=32)
    done = subprocess.run(
        [sys.executable, "-c", _RUN, fault, *words, "--default_sdk_harness_log_level=DEBUG"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (0 if fault == "none" else 1), done.stderr[-3000:]
    assert "DEBUG" in done.stderr
    told = done.stdout + done.stderr + (output / "run.json").read_text()
    told += "".join(each.read_text() for each in (output / "blocks").iterdir())
    assert TEXT.lower() not in told.lower()
    if fault == "none":
        assert record(output)["counts"]["embedded"] == 2
        assert len(rejected(output)) == 4
    elif fault == "infer":
        assert "the model failed on all of 2 rows: model error: ValueError" in told
    else:
        assert re.search(rf"{fault}: ValueError at .*its message may hold a text", told)
