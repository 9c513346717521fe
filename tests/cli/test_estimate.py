"""`estimate` is about right on corpora that are not alike throughout, and exact on small ones."""

import gzip
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.command import ROOT, embed, record, write_json
from tests.support.models.tiny import WORDS

MOST = 64  # tokens of a row
QUICK = ["--seconds=0", f"--max_seq_length={MOST}"]
RANDOM = np.random.default_rng(5)


def texts_of(lengths):
    """Texts of so many words, each of which is one token."""
    words = iter(RANDOM.choice(np.array(WORDS), int(sum(lengths))).tolist())
    return [" ".join(next(words) for _ in range(length)) for length in lengths]


@pytest.fixture
def estimated(command, tiny_bundle):
    """What is found of an input, as JSON has it."""

    def found(source, *words):
        words = f"--input={source}", f"--model={tiny_bundle}", "--json", *QUICK, *words
        return json.loads(command("estimate", *words).out)

    return found


def files_of_lines(folder):
    """A large file whose texts grow; small ones, first of short texts; and compressed ones."""
    every = np.linspace(3, 90, 16_000).astype(int).tolist()
    (folder / "a.txt").write_text("\n".join(texts_of(every)))
    for number in range(360):
        packed = number >= 300
        most = 100 if number % 10 == 0 else 10 if number < 150 else 30
        lengths = RANDOM.integers(1, most, (30_000 if packed else 6_000) // most)
        data = "".join(f"{text}\n" for text in texts_of(lengths)).encode()
        path = folder / f"{number:03d}.txt{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(data, 1, mtime=0) if packed else data)
        every += lengths.tolist()
    return every


def rows_of_parquet(folder):
    """Rows whose texts grow, and then empty ones."""
    lengths = np.linspace(1, 40, 50_000).astype(int)
    table = pa.table({"text": [*texts_of(lengths), *[""] * 2000]})
    pq.write_table(table, folder / "in.parquet", row_group_size=4000)
    return lengths


def few_long_lines(folder):
    """Lines so long that most pieces hold the beginning of none."""
    short = texts_of([30] * 15) * 3
    more = [100_000 + 9_000 * (number % 15) for number in range(len(short))]
    rows = [{"text": one, "more": "x" * size} for one, size in zip(short, more, strict=True)]
    write_json(folder / "in.jsonl", *rows)
    return [30] * len(short)


@pytest.mark.slow
@pytest.mark.parametrize("make", [files_of_lines, few_long_lines, rows_of_parquet])
def test_the_truth_is_near(tmp_path, estimated, make):
    lengths = np.asarray(make(tmp_path))
    documents, tokens = len(lengths), np.minimum(lengths + 2, MOST).sum()  # special ones, and cut
    near = 0.15 if make is few_long_lines else 0.1
    found = estimated(tmp_path)
    assert not found["exact"]
    assert found["documents"] == pytest.approx(documents, rel=near)
    assert found["tokens"] == pytest.approx(tokens, rel=near)
    if make is rows_of_parquet:
        assert found["records"] == pytest.approx(documents + 2000, rel=near)


def test_chunks_windows_and_empty_files_count_as_in_runs(small, run, estimated, tmp_path):
    for folder, flag in (("chunks", "chunk=tokens:10"), ("windows", "long_text=windows")):
        output = run(small / "in", folder, max_seq_length=MOST, **dict([flag.split("=")]))
        found = estimated(small / "in", f"--{flag}")
        assert found["vectors"] == record(output)["written"][folder]["rows"]
    texts = ["money", "", "bank money", "", "", "  "]
    files = {f"in/{number}.txt": text for number, text in enumerate(texts)}
    output = run(files, input_format="files")
    found = estimated(tmp_path / "in", "--input_format=files")
    assert (found["records"], found["documents"]) == (6, 2)
    counts = record(output)["counts"]
    assert (counts["records"], counts["embedded"]) == (6, 2)


@pytest.fixture(scope="module")
def small(tmp_path_factory, tiny_bundle):
    """A small corpus of every format, and the record of its run."""
    folder = tmp_path_factory.mktemp("small")
    (folder / "in").mkdir()
    texts = texts_of(RANDOM.integers(1, 90, 300)) + ["money bank"] * 20
    (folder / "in" / "a.txt").write_text("\n".join([*texts[:50], "", "sdfgh qwrt", ""]))
    rows = [{"text": text} for text in texts[50:150]]
    (folder / "in" / "b.jsonl").write_text("\n".join(map(json.dumps, rows)) + '\n{"text": 3}\n')
    (folder / "in" / "c.csv").write_text("text\n" + "\n".join(texts[150:250]) + "\n")
    data = gzip.compress("\n".join(texts[250:]).encode())
    (folder / "in" / "d.txt.gz").write_bytes(data)
    flags = {"max_seq_length": MOST}
    assert embed(folder / "out", tiny_bundle, folder / "in", **flags) == 0
    return folder


def test_a_small_input_is_counted_as_its_run_counts_it(small, estimated):
    found = estimated(small / "in")
    run = record(small / "out")
    counts, written = run["counts"], run["written"]["embeddings"]
    exact = found["exact"], found["documents"], found["records"], found["vectors"]
    assert exact == (True, counts["embedded"], counts["records"], written["rows"])
    assert (found["tokens"], found["files"]) == (run["tokens"], run["input"]["files"])
    assert found["cut_tokens"] == pytest.approx(run["cut_share"], abs=1e-4)
    assert found["output_bytes"] == pytest.approx(written["bytes"], rel=0.5)
    assert (found["speed"], found["hours"], found["cost"]) == (None, None, None)


def test_hours_and_their_price(small, tiny_bundle, tmp_path, command, estimated):
    words = [f"--input={small}/in", f"--model={tiny_bundle}", "--seconds=0.1", "--threads=1"]
    printed = command("estimate", *words).out
    assert "2 records rejected, most for" in printed
    assert "\nthis machine, measured for 0." in printed
    assert printed.endswith("\n--price_per_hour gives the cost\n")
    assert "river" not in printed
    assert not list(tmp_path.iterdir())
    printed = command("estimate", *words, price_per_hour=1e6).out
    assert re.search(r"^cost: [\d,]+\.\d\d$", printed, re.M)
    words = ["--seconds=0.1", "--price_per_hour=2.5"]
    found = estimated(small / "in", *words)
    assert found["hours"] == pytest.approx(found["tokens"] / found["tokens_per_second"] / 3600)
    assert found["cost"] == pytest.approx(2.5 * found["hours"])
    (tmp_path / "empty.txt").write_text("")
    empty = estimated(tmp_path / "empty.txt", *words)
    assert (empty["documents"], empty["hours"], empty["cost"]) == (0, None, None)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--input=x --seconds=-1", "--seconds must be at least 0, got -1"),
        ("--input=x --price_per_hour=nan", "--price_per_hour must be at least 0, got nan"),
        ("--input=-", "--input - names no file; stdin is not read, write it to a file first"),
        ("--input=x --accelerator=v5e-8 --device=gpu", "gpu would leave --accelerator v5e-8 idle"),
        ("--query=SELECT --project=p", "estimate runs no query"),
    ],
)
def test_mistakes_are_named(words, message, command):
    assert message in command("estimate", *words.split(), code=2).err


