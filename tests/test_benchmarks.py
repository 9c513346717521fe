"""The proof that the sides of a benchmark computed the same."""

import json

import pyarrow as pa
import pytest

from benchmarks.backends import best_size, sides
from benchmarks.cost import cost
from benchmarks.end_to_end import difference
from benchmarks.headline import headline
from benchmarks.run import RESULTS
from tests.support.command import ROOT


def test_sides_are_compared_entry_by_entry():
    """An entry that one side lacks counts whole, and scores by their label."""
    ours = pa.table({"indices": [[1, 5], [], []], "values": [[1.0, 0.5], [], []]})
    theirs = pa.table({"indices": [[1], [7], []], "values": [[0.75], [0.25], []]})
    assert difference("sparse", ours, theirs) == 0.5
    assert difference("sparse", theirs, theirs) == 0
    ours = pa.table({"id": ["0"], "no": [0.25], "yes": [0.75], "label": ["yes"]})
    theirs = pa.table({"id": ["a text"], "no": [0.5], "yes": [0.5]})
    assert difference("scores", ours, theirs) == 0.25


def test_multi_vectors_of_another_number_of_tokens_are_not_compared():
    tokens = pa.list_(pa.list_(pa.float32(), 2))
    rows = (
        [[[1, 2], [3, 4]], [[5, 6]]],
        [[[1, 2], [3, 4.5]], [[5, 6]]],
        [[[1, 2]], [[3, 4], [5, 6]]],
    )
    two, moved, one_less = (pa.table({"embedding": pa.array(each, tokens)}) for each in rows)
    assert difference("multi", two, moved) == 0.5
    with pytest.raises(RuntimeError, match="not the same number"):
        difference("multi", two, one_less)


def test_the_readme_has_the_cost_of_what_was_measured(tmp_path):
    """Whoever measures, or has another price, writes the pages anew."""
    results = [json.loads(path.read_text("utf-8")) for path in sorted(RESULTS.glob("*-*.json"))]
    table = cost(results)
    assert f"<!-- cost -->\n{table}\n<!-- /cost -->\n" in (ROOT / "README.md").read_text("utf-8")
    measured = results[1]["end_to_end"]["results"]["ours, int8"]["sentences_per_second"]
    assert measured == 973.3
    hours = 1_000_000 / measured / 3600
    assert f"{hours:.2f} hours, {0.1 * hours:.2f} dollars" in table
    assert f"{hours:.2f} hours, {0.24 * hours:.2f} dollars" in cost(results, 0.24)
    assert "| sentences of 12 words | 403 | 973 | 191 | 207 |" in table


@pytest.mark.parametrize(
    ("flags", "file", "bfloat16"),
    [
        (["avx2"], "quint8_avx2", False),
        (["avx2", "avx512f"], "quint8_avx2", False),
        (["avx2", "avx_vnni"], "quint8_avx2", False),
        (["avx2", "avx512_vnni"], "qint8_avx512_vnni", False),
        (["avx2", "avx512_vnni", "amx_bf16", "amx_int8"], "qint8_avx512_vnni", True),
        (["asimd", "bf16"], "qint8_arm64", True),
    ],
)
def test_each_backend_has_the_int8_of_the_processor(flags, file, bfloat16):
    peers = sides(flags)
    assert peers["ONNX Runtime, int8"][-1] == f"--file=onnx/model_{file}.onnx"
    assert peers["OpenVINO"][-1] == "--precision=f32"
    assert ("OpenVINO, bfloat16" in peers) == bfloat16


def test_a_batch_size_is_chosen_by_the_pass_that_tried_all():
    assert best_size({32: [90.0], 64: [110.0, 80.0, 70.0], 128: [100.0]}) == 64


def _backends(**rates: tuple[float, float]) -> dict[str, object]:
    """Returns a record of sides with their seconds of a whole job, and texts a second."""
    ours = {"ours": (10.0, 400.0), "ours, int8": (4.0, 1600.0)}
    results = {}
    for texts, slower in (("sentences", 1), ("passages", 10)):
        for side, (seconds, rate) in {**ours, **rates}.items():
            results[f"{texts}, {side}"] = {
                "texts_per_second": rate / slower,
                "whole": {name: seconds / one[0] for name, one in ours.items()},
                "steady": {name: one[1] / rate for name, one in ours.items()},
            }
    machine = {"processor": "A", "cores": 1, "date": "2026-11-26"}
    counts = {"sentences": 2400, "passages": 256}
    return {"backends": {"results": results, "counts": counts, "machine": machine}}


def test_the_comparison_names_the_fastest_backend_also_where_it_is_faster_than_ours():
    rates = {"torch": (18.0, 300.0), "OpenVINO": (20.0, 500.0)}
    rates |= {"OpenVINO, bfloat16": (12.0, 2000.0), "ONNX Runtime, int8": (8.0, 1000.0)}
    rows = headline([_backends(**rates)]).splitlines()
    (float32,) = [row for row in rows if row.startswith("| 2,400 sentences, float32 |")]
    (int8,) = [row for row in rows if row.startswith("| 256 passages, int8 |")]
    assert float32.endswith("| 1.80 x (torch), 0.80 x (OpenVINO) |")
    assert int8.endswith("| 2.00 x (ONNX Runtime, int8), 0.80 x (OpenVINO, bfloat16) |")


def test_the_cost_has_each_tool_at_its_best_batch_size():
    theirs, beams = "sentence-transformers encode", "Beam MLTransform"
    rates = {"ours": 100, "ours, int8": 200, theirs: 50, f"{theirs}, batches of 8": 60, beams: 40}
    sides = {side: {"sentences_per_second": rate} for side, rate in rates.items()}
    machine = {"processor": "AMD EPYC (cpu family 26, model 2)", "cores": 4}
    whole = {"results": sides, "machine": machine}
    lines = cost([dict.fromkeys(("end_to_end", "end_to_end_passages"), whole)], 0.1).splitlines()
    assert lines[2].startswith("| 4 cores of AMD EPYC 9005 (Google's c4d, ")
    assert lines[2].endswith("| 100 | 200 | 60 | 40 |")
    assert lines[-1].count("2.78 hours, 0.28 dollars | 1.39 hours, 0.14 dollars") == 2
