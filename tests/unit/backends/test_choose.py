"""What a precision asks of the model and of the machine."""

import platform
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


@pytest.mark.parametrize(
    ("line", "noted"),
    [
        ("flags\t\t: fpu avx2 fma", True),
        ("flags\t\t: fpu avx512f avx512_vnni", False),
        ("flags\t\t: fpu avx2 avx_vnni", False),
        ("Features\t: fp asimd asimddp", False),
    ],
)
def test_int8_that_gains_nothing_is_noted(processor, line, noted, tmp_path, tiny_bundle, capsys):
    processor(line)
    flags = {"precision": "int8", "dry_run": True}
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", **flags) == 0
    said = "".join(capsys.readouterr())
    assert said.count("--precision int8 is no faster than float32 on this processor") == noted
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", dry_run=True) == 0
    assert "--precision" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("vendor", "flags", "noted"),
    [
        ("GenuineIntel", "avx512_bf16", True),
        ("GenuineIntel", "avx512_bf16 amx_bf16", False),
        ("AuthenticAMD", "avx512_bf16", False),
    ],
)
def test_bfloat16_that_loses_is_noted(
    processor, vendor, flags, noted, tmp_path, tiny_bundle, capsys
):
    pytest.importorskip("openvino", reason="OpenVINO is for x86")
    processor(f"vendor_id\t: {vendor}\nflags\t\t: fpu {flags}")
    asked = {"precision": "bfloat16", "device": "cpu", "dry_run": True}
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", **asked) == 0
    said = "".join(capsys.readouterr())
    assert said.count("--precision bfloat16 is slower than float32 on this processor") == noted


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
