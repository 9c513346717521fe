"""The reference: its page for GitHub is generated, and `help` shows what calls take."""

import inspect

import pytest

import bert_embed
from docs.reference_page import PAGE, reference_page


def test_the_page_of_arguments_is_what_the_docstrings_say():
    assert PAGE.read_text("utf-8") == reference_page(), "run python -m docs.reference_page"


@pytest.mark.parametrize("name", ["encode", "encode_query", "encode_document", "units"])
def test_help_shows_the_settings_of_a_call(name):
    parameters = inspect.signature(getattr(bert_embed.Encoder, name)).parameters
    assert {"layers", "dim", "prompt", "max_seq_length"} <= parameters.keys()
    assert ("pooling" in parameters) == (name != "units")
    assert "settings" not in parameters
