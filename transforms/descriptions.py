"""Names the files that describe a run, and tells ours from a user's own of the same names."""

from contextlib import suppress

from bert_embed.storage.files import join, open_raw

CARD = "README.md"  # which `card` writes
REPORT_PAGE = "report.html"  # shows the run to people
# The first lines of a card: a comment in its front matter, of which the Hub shows nothing.
CARD_BEGINS = "---\n# bert-embed wrote this file and replaces it; without this line it is yours\n"
_SIGNS = {
    CARD: CARD_BEGINS.encode(),
    REPORT_PAGE: b"<title>Report of a run</title>",
}
_MOST_BYTES = 64 << 10  # in which each of them says what it is


def is_ours(name: str, data: bytes) -> bool:
    """Whether the beginning of a file of this name is one that this program writes.

    >>> is_ours("README.md", CARD_BEGINS.encode()), is_ours("README.md", b"# My notes")
    (True, False)
    """
    place = data.replace(b"\r\n", b"\n").find(_SIGNS[name])
    return place == 0 if name == CARD else place >= 0


def is_foreign(folder: str, name: str) -> bool:
    """Whether a file of this name is in a folder, and this program did not write it."""
    with suppress(FileNotFoundError), open_raw(join(folder, name)) as file:
        return not is_ours(name, file.read(_MOST_BYTES))
    return False
