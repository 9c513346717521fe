"""Encodings that are not read: the first bytes of a file in, an error that names it out."""

from transforms.files import is_remote, open_raw

# Byte order marks, UTF-32's before that of UTF-16 with which one of them begins.
_MARKS = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
_LONGEST_MARK = 4


def check_encoding(path: str, start: bytes) -> None:
    """Refuses a file that begins with the byte order mark of UTF-16 or UTF-32.

    Between its zero bytes, such a file holds much that is UTF-8 by chance.

    Args:
        path: The file.
        start: Its first bytes, decompressed.

    Raises:
        ValueError: It is in such an encoding.

    >>> check_encoding("/in/a.txt", b"\\xff\\xfea\\x00")
    Traceback (most recent call last):
    ValueError: /in/a.txt is UTF-16, convert it to UTF-8: iconv -f UTF-16 -t UTF-8
    """
    for mark, name in _MARKS.items():
        if start.startswith(mark):
            raise ValueError(f"{path} is {name}, convert it to UTF-8: iconv -f {name} -t UTF-8")


def check_stored_encoding(path: str) -> None:
    """`check_encoding` of a local file that is not compressed; others are seen when read."""
    if not is_remote(path):
        with open_raw(path) as file:
            check_encoding(path, file.read(_LONGEST_MARK))
