"""What a precision asks of the model and of the machine."""

import platform
import sys

import pytest

import bert_embed
from bert_embed.backends import processor as processors
from bert_embed.backends.choose import weight_files
from bert_embed.base.errors import SettingError
from bert_embed.bundle.bundle import read_bundle
from tests.support.command import embed


@pytest.fixture
def processor(tmp_path, monkeypatch):
    """Lets this machine have a processor with such a line of flags."""

    def has(line):
        (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{line}\nbugs\t\t: none\n", "ascii")
        monkeypatch.setattr(processors, "CPUINFO", tmp_path / "cpuinfo")

    return has


def test_the_weights_of_a_device_that_is_not_named(tiny_bundle):
    bundle = read_bundle(tiny_bundle)
    assert weight_files(bundle, "float32", None) == ["float32.tflite"]
    with pytest.raises(SettingError, match="device must be one of"):
        weight_files(bundle, "float32", "gpuu")


@pytest.mark.parametrize(
    ("line", "noted"),
    [
        ("flags\t\t: fpu avx2 fma", True),
        ("flags\t\t: fpu avx512f avx512_vnni", False),
        ("flags\t\t: fpu avx2 avx_vnni", False),
        ("Features\t: fp asimd asimddp", False),
    ],
)
def test_int8_that_gains_nothing_is_noted_once(
    processor, line, noted, tmp_path, tiny_bundle, capsys
):
    processor(line)
    (tmp_path / "in.txt").write_text("a bank\n", "utf-8")
    flags = {"precision": "int8", "dry_run": True}
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", **flags) == 0
    said = "".join(capsys.readouterr())
    assert said.count("--precision int8 is no faster than float32 on this processor") == noted
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", dry_run=True) == 0
    assert "--precision" not in "".join(capsys.readouterr())


def test_apples_processors_have_int8_products_though_macos_lists_none(processor, monkeypatch):
    processor("")
    assert not processors.has_int8_products()
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert processors.has_int8_products()


def test_another_gpu_than_the_first_is_refused(tiny_bundle, tmp_path, capsys):
    with pytest.raises(SettingError, match=r"cuda:1: .* set CUDA_VISIBLE_DEVICES=1 before"):
        bert_embed.load(tiny_bundle, device="cuda:1")
    (tmp_path / "in.txt").write_text("a bank\n", "utf-8")
    assert embed(tmp_path / "out", tiny_bundle, tmp_path / "in.txt", device="cuda:1") == 2
    assert "set CUDA_VISIBLE_DEVICES=1" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
