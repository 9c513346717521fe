"""Folders, files and configurations of somebody else lead nowhere else, and crash nothing."""

import base64
import json
import os
import shutil
import signal
import sys
import tarfile
import tempfile
from contextlib import contextmanager
from dataclasses import asdict
from functools import reduce
from operator import getitem
from pathlib import Path
from random import Random

import google_crc32c
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

import bert_embed
from bert_embed.pipeline.cli import main
from bert_embed.results.chain import EarlierOutput, earlier_of, write_chain
from bert_embed.transforms.ledger import read_block_record
from bert_embed.transforms.output_folder import OutputFolder
from tests.support.command import (
    block_records,
    data_files,
    embed,
    files,
    parts_of,
    ran,
    record,
    rejected,
    rows,
    say_status,
    vectors,
)
from tests.support.outputs import contents


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "in.txt"
    path.write_text("the bank\nof the river\nmoney\n")
    return path


@pytest.fixture(scope="module")
def written(texts, tiny_bundle, tmp_path_factory):
    """The output of a run, which no test changes."""
    output = tmp_path_factory.mktemp("written") / "out"
    assert embed(output, tiny_bundle, texts) == 0
    return output


@pytest.fixture
def output(tmp_path, written):
    return shutil.copytree(written, tmp_path / "out")


@pytest.fixture
def kept(tmp_path):
    """A file of somebody else, named as one of ours, which stays as it is and alone."""
    path = tmp_path / "outside" / "part-0000000-00000.parquet"
    path.parent.mkdir()
    path.write_bytes(b"kept")
    yield path
    assert path.read_bytes() == b"kept"
    assert os.listdir(path.parent) == [path.name]


def report_of(output):
    [path] = (output / "_state" / "blocks").glob("*.json")
    return path, orjson.loads(path.read_bytes())


def parsed(output, run):
    """The report of the one part, as a rerun reads it."""
    return read_block_record(OutputFolder(str(output)), 0, 0, run)


def reported_as(output, path):
    """Makes record and report say that a file was written as it is now."""
    size, name = path.stat().st_size, str(path.relative_to(output))
    stored = record(output)
    stored["written"][path.parent.name]["bytes"] = size
    (output / "run.json").write_bytes(orjson.dumps(stored))
    place, report = report_of(output)
    crc = base64.b64encode(google_crc32c.Checksum(path.read_bytes()).digest()).decode()
    report["files"][name] |= {"bytes": size, "crc32c": crc}
    place.write_bytes(orjson.dumps(report))


FILE = {"bytes": 4, "crc32c": "AAAAAA==", "rows": 1}
STRANGE = [
    {"files": {"/etc/hostname": FILE}},
    {"files": {"embeddings/part-0000000-00001.parquet": FILE}},
    {"files": {"embeddings/part-0000000-00000.parquet": FILE | {"bytes": -1}}},
    {"files": {"embeddings/part-0000000-00000.parquet": 4}},
    {"files": {"embeddings/part-0000000-00000.parquet/../../x": FILE}},
    {"files": None},
    {"block": "../x"},
    {"part": 3},
    {"embedded": -2, "records": -2},
    {"rejected": {"x": "y"}},
    {"covered": {"../x": 1}},
    {"seconds": {"read": "long"}},
    {"more": 1},
]


def test_a_report_that_names_other_files_or_is_none_does_not_count(kept, output, texts, run):
    before = files(output)
    path, report = report_of(output)
    assert parsed(output, report["run"]) is not None
    strange = [orjson.dumps(report | change) for change in STRANGE]
    for broken in (*strange, b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000):
        path.write_bytes(broken)
        assert parsed(output, report["run"]) is None, broken
    name = f"../outside/{kept.name}"
    for data in (orjson.dumps(report | {"files": {name: FILE}}), b"{"):
        path.write_bytes(data)
        say_status(output, "failed")
        run(texts)
        assert record(output)["counts"]["parts_reused"] == 0
        assert (files(output), report_of(output)[1]["files"]) == (before, report["files"])


