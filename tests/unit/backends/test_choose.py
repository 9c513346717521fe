"""What a precision asks of the model and of the machine."""

import platform
import re
import sys

import pytest

import bert_embed
from bert_embed.backends import choose
from bert_embed.base import environment as processors
from bert_embed.base.errors import SettingError
from tests.support.command import embed


@pytest.fixture
def processor(tmp_path, monkeypatch):
    """Lets this machine have a processor with such a line of flags."""

    def has(line):
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{line}\nbugs\t\t: none\n", "ascii")
        monkeypatch.setattr(processors, "CPUINFO", tmp_path / "cpuinfo")
        (tmp_path / "in.txt").write_text("a bank\n", "utf-8")

    return has


FASTER = "is no faster than float32 on this processor"
SLOWER = "is slower than float32 on this processor"


@pytest.mark.parametrize(
    ("precision", "line", "note"),
    [
        ("int8", "flags\t\t: fpu avx2 fma", FASTER),
        ("int8", "flags\t\t: fpu avx512f avx512_vnni", None),
        ("int8", "flags\t\t: fpu avx2 avx_vnni", None),
        ("int8", "Features\t: fp asimd asimddp", None),
        ("float32", "flags\t\t: fpu avx2 fma", None),
        ("bfloat16", "vendor_id\t: GenuineIntel\nflags\t\t: fpu avx512_bf16", SLOWER),
        ("bfloat16", "vendor_id\t: GenuineIntel\nflags\t\t: fpu avx512_bf16 amx_bf16", None),
        ("bfloat16", "vendor_id\t: AuthenticAMD\nflags\t\t: fpu avx512_bf16", None),
    ],
)
def test_a_precision_that_gains_nothing_is_noted(
    processor, precision, line, note, tmp_path, tiny_bundle, capsys
):
    if precision == "bfloat16":
        pytest.importorskip("openvino", reason="OpenVINO is for x86")
    processor(line)
    asked = {"precision": precision, "device": "cpu", "dry_run": True}
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", **asked) == 0
    notes = [] if note is None else [f"--precision {precision} {note}"]
    said = "".join(capsys.readouterr())
    assert re.findall(rf"--precision \w+ (?:{FASTER}|{SLOWER})", said) == notes


def test_apples_processors_have_int8_products_though_macos_lists_none(processor, monkeypatch):
    processor("")
    assert not processors.has_int8_products()
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert processors.has_int8_products()


def test_bfloat16_asks_for_its_instructions_and_its_package_before_the_run(
    processor, tmp_path, tiny_bundle, monkeypatch, capsys
):
    sentence = (
        "precision bfloat16 requires a processor with avx512_bf16 or amx_bf16, and this one has "
        "neither; take int8 or float32"
    )
    installs = "requires openvino, which is not installed here: pip install openvino"
    bfloat16, openvino = {"precision": "bfloat16"}, {"engine": "openvino"}
    processor("flags\t\t: fpu avx2 avx512f avx512_vnni")
    for flags in ({}, {"device": "cpu"}, openvino):
        with pytest.raises(SettingError, match=sentence):
            bert_embed.load(tiny_bundle, **bfloat16 | flags)
    said = [(bfloat16, sentence)]
    said += [(bfloat16 | {"device": "cpu"}, f"precision bfloat16 {installs}")]
    said += [(bfloat16 | {"device": "cpu"} | openvino, f"engine openvino {installs}")]
    for flags, message in said:
        assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", **flags) == 2
        error = capsys.readouterr().err
        assert (f"--{message}" in error, error.count("\n")) == (True, 1)
        assert not (tmp_path / "out").exists()
        processor("flags\t\t: fpu avx512_bf16")
        monkeypatch.setattr(choose, "find_spec", lambda name: name != "openvino" or None)
