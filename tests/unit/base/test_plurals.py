"""Counts and nouns agree."""

from bert_embed.base.errors import counted, counted_of


def test_counts_and_nouns_agree():
    assert [counted(number, "file") for number in (0, 1, 2)] == ["0 files", "1 file", "2 files"]
    assert counted(1, "query", "queries") == "1 query"
    assert counted(1234, "query", "queries") == "1,234 queries"
    assert counted_of(1, 2, "part", "was", "were") == "1 of 2 parts was"
    assert counted_of(0, 1, "part", "was", "were") == "0 of 1 part were"
