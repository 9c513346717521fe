"""The table of what compilers say of our programs, and the command that compares with it."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.command import ROOT

TABLE = ROOT / "benchmarks" / "results" / "compiled.json"
CASE = "MiniLM, multi head, 1 layer, 128 x 128, bfloat16, h100"  # seconds to compile

WHOLE = [
    f"{model}, 128 x 128, bfloat16, {chip}"
    for model in ("MiniLM", "bert-base")
    for chip in ("v5e", "v6e")
]

FUSED = """
from benchmarks.compiled import Case, compiled

program = compiled(Case("MiniLM", "h100", {precision!r}, (128, 128), layers=2))
print(program.as_text().count('"epilogue":"BIAS_GELU"'))
"""

ALL_CHIPS = """
from benchmarks.compiled import Case, compiled

case = Case("MiniLM", "v5e", "bfloat16", (64, 128), layers=1)
print(compiled(case, together=True).as_text())
"""


def test_the_chips_of_a_tpu_share_a_program_and_exchange_nothing():
    done = python("-c", ALL_CHIPS)
    assert done.returncode == 0, done.stderr
    assert "num_partitions=4" in done.stdout
    assert "bf16[16,128,384]" in done.stdout  # 64 rows, a quarter for each
    for collective in ("all-reduce", "all-gather", "all-to-all", "collective-permute"):
        assert f" {collective}" not in done.stdout


def compared(table, *arguments):
    command = ["-m", "benchmarks.compiled", "--only", CASE, "--table", table]
    return python(*map(str, command), *arguments)


def python(*arguments):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "XLA_FLAGS"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("precision", "fused"), [("bfloat16", 2), ("float16", 0)])
def test_in_bfloat16_cublas_computes_gelu_with_each_product(precision, fused):
    done = python("-c", FUSED.format(precision=precision))
    assert (done.returncode, done.stdout) == (0, f"{fused}\n"), done.stderr


def test_a_program_that_got_worse_fails_and_names_the_figure(tmp_path):
    kept = json.loads(TABLE.read_text())
    assert compared(TABLE).returncode == 0
    table = tmp_path / "compiled.json"
    kernels = kept[CASE]["kernels"]
    kept[CASE]["kernels"] = int(kernels / 1.11)
    table.write_text(json.dumps(kept))
    done = compared(table)
    assert done.returncode == 1
    assert f"{CASE}: kernels {int(kernels / 1.11)} -> {kernels}" in done.stderr


@pytest.mark.parametrize(
    ("figure", "kept", "now", "fails"),
    [
        ("milliseconds", 10, 11, False),
        ("milliseconds", 10, 11.1, True),
        ("temporary MB", 10, 11.1, True),
        ("million cycles", 10, 11.1, True),
        ("executable MB", 10, 11.1, True),
        ("share of peak", 0.5, 0.6, False),
        ("share of peak", 0.5, 0.4, False),  # said by the milliseconds
    ],
)
def test_a_tenth_is_too_much(figure, kept, now, fails):
    from benchmarks.compiled import worse

    assert bool(worse({figure: kept}, {figure: now})) == fails


def test_keep_writes_the_figures_that_the_next_comparison_reads(tmp_path):
    table = tmp_path / "compiled.json"
    table.write_text("{}")
    assert compared(table, "--keep").returncode == 0
    assert json.loads(table.read_text()) == {CASE: json.loads(TABLE.read_text())[CASE]}


def test_every_run_compiles_each_family_and_head_and_all_runs_all_of_them_for_each_chip():
    from benchmarks.compiled import HEADS, MODELS, TARGETS, cases, mixtures

    parts = [list(cases(part)) for part in range(10)]
    for chosen in parts:
        assert {case.model for case in chosen} == set(MODELS)
        assert {case.target for case in chosen if case.model == "MiniLM"} == set(TARGETS)
        assert {case.head for case in chosen} == {"", *HEADS}
        assert sum(case.target in ("v5e", "v6e") for case in chosen) <= 4, "takes minutes"
    together = {case for chosen in parts for case in chosen}
    for target in TARGETS:
        here = [case for case in together if case.target == target]
        assert {case.model for case in here} == set(MODELS)
        assert {case.head for case in here} == {"", *HEADS}
    everything = [case.name for case in cases(None)]
    assert len(set(everything)) == len(everything)
    kept = json.loads(TABLE.read_text())
    assert {case.name for case in set.intersection(*map(set, parts))} <= set(kept)
    assert {case.name for case in together} | set(kept) <= {*everything, *mixtures(kept)}
    assert set(WHOLE) <= set(kept)


def test_a_commit_always_compiles_the_same_part(monkeypatch):
    from benchmarks import compiled

    of_commit = compiled.part_of_commit()
    assert of_commit == compiled.part_of_commit()
    assert of_commit in range(10)
    monkeypatch.setenv("GIT_DIR", "/dev/null")  # a source without its history
    assert compiled.part_of_commit() == 0


def test_tokens_of_mixed_lengths_follow_from_the_programs_they_need():
    from benchmarks.compiled import mixtures

    kept = json.loads(TABLE.read_text())
    name = "MiniLM, mixed lengths of mean 40, bfloat16, v5e"
    assert {mixed: kept[mixed] for mixed in mixtures(kept)} == mixtures(kept)
    fullest = kept["MiniLM, 128 x 128, bfloat16, v5e"]["million tokens a second"]
    assert 0.8 * fullest < kept[name]["million tokens a second"] < fullest
    for said in kept.values():
        if "milliseconds" in said:
            said["milliseconds"] *= 2
    twice = mixtures(kept)[name]["million tokens a second"]
    assert twice == pytest.approx(kept[name]["million tokens a second"] / 2, rel=1e-3)
    del kept["MiniLM, 16 x 128, bfloat16, v5e"]
    assert name not in mixtures(kept)
