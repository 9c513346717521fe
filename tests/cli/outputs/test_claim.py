"""Two different commands that begin at once in one folder: one is refused, the other is whole."""

import threading

import pytest

from bert_embed.pipeline import job
from bert_embed.pipeline.cli import main
from bert_embed.transforms.output_folder import OutputFolder
from tests.support.command import flags_of, record

WAIT = 60  # seconds


def both(monkeypatch, first, second):
    """Exit codes of two commands; the second saw a free folder before the first claimed it.

    It goes on once the first has claimed the folder, and ends before the first one's job begins.
    """
    prepare, run_job = OutputFolder.prepare, job.run_job
    codes, claimed, waits = {}, threading.Event(), threading.Event()

    def prepare_late(folder):
        if threading.current_thread() is loser:
            waits.set()
            assert claimed.wait(WAIT)
        prepare(folder)

    def run_after_the_second(*arguments):
        claimed.set()
        loser.join(WAIT)
        return run_job(*arguments)

    def run_second():
        codes["second"] = main(second)
        waits.set()

    loser = threading.Thread(target=run_second)
    monkeypatch.setattr(OutputFolder, "prepare", prepare_late)
    monkeypatch.setattr(job, "run_job", run_after_the_second)
    loser.start()
    assert waits.wait(WAIT)
    codes["first"] = main(first)
    return codes


@pytest.mark.parametrize("place", ["here", pytest.param("gs", marks=pytest.mark.slow)])
@pytest.mark.parametrize("command", ["embed", "tokenize"])
def test_one_is_refused_the_other_is_whole(
    tmp_path, tiny_bundle, monkeypatch, capsys, request, command, place
):
    output = tmp_path / "out"
    if place == "gs":
        request.getfixturevalue("gcs").client.create_bucket(f"claim-{command}")
        output = f"gs://claim-{command}/out"
    commands = []
    for name, length in (("a", 32), ("b", 16)):
        path = tmp_path / f"{name}.txt"
        path.write_text("".join(f"the river {name} {n}\n" for n in range(20)))
        flags = flags_of(output, tiny_bundle, path, max_seq_length=length)
        commands.append([command, *flags])
    assert both(monkeypatch, *commands) == {"first": 0, "second": 2}
    assert "holds another run" in capsys.readouterr().err
    assert main(["verify", str(output)]) == 0
    if command == "tokenize":  # the settings of the examples are those of the run that wrote them
        vectors = flags_of(tmp_path / "vectors", tiny_bundle, f"{output}/examples")
        assert main(["embed", *vectors]) == 0
        assert record(tmp_path / "vectors")["vectors"]["max_seq_length"] == 32


def test_a_complete_run_with_lost_files_is_locked_before_it_is_changed(run):
    text = {"in.txt": "the river\nthe bank\n"}
    output = run(text)
    (lost,) = (output / "embeddings").iterdir()
    lost.unlink()
    before = (output / "run.json").read_bytes()
    with OutputFolder(str(output)).held(alone=True):
        run(text, code=1)
    assert "another command writes to" in run.err
    assert (output / "run.json").read_bytes() == before
    run(text)
    assert main(["verify", str(output)]) == 0
