"""Usage errors: what is wrong is a sentence with flags, a bug keeps its traceback; under 5 s."""

import difflib
import json
import subprocess
import sys

import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from bert_embed.base.errors import InputError, SettingError
from bert_embed.pipeline.cli import main
from bert_embed.pipeline.errors import flag_message
from bert_embed.pipeline.options.embed import FLAGS


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SettingError("dim", "must be at least 1, got 0"), "--dim must be at least 1, got 0"),
        (SettingError("stride", "requires long_text window", "long_text"),
         "--stride requires --long_text window"),
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
    ("flags", "message"),
    [
        (["--dim", "99"], "error: --dim must be between 1 and 32 for this model, got 99"),
        (["--layers", "9"], "error: --layers must be between -3 and 2 for this 2-layer model"),
        (["--pooling", "best"], "error: --pooling must be one of mean,"),
        (["--max_seq_length", "999"], "error: --max_seq_length must be between 3 and 64"),
        (["--prompt", "name:x"], "error: --prompt name:x is none of this model's prompts"),
        (["--model", ""], "error: --model must be minilm, a bundle, "),
        (
            ["--chunk=tokens", "--chunk_tokens=2", "--chunk_overlap=2"],
            "error: --chunk_overlap must be below --chunk_tokens, got 2",
        ),
        (["--granularity", "page"], "error: --granularity must be one of sentence,"),
        (
            ["--long_text", "window", "--stride", "99"],
            "error: --stride must be at least 0 and below 62, the tokens of a text that fit a row "
            "of --max_seq_length 64, got 99",
        ),
    ],
)
def test_embed_names_flags(tiny_bundle, tmp_path, capsys, flags, message):
    (tmp_path / "in.txt").write_text("one\n")
    where = [f"--input={tmp_path}/in.txt", f"--output={tmp_path}/out", f"--model={tiny_bundle}"]
    assert main(["embed", *where, *flags]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert "Traceback" not in shown


@pytest.fixture
def told(tiny_bundle, tmp_path, capsys, monkeypatch):
    """What a dry run says that meets an error."""

    def say(error):
        def broken(*arguments, **options):
            raise error

        monkeypatch.setattr("json.dumps", broken)  # which the run's fingerprint is made with
        (tmp_path / "in.txt").write_text("one\n")
        where = [f"--input={tmp_path}/in.txt", f"--output={tmp_path}/out"]
        assert main(["embed", *where, f"--model={tiny_bundle}", "--dry_run"]) == 1
        return capsys.readouterr().err

    return say


def test_too_little_memory_is_one_sentence(told):
    shown = told(MemoryError("Unable to allocate 9. GiB for an array"))
    assert shown == "error: there is not enough memory: Unable to allocate 9. GiB for an array\n"


def test_a_bug_keeps_its_traceback(told):
    shown = told(ValueError("invalid literal"))
    assert "Traceback" in shown
    assert "ValueError: invalid literal" in shown
    assert shown.endswith("error: unexpected ValueError, a bug of this program\n")


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
    found = subprocess.run(command, capture_output=True, text=True, check=True)
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