@pytest.mark.slow
def test_a_store_and_a_table_are_sampled_too(small, estimated, gcs, bigquery):
    found = estimated(gcs.put_folder(small / "in", "estimated", "in"))
    assert found["tokens"] == record(small / "out")["tokens"]
    rows = [{"id": f"k{n}", "text": "red bank"} for n in range(40)]
    bigquery.fill("test-project.estimated.t", rows)
    found = estimated("test-project:estimated.t")
    assert (found["documents"], found["exact"]) == (40, True)


@pytest.mark.parametrize(
    ("chip", "table", "source"),
    [
        ("v5e", "compiled", "estimated by the compiler, not measured"),
        ("h100", "h100", "measured on one H100"),
    ],
)
def test_an_accelerator_has_its_known_speed(small, estimated, chip, table, source):
    words = ["--model=minilm", "--precision=bfloat16", f"--accelerator={chip}-8"]
    found = estimated(small / "in", *words)
    assert found["speed"] == f"{chip}-8, 8 chips, {source}"
    kept = json.loads((ROOT / "benchmarks" / "results" / f"{table}.json").read_text())
    programs = kept.get("programs", kept)
    milliseconds = programs[f"MiniLM, 128 x 128, bfloat16, {chip}"]["milliseconds"]
    speed = found["tokens_per_second"]
    assert speed == pytest.approx(8 * 128 * 128e3 / milliseconds, rel=0.05)
    assert found["hours"] == pytest.approx(found["tokens"] / speed / 3600)


def test_what_nobody_knows_has_no_hours(small, tiny_bundle, command):
    flags = {"model": tiny_bundle, "accelerator": "l4-4", "precision": "bfloat16"}
    shown = command("estimate", f"--input={small}/in", *QUICK, **flags)
    assert "the speed in bfloat16 on l4 is not known; measure on such a machine" in shown.err
    assert "speed: not measured, so no hours" in shown.out


def test_examples_are_refused(small, tiny_bundle, tmp_path, command):
    command("tokenize", input=small / "in", output=tmp_path / "out", model=tiny_bundle)
    said = command("estimate", input=tmp_path / "out", model=tiny_bundle, code=2).err
    assert "run.json of `tokenize` has the tokens of examples" in said