def test_overwriting_removes_names_and_links_of_a_run_not_their_targets(kept, output, texts, run):
    others = ["notes.txt", *(f"{kind}-0000000-00000.parquet" for kind in ("vectors", "embeddings"))]
    others.append("embeddings/notes.parquet")
    for name in others:
        (output / name).write_text("mine")
    (output / "embeddings/part-0000007-00000.parquet").symlink_to(kept)
    (output / "embeddings/part-0000008-00000.parquet").symlink_to(kept.with_name("gone"))
    own = output / "embeddings/part-0000000-00000.parquet"
    own.unlink()
    own.symlink_to(kept)
    run(texts, dim=8, overwrite=True)
    assert not own.is_symlink()
    assert vectors(output).shape == (3, 8)
    assert [(output / name).read_text() for name in others] == ["mine"] * len(others)


def test_a_link_in_the_place_of_a_file_is_replaced_when_it_is_written(kept, output, texts, run):
    for path in (output / "embeddings/part-0000000-00000.parquet", output / "run.json"):
        path.unlink()
        path.symlink_to(kept)
    run(texts, code=2)  # the link leads to no record of a run
    (output / "run.json").unlink()
    run(texts, overwrite=True)
    assert vectors(output).shape == (3, 32)


def test_neither_ids_nor_names_of_the_input_become_file_names(tmp_path, run):
    ids = ["../../escaped", "/etc/passwd", "a\0b", "x" * 4096]
    ids.append("embeddings/part-0000000-00000.parquet")
    names = ["..hidden.txt", "a'; rm -rf x.txt", "new\nline.txt", "part-0000000-00000.txt"]
    source = {f"in/{name}": "the bank\n" for name in names}
    source["in/z.jsonl"] = [{"id": each, "text": "the bank"} for each in ids]
    output = run(source)
    shown = sorted(f"{tmp_path}/in/{name}:0" for name in names[1:])
    assert rows(output)["id"] == [*shown, *ids]
    made = {"_state", "blocks", "listing.json.zst", "embeddings", "report.html", "run.json"}
    made |= {f"000000{n}-00000.json" for n in (0, 1)}
    made |= {f"part-000000{n}-00000.parquet" for n in (0, 1)}
    assert {each.name for each in output.rglob("*")} == made
    assert {each.name for each in tmp_path.iterdir()} == {"in", "out"}


def test_json_of_any_depth_and_any_number_is_rejected_not_crashed(run):
    deep = 200_000
    lines = [
        '{"id": 1, "text": "the bank"}',
        '{"id": 2, "text": ' + "[" * deep + "]" * deep + "}",
        '{"id": 3, "text": "bank", "x": ' + '{"a":' * deep + "1" + "}" * deep + "}",
        *(f'{{"id": {n}, "text": "river"}}' for n in ("9" * 50_000, "1e999", "NaN", "-0.5")),
        '{"id": 18446744073709551615, "text": "river"}',
        '{"id": 5, "text": "\\ud800"}',
    ]
    output = run({"in.jsonl": "\n".join(lines) + "\n"})
    counts = record(output)["counts"]
    assert counts["records"] == counts["embedded"] + counts["rejected"] == len(lines)
    assert rows(output)["id"] == ["1", "18446744073709551615"]
    assert {each["reason"] for each in rejected(output)} <= {
        "malformed JSON",
        "id is not a string or an integer",
        "missing id",  # NaN, as pandas writes a missing value
        "text is not a string or a list of strings",
    }


@pytest.mark.parametrize(
    ("text", "line"), [('text,id\n"the bank,1\n', 2), ('text,"id\nthe bank,1\n', 1)]
)
def test_a_quote_left_open_is_told_before_a_large_file_is_read(tmp_path, run, text, line):
    path = tmp_path / "in.csv"
    path.write_text(text)
    os.truncate(path, 1 << 40)  # a hole, which takes an hour to read
    run(path, code=2)
    assert run.err == (
        f"error: {path}: the quote in line {line} is not closed within 64 MiB, is it left open? "
        "(--csv_quoting none takes quotes as characters)\n"
    )


