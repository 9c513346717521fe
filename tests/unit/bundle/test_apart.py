"""Functions in a process of their own: arguments go there, and errors come back as they were."""

import pytest

from bert_embed.base.errors import InputError, SettingError
from bert_embed.bundle.cache import call_apart, import_apart

pytestmark = pytest.mark.slow


def test_an_import_that_is_refused_raises_its_own_sentence(tmp_path):
    with pytest.raises(InputError) as refused:
        import_apart(tmp_path / "none", tmp_path / "bundle")
    lead = "no such folder; a name of Hugging Face is hf://ORG/NAME, and minilm needs no import"
    assert str(refused.value) == f"{tmp_path / 'none'}: {lead}"
    assert not (tmp_path / "bundle").exists()


def test_a_refusal_keeps_its_type_names_and_sentence(tmp_path):
    with pytest.raises(SettingError, match="dim must be an integer, got 'x'") as refused:
        call_apart("a check", "bert_embed.base.arguments:whole_number", "dim", "x")
    assert refused.value.setting == "dim"
    with pytest.raises(InputError, match="No such file or directory"):
        call_apart("a move", "os:rename", str(tmp_path / "a"), str(tmp_path / "b"))


def test_what_is_printed_does_not_mix_with_the_answer(tmp_path):
    call_apart("a print", "builtins:print", "text", end="")
    (tmp_path / "folder").mkdir()
    call_apart("a call", "os:rmdir", path=str(tmp_path / "folder"))
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize(
    ("function", "message"),
    [("bert_embed.base.arguments:nothing", "AttributeError"), ("os:_exit", "ended with code 7")],
)
def test_a_function_that_breaks_is_named_with_the_end_of_its_stderr(function, message):
    with pytest.raises(RuntimeError, match="the test ended with code") as broken:
        call_apart("the test", function, 7)
    assert message in str(broken.value)
