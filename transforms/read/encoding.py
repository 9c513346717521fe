"""Rejects files in encodings that cannot be read, by their byte order marks."""

from bert_embed.storage.errors import InputError
from bert_embed.storage.files import is_remote, open_raw

# Byte order marks; one of UTF-32 begins with one of UTF-16, so UTF-32 comes first.
_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_LONGEST_MARK = 4


def check_encoding(path: str, start: bytes) -> None:
    """Raises InputError if a file's first bytes are the mark of UTF-16 or UTF-32."""
    for mark, name in _MARKS.items():
        if start.startswith(mark):
            raise InputError(f"{path} is {name}, convert it to UTF-8: iconv -f {name} -t UTF-8")


def check_stored_encoding(path: str) -> None:
    """`check_encoding` of a local uncompressed file; others are checked when they are read."""
    if not is_remote(path):
        with open_raw(path) as file:
            check_encoding(path, file.read(_LONGEST_MARK))
