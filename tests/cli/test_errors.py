"""What can be wrong is said before work starts: one sentence, exit code 2, no traceback."""

import difflib
import os
import re
import shlex
import sys

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.worker.data_plane import PeriodicThread

from bert_embed.base.errors import InputError, SettingError
from bert_embed.pipeline.errors import flag_message
from bert_embed.pipeline.options.command_line import EVERYDAY
from bert_embed.pipeline.options.embed import FLAGS
from tests.support.command import ran, rows
from tests.support.outputs import contents

TEXT = {"in.txt": "one\ntwo\n"}
INTO = "--output_format=bigquery --output_table=test-project:d.t"
# Commands, or flags of `embed` of a text; values that no flag takes: test_options.py; what a model
# cannot give, by the names of Python: tests/unit.
REFUSED = [
    ("--layers=9", "--layers must be between -3 and 2 for this 2-layer model, got 9"),
    ("--output_format=tfrecord --extra_columns=n", "are for Parquet and JSON lines, not for TFRec"),
    ("--pooling=pooler --layers=1", "--pooling pooler reads the last layer"),
    ("--pooling=cls,cls", "--pooling must name each once, got cls,cls"),
    ("--pooling=mean,pooler", "--pooling pooler cannot be joined with others"),
    ("--normalize --no_normalize", "--no_normalize contradicts what was given before"),
    ("--num_workers=4", "--num_workers is for Dataflow and has no effect here; set --threads"),
    ("--id_column=\udcff", r"'--id_column=\udcff' is not UTF-8"),
    ("--zzzz=1", "unknown flag --zzzz; see bert-embed embed --help"),
    ("--max-seq-lenght 8", "unknown flag --max_seq_lenght; did you mean --max_seq_length?"),
    ("--id_column=id", "--id_column is for JSON lines"),
    ("--model=", "--model must be minilm, a bundle, "),
    ("--model=no-such-model", "--model must be minilm, a folder, or"),
    ("--granularity=token,token", "--granularity must name at least one kind, and each once"),
    ("--granularity=token --pooling=cls", "--pooling is for vectors of sentences"),
    ("--granularity=word --text_b_column=b", "word is for single texts"),
    ("--granularity=token --long_text=windows", "--long_text windows is for vectors of"),
    ("--granularity=token --output_format=jsonl --output_dtype=int8", "with JSON lines of tokens"),
    ("--chunk=sentence --text_b_column=b", "--chunk is for single texts and conflicts"),
    ("--vectors=multi --text_b_column=b", "--text_b_column is for pairs, which have no multi vec"),
    ("--chunk=tokens:600", "--chunk must have at most 62 tokens"),
    (
        "--chunk=tokens --chunk_context=document --pooling=cls",
        "--chunk_context document takes the mean of tokens and conflicts with --pooling cls",
    ),
    ("--chunk_context=title", "--chunk_context requires --chunk"),
    ("--skip_existing=", "--skip_existing is empty: give an earlier output, or leave it out"),
    ("embed --query=SELECT --input_format=csv", "--query conflicts with --input_format csv"),
    (
        "embed --input=acme-x:d.t --csv_header=a",
        "--csv_header is for CSV, not for rows of BigQuery",
    ),
    ("--csv_quoting=none", "--csv_quoting is for CSV, and --input names none"),
    ("--csv_separator=¦", "--csv_separator must be one ASCII character, or tab or ^A"),
    # Of tables, without asking BigQuery.
    (f"{INTO} --output_dtype=int8", "--output_dtype int8 conflicts with --output_format"),
    (f"{INTO}$20260230", "$20260230 is no day"),
    ("--output_format=bigquery", "requires --output_table"),
    ("--output_table=test-project:d.t", "--output_table requires --output_format bigquery"),
    ("--write_disposition=fail", "--write_disposition requires --output_format bigquery"),
    ("embed --output={folder}/out --input='a b' --input_format=bigquery", "'a b' is not a table"),
    ("--input=acme-x:d.t --input=acme-x:d.u", "--input takes one BigQuery table and not"),
    ("embed --query=SELECT --output={folder}/out", "--query requires --project"),
    ("--query=SELECT", "--query conflicts with --input"),
    ("embed --input=notes.2026.txt --output={folder}/out", "notes.2026.txt names no file"),
    ("--device=gpu", "--device gpu: tensorflow sees no GPU on this machine"),
    ("--output=bq://project.texts.vectors", "give --output_format bigquery and the table"),
    ("--output=hdfs://nodes/a", "hdfs://nodes/a: files are read and written on this machine, gs:"),
    ("--text_column a --text-column=b", "given twice; join the values with a comma: a,b\n"),
    ("--init_checkpoint c", "unknown flag --init_checkpoint; did you mean --model?"),
    ("-num_worker 4", "unknown flag -num_worker; did you mean --threads?"),
    ("search DIR one --top_k=3", "unknown flag --top_k; did you mean --k?"),
    ("embed --output={folder}/out", "--input is missing"),
    ("embed --output={folder}/out --input=", "--input is empty"),
    ("embed --input={folder}/in.txt", "--output is missing"),
    ("embed --output={folder}/out --input=https://host/a.txt", "https://host/a.txt: files are re"),
    ("embedd", "unknown command embedd; did you mean embed?"),
    ("search x", "QUERY is missing"),
    ("search x y --k 0", "--k must be a whole number of at least 1"),
    ("search x ' '", "QUERY must not be blank"),
    ("search '' x", "DIR... QUERY must not be empty"),
    ("verify ''", "DIR must not be empty"),
    ("compare a b c", "c stands alone: give OLD and NEW once; compare takes no other words"),
    ("model", "unknown command model; use one of model import, model export, "),
    ("model verfy minilm", "unknown command model verfy; did you mean model verify?"),
    ("model import a b --cased --lower_case", "--lower_case conflicts with --cased"),
    ("model inspect", "the following arguments are required: MODEL"),
    ("model import nowhere bundle", "nowhere: no such folder"),
    # An importer is another process, and names flags all the same.
    ("model inspect {folder}/source", "bert_config.json: must hold an object, got a list"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED, ids=[words for words, _ in REFUSED])
def test_what_is_wrong_is_one_sentence(tmp_path, run, tiny_bundle, command, words, message):
    run.written(TEXT | {"source/bert_config.json": "[]"})
    if words.startswith("-"):
        words = f"embed --input={{folder}}/in.txt --output={{folder}}/out --model={{model}} {words}"
        words = re.sub(r" --(output|model)=\S+(?=.* --\1=)", "", words)
    words = [word.format(folder=tmp_path, model=tiny_bundle) for word in shlex.split(words)]
    said = command(*words, code=2)
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.startswith("error: ")
    assert message in said.err
    assert not (tmp_path / "out").exists()


def test_the_current_folder_is_gone(tmp_path, run, tiny_bundle, monkeypatch, command):
    (text,) = run.written(TEXT)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for words in (
        ["embed", f"--input={text}", "--output=out", f"--model={tiny_bundle}"],
        ["embed", f"--input={text}", f"--output={tmp_path}/out", "--model=model"],
        ["model", "import", "model", "bundle"],
        ["search", "out", "river"],
    ):
        said = command(*words, code=2)
        assert ": the current folder was removed; change to" in said.err
        assert (said.out, said.err.count("\n")) == ("", 1)


def test_input_that_names_nothing(tmp_path, run):
    run.refused(tmp_path / "*.txt", f"--input {tmp_path}/*.txt names no file")
    (tmp_path / "in.txt").mkdir()
    said = f"names no file, but folders; {tmp_path}/*.txt/** names the files below them"
    run.refused(tmp_path / "*.txt", said)
    run.refused({"a.pdf": b"%PDF"}, ".pdf files cannot be read")
    run.refused({"a.ipynb": '{\n "cells": []\n}'}, ".ipynb files cannot be read")
    run.refused({"a.jsonl": '{"body": "one"}\n'}, "the default --text_column text is not in the")
    assert "which has body; name the right one with --text_column" in run.err
    run.refused(tmp_path / "a.*", "--input_format files is for text files", input_format="files")
    run.written({"out/in.txt": "one\n"})
    for pattern in ("out/in.txt", "out/*.txt", "out"):
        message = f"{tmp_path}/{pattern} lies below --output {tmp_path}/out"
        run.refused(tmp_path / pattern, message)


def test_input_that_is_no_regular_file(tmp_path, run):
    os.mkfifo(tmp_path / "pipe")
    run.refused(tmp_path / "pipe", f"--input {tmp_path}/pipe is not a regular file")
    os.symlink(tmp_path / "nowhere", tmp_path / "link")
    run.refused(tmp_path / "li*", f"--input {tmp_path}/link is a broken link")
    os.mkdir(tmp_path / "names")
    (tmp_path / "names" / os.fsdecode(b"bad\xff.txt")).write_text("one")
    run.refused(tmp_path / "names", "has a name that is not UTF-8, rename it")


def test_what_is_linked_is_read_once(tmp_path, run):
    """By the name of the file itself; of links, and of names without a known suffix, by another."""
    run.written({"in/2024/a.txt": "one\n", "there/b.txt": "two\n"})
    run.written({"in/2024/blob": '{"text": "three"}\n'})
    for link, target in (
        ("2024/LATEST.txt", "a.txt"),
        ("2024/c.txt", "../../there/b.txt"),
        ("2024/d.txt", "../../there/b.txt"),
        ("2024/z.jsonl", "blob"),
        ("all", "2024"),
        ("back", "."),
    ):
        (tmp_path / "in" / link).symlink_to(target)
    wanted = [f"{tmp_path}/in/2024/{name}:0" for name in ("a.txt", "c.txt", "z.jsonl")]
    for number, named in enumerate(("in", "in/*/*", "in/**/*.*")):
        assert rows(run(tmp_path / named, f"out{number}"))["id"] == wanted, named
        assert re.search(r"\d+ files are a link to another and are skipped \(links \d+\)", run.err)
    alone = run(tmp_path / "in" / "all" / "LATEST.txt", "alone")
    assert rows(alone)["id"] == [f"{tmp_path}/in/all/LATEST.txt:0"]


def test_output_that_cannot_be_written(tmp_path, run):
    """Errors of the system have no numbers."""
    (tmp_path / "file").write_text("")
    run.refused(TEXT, "cannot be written", "file/out")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for output in ("link", "link/out"):
        run.refused(TEXT, f"{tmp_path}/link is a broken link; make what", output)
    run.refused(TEXT, f"cannot be read: {tmp_path}: Is a directory", "new", config=tmp_path)
    (tmp_path / "out" / "run.json").mkdir(parents=True)
    run.refused(TEXT, f"cannot be used: {tmp_path}/out/run.json: Is a directory")


def test_a_process_that_gets_no_more_memory_or_threads_says_so(run, monkeypatch):
    code = (
        "import resource, sys, numpy; from bert_embed.pipeline.cli import main\n"
        "held = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (held + (1 << 25),) * 2)\n"
        f"sys.exit(main(['search', {str(run(TEXT))!r}, 'one']))"
    )
    done = ran([sys.executable, "-c", code])
    assert done.returncode == 1
    assert done.stderr.startswith("error: the system gave no more memory or threads (ImportError:")
    assert done.stderr.count("\n") == 1

    def fail(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(PeriodicThread, "start", fail)  # of each of Beam's workers
    run(TEXT, "new", code=1)
    said = "error: the job failed: the system gave no more memory or threads (can't start"
    assert said in run.err
    assert "Traceback" not in run.err


def test_help_and_dry_run_do_no_work(run, command, monkeypatch):
    """Nor has a help the colours that Python 3.14 gives it: their codes would be shown as text."""
    monkeypatch.setenv("FORCE_COLOR", "1")

    def flags(*words):
        """The flags that a help lists, without those that switch something off."""
        return set(re.findall(r"^  (?:-h, )?--(\w+)", command(*words).out, re.MULTILINE))

    assert "embed" in command("--help").out
    assert flags("embed", "--help") == EVERYDAY | {"config", "help"}
    assert flags("embed", "--help", "all") == {*FLAGS, "config", "help"}
    assert flags("tokenize", "--help") < EVERYDAY | {"config", "help", "text"}
    assert not run(TEXT, dry_run=True).exists()
    assert "1 file, " in run.out


def test_a_dry_run_says_what_it_finds_in_the_output(run):
    more = {"chunk": "sentence", "output_dtype": "float16"}
    output = run(TEXT, **more)
    assert "stored as float16" in run.err
    assert "each line of plain text is one document, which --chunk splits" in run.err
    kept, other = contents(output), {"dim": 2}
    for options, code, shown in (
        (more, 0, "holds this run, complete since 2"),
        (other | more, 2, "holds another run (--dim changed since); choose another folder, or"),
        (other | {"overwrite": True}, 0, "holds another run, which --overwrite would remove"),
    ):
        run(TEXT, code=code, dry_run=True, **options)
        assert shown in run.out + run.err
    assert contents(output) == kept
    next(output.glob("_state/blocks/*")).unlink()
    run(TEXT, dry_run=True, **more)
    assert "holds an unfinished attempt of this run" in run.out


def test_a_switch_of_a_file_may_be_off(tmp_path, run):
    names = ("no_wait_until_finish", "streaming", "no_auth", "overwrite")
    run.written({"run.yaml": "".join(f"{name}: false\n" for name in names) + "dry_run: true\n"})
    run(TEXT, config=tmp_path / "run.yaml")


def test_an_interruption_while_the_program_is_imported_has_its_code():
    code = (
        "import runpy, sys\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'bert_embed.pipeline.cli':\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\n"
        "runpy.run_module('bert_embed', run_name='__main__')\n"
    )
    done = ran([sys.executable, "-c", code])
    assert (done.returncode, done.stderr) == (130, "")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SettingError("overlap", "requires long_text w", "long_text"), "--overlap requires --long"),
        (SettingError("prompt", "'dim' in dim/x", "dim"), "--prompt 'dim' in dim/x"),
        (SettingError("model", "holds no model, model dim"), "--model holds no model, model dim"),
        (InputError("an output: set skip_existing", "skip_existing"), "set --skip_existing"),
        (InputError("f.json: is no JSON"), "f.json: is no JSON"),
    ],
)
def test_the_command_line_adds_the_dashes(error, message):
    assert message in flag_message(error)


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (ValueError("invalid literal"), "error: unexpected ValueError, a bug of this program\n"),
        (MemoryError("9 GiB"), "ulimit -u, or its container's), or end other programs\n"),
    ],
)
def test_a_bug_keeps_its_traceback(run, monkeypatch, error, end):
    def broken(*arguments, **options):
        raise error

    monkeypatch.setattr("json.dumps", broken)  # which the run's fingerprint is made with
    run(TEXT, code=1, dry_run=True)
    assert ("Traceback" in run.err) == ("a bug" in end)
    assert f"{type(error).__name__}: {error}" in run.err
    assert run.err.endswith(end)


def test_no_flag_of_beam_is_taken_for_one_of_ours_mistyped():
    ours = [f"--{name}" for name in FLAGS]
    for name in PipelineOptions([]).get_all_options().keys() - FLAGS.keys():
        assert not difflib.get_close_matches(f"--{name}", ours, cutoff=0.8)