RIVERS = [f"the river,{n}" for n in range(3, 50)]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            ["text,id", '"the\nbank",1', 'of,"2', *RIVERS],
            "the quote in line 4 is never closed, the rest of the file is one rejected record; ",
        ),
        (
            ["text,id", "of,1", '"the,2', *RIVERS, '"bank,50', "the bank,51", ""],
            "the malformed record at byte 13 has 49 lines, a quote left open in its first line "
            "rejects them all; ",
        ),
    ],
    ids=["the rest", "many lines"],
)
def test_a_quote_that_takes_many_records_is_told(tmp_path, run, caplog, lines, said):
    output = run({"in.csv": "\n".join(lines)})
    [told] = (message for message in caplog.messages if "quote" in message)
    assert told == f"{tmp_path}/in.csv: {said}csv_quoting none takes quotes as characters"
    [bad] = rejected(output)
    assert bad["reason"] == "unterminated quote" or bad["detail"].endswith(
        "the record has 49 lines"
    )


def test_a_strange_folder_is_refused_in_one_sentence(output, command):
    (output / "embeddings" / "part-x.parquet").write_bytes(b"no file of a run")
    assert len(bert_embed.read(output)[0]) == 3
    for data in (b"[" * 100_000, b"[]", b'{"vectors": 3}', b'{"vectors": {}}'):
        (output / "run.json").write_bytes(data)
        told = command("search", output, "bank", code=2).err
        assert told.startswith("error: ")
        assert len(told.splitlines()) == 1


@pytest.mark.slow
def test_a_parquet_file_that_stands_for_too_much_is_refused(output):
    path = output / "embeddings/part-0000000-00000.parquet"
    schema = pq.read_schema(path)
    path.write_bytes(path.read_bytes()[:-20])
    reported_as(output, path)
    with pytest.raises(ValueError, match="is damaged"):
        bert_embed.read(output)
    fields = [field for field in schema if field.name in ("id",)]
    with pq.ParquetWriter(path, pa.schema(fields)) as writer:
        table = pa.table({"id": pa.nulls(1 << 20, pa.string())}, pa.schema(fields))
        for _ in range(600):
            writer.write_table(table)
    assert path.stat().st_size < 16 << 20
    reported_as(output, path)
    with pytest.raises(ValueError, match="is damaged") as refused:
        bert_embed.read(output)
    assert "declares" in str(refused.value.__cause__)


def test_a_file_that_may_not_be_read_is_not_called_damaged(texts, tiny_bundle):
    """As another user, whom every folder above lets in; the bytes are whole."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        assert embed(f"{folder}/out", tiny_bundle, texts) == 0
        os.chmod(folder, 0o755)
        shutil.rmtree(f"{folder}/out/_state")  # with it, checksums are compared before
        (part,) = Path(folder, "out", "embeddings").iterdir()
        code = (
            "import os, sys, bert_embed\n"
            "bert_embed.read(sys.argv[1])\n"  # imports all that the other user may not read
            "os.chmod(sys.argv[2], 0)\n"
            "if os.getuid() == 0: os.setuid(65534)\n"
            "bert_embed.read(sys.argv[1])"
        )
        command = [sys.executable, "-c", code, f"{folder}/out", str(part)]
        done = ran(command)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("PermissionError: ")
    assert part.name in last
    said = [line for line in done.stderr.splitlines() if not line.startswith(" ")]  # no source
    assert "damaged" not in "".join(said)


@pytest.mark.slow
def test_an_archive_larger_than_any_model_is_refused(tmp_path, command):
    """By what its headers declare; nothing follows the large ones."""
    large, long = tarfile.TarInfo("weights"), tarfile.TarInfo("././@LongLink")
    large.size = 80 << 30
    long.type, long.size = tarfile.GNUTYPE_LONGNAME, 1 << 25
    for name, entries, said in (
        ("bomb", [tarfile.TarInfo("config.json"), large], "bomb.tar.gz: refused, it holds more"),
        ("many", [tarfile.TarInfo(f"f{n}") for n in range(10_001)], "10,000 files"),
        ("long", [long], "a header of 33,554,432 bytes"),
    ):
        path = tmp_path / f"{name}.tar.gz"
        with tarfile.open(path, "w:gz") as file:
            for entry in entries:
                file.fileobj.write(entry.tobuf())
            file.fileobj.write(b"a" * (1 << 25) if name == "long" else b"")
        assert said in command("model", "import", path, tmp_path / "bundle", code=2).err


def damaged(output, **stored):
    """Removes the vectors of an output, and changes keys of its run.json, `options__runner`."""
    for path in output.glob("*/part-*"):
        path.unlink()
    changed = record(output)
    for key, value in stored.items():
        *above, name = key.split("__")
        reduce(getitem, above, changed)[name] = value
    (output / "run.json").write_text(json.dumps(changed))


PROGRAMS = {
    "prism": ("PrismRunner", ["--prism_location={evil}"]),
    "process": (
        "FlinkRunner",
        ["--environment_type=PROCESS", '--environment_config={{"command":"{evil}"}}'],
    ),
    "flink jar": ("FlinkRunner", ["--flink_job_server_jar={evil}", "--flink_master=evil:1"]),
    "setup file": ("FnApiRunner", ["--setup_file={evil}", "--save_main_session"]),
    "plugins": ("FnApiRunner", ["--beam_plugins=evil"]),
    "a class": ("evil.Runner", []),
    "dataflow": ("DataflowRunner", ["--temp_location=gs://evil", "--sdk_container_image=evil"]),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_repair_runs_nothing_of_the_record(tmp_path, output, texts, command, monkeypatch, program):
    whole = files(output)
    evil = tmp_path / "evil.py"
    ran = tmp_path / "ran"
    evil.write_text(f"#!{sys.executable}\nopen({str(ran)!r}, 'w')\n")
    evil.chmod(0o755)
    monkeypatch.syspath_prepend(tmp_path)
    runner, words = PROGRAMS[program]
    words = [word.format(evil=evil) for word in words]
    damaged(output, options__runner=runner, options__beam_args=words, options__threads=10**9)
    told = command("verify", output, "--repair").err
    assert f"with FnApiRunner; as its run.json says, this reads {texts} and the model" in told
    assert files(output) == whole
    assert not ran.exists()


def test_repair_takes_its_runner_from_its_own_command(output, command):
    damaged(output)
    for words, said in (
        (["--repair", "--runner=NoSuchRunner"], "--runner NoSuchRunner is not available"),
        (["--direct_num_workers=1"], "--direct_num_workers requires --repair"),
        (["--runner=PrismRunner"], "--runner requires --repair"),
        (["--repair", "--direct_num_worker=1"], "did you mean --direct_num_workers?"),
    ):
        assert said in command("verify", output, *words, code=2).err
    assert main(["verify", str(output), "--repair", "--direct_num_workers=1"]) == 0


TABLE = "project:dataset.table"
EARLIER = EarlierOutput(0, TABLE, None, "", 0)
TABLES = [
    {"options__input": [TABLE]},
    {"options__input_format": "bigquery"},
    {"options__query": "DELETE FROM a.b WHERE true", "options__input": []},
    {"options__output_table": TABLE, "options__output_format": "bigquery"},
    {"table": {"tables": {"dense": TABLE}, "write_disposition": "truncate"}},
    {"input__skip_existing": asdict(earlier_of([EARLIER]))},
]


def test_repair_asks_bigquery_nothing_at_the_word_of_a_record(output, capsys):
    whole = (output / "run.json").read_bytes()
    write_chain(str(output), (EARLIER,))
    for named in TABLES:
        (output / "run.json").write_bytes(whole)
        damaged(output, **named)
        before = files(output)
        assert main(["verify", str(output), "--repair"]) == 2
        assert "run.json names BigQuery, which only a command may" in capsys.readouterr().err
        assert files(output) == before


def test_repair_removes_nothing_in_a_folder_that_the_record_names(tmp_path, output, capsys):
    other = tmp_path / "other"
    kept = other / "examples" / "part-0000000-00000.tfrecord"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"kept")
    damaged(output, files__examples=str(other), options__output=str(other))
    assert main(["verify", str(output), "--repair"]) == 0
    assert kept.read_bytes() == b"kept"
    assert [path.name for path in other.iterdir()] == ["examples"]
    assert "part-0000000-00000.tfrecord" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "name", ["embeddings", "rejected", "examples", "_state", "_state/blocks", "_state/lock"]
)
@pytest.mark.parametrize("command", ["repair", "overwrite"])
def test_nothing_is_written_or_removed_through_a_link(
    tmp_path, written, output, texts, tiny_bundle, capsys, name, command
):
    """The link leads to the same folder of another output, all of whose files look like ours."""
    other = shutil.copytree(written, tmp_path / "other")
    for file in ("rejected/part-0000009-00000.jsonl", "examples/part-0000009-00000.tfrecord"):
        (other / file).parent.mkdir()
        (other / file).touch()
    (other / "embeddings" / "part-0000009-00000.parquet").write_bytes(b"another's")
    (other / "_state" / "lock").write_bytes(b"precious")
    before = contents(other)
    damaged(output)
    place = output / name
    if place.is_dir():
        shutil.rmtree(place)
    place.symlink_to(other / name)
    if command == "repair":
        assert main(["verify", str(output), "--repair"]) == 2
    else:
        assert embed(output, tiny_bundle, texts, dim=8, overwrite=True) == 2
    assert f"{place} is a link" in capsys.readouterr().err
    assert contents(other) == before
    assert main(["verify", str(output)]) == 1, "reading is allowed"


def test_options_of_another_type_are_refused_in_one_sentence(output, command):
    damaged(output)
    stored = record(output)
    for name, value in (
        *(("model", 3), ("input", 3), ("input", [["a"]]), ("layers", {"a": 1}), ("prompt", [])),
    ):
        options = stored["options"] | {name: value}
        (output / "run.json").write_text(json.dumps(stored | {"options": options}))
        told = command("verify", output, "--repair", code=2).err
        assert told.splitlines()[-1].startswith("error: ")
        assert "a bug of this program" not in told


def nested(depth, value=5):
    for level in range(depth):
        value = {"a": value} if level % 2 else [value]
    return value


HOSTILE = [
    *(None, True, -1, 0, 1 << 31, 10**18, (1 << 64) - 1, -(1 << 63), 1e308, 0.5),
    *("", "../../x", "/etc/passwd", "\0", "9" * 400),
    *([], {}, [[]], [None], ["../x"], [10**18] * 3, {"../x": -1}, nested(90), nested(900)),
]


def places_in(value, above=()):
    """The keys that lead to each value of a JSON document."""
    steps = value if isinstance(value, dict) else range(len(value))
    for step in steps:
        yield (*above, step)
        if isinstance(value[step], (dict, list)):
            yield from places_in(value[step], (*above, step))


def mutated(data, random):
    """A JSON document with one value, or two, replaced, removed or added."""
    stored = orjson.loads(data)
    places = list(places_in(stored))
    # From the last on: what is within another one comes before it.
    numbers = sorted(random.sample(range(len(places)), random.choice((1, 1, 2))), reverse=True)
    for *above, last in (places[number] for number in numbers):
        holder = reduce(getitem, above, stored)
        if (share := random.random()) < 0.1:
            del holder[last]
        elif share < 0.15 and isinstance(holder, dict):
            holder[random.choice(("../../x", "9" * 30))] = random.choice(HOSTILE)
        else:
            holder[last] = random.choice(HOSTILE)
    return json.dumps(stored).encode()


@contextmanager
def limited(seconds):
    """Fails what takes longer."""

    def too_long(*_):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, too_long)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def told(capsys, words):
    """The exit code of a command that must end soon and in sentences; what it says of a failure."""
    with limited(20):
        code = main(words)
    said = capsys.readouterr()
    assert "Traceback" not in said.err, said.err
    assert code in (0, 1, 2)
    assert not code or "error: " in said.err
    return code, said.out + said.err


@pytest.fixture(scope="module")
def three_parts(texts, tiny_bundle, tmp_path_factory):
    output = tmp_path_factory.mktemp("parts") / "out"
    assert embed(output, tiny_bundle, texts, part_docs=1) == 0
    assert len(block_records(output)) == 3
    return output


def test_a_wrong_number_of_blocks_is_told_at_once(output, capsys):
    stored = record(output)
    for blocks in (-1, 0, 2, 1 << 31, (1 << 63) - 1, (1 << 64) - 1, 1e300, "1"):
        stored["plan"]["blocks"] = blocks
        (output / "run.json").write_text(json.dumps(stored))
        code, message = told(capsys, ["verify", str(output)])
        assert code in (1, 2)
        assert "missing" in message or "says" in message or "plan.blocks must be" in message
        assert len(message) < 200_000


def test_a_part_of_an_absurd_number_is_told_at_once(output, capsys):
    path, stored = report_of(output)
    for number in (99_999_999, 10**12, 10**30):
        name = f"0000000-{number}.json"
        (path.parent / name).write_bytes(orjson.dumps(stored | {"part": min(number, 1 << 60)}))
        moved = f"embeddings/part-0000000-{number}.parquet"
        shutil.copy(next(output.glob("embeddings/*")), output / moved)
        code, message = told(capsys, ["verify", str(output)])
        assert (code, moved in message or name in message) == (1, True)
        (path.parent / name).unlink()
        (output / moved).unlink()
    assert told(capsys, ["verify", str(output)])[0] == 0


def test_verify_and_the_readers_end_for_any_record(three_parts, tmp_path, capsys):
    random = Random(1)
    output = shutil.copytree(three_parts, tmp_path / "out")
    names = ["run.json", *(str(path.relative_to(output)) for path in block_records(output))]
    commands = [
        ["verify", str(output)],
        ["search", str(output), "bank"],
        ["export", str(output), str(tmp_path / "copy"), "--to=npy"],
    ]
    for number in range(300):
        name = names[number % 2 and random.randrange(1, len(names))]
        whole = (output / name).read_bytes()
        (output / name).write_bytes(mutated(whole, random))
        for words in commands if name == "run.json" and number % 3 == 0 else commands[:1]:
            told(capsys, words)
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)
        (output / name).write_bytes(whole)


@pytest.mark.slow
def test_repair_of_any_record_writes_only_its_folder(three_parts, tmp_path, kept, capsys):
    random = Random(2)
    output = tmp_path / "folder" / "out"
    repaired = 0
    for number in range(18):
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(three_parts, output)
        data_files(output)[number % 3].unlink()
        name = "run.json" if number % 2 else str(block_records(output)[0].relative_to(output))
        if number % 4 == 1:
            name = "_state/listing.json.zst"
            whole = zstandard.decompress((output / name).read_bytes())
            (output / name).write_bytes(zstandard.compress(mutated(whole, random)))
        else:
            (output / name).write_bytes(mutated((output / name).read_bytes(), random))
        with parts_of(1):
            code, message = told(capsys, ["verify", str(output), "--repair"])
        repaired += code == 0
        assert code or vectors(output).shape == (3, 32), message
        assert os.listdir(kept.parent) == [kept.name]
        assert sorted(os.listdir(tmp_path)) == ["folder", "outside"]
        assert os.listdir(output.parent) == ["out"]
    assert repaired > 4
