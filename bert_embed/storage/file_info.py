"""Defines FileInfo, the facts of a file in a listing."""

from dataclasses import dataclass

from bert_embed.storage.errors import InputError


@dataclass(frozen=True, slots=True)
class FileInfo:
    """A file of a listing."""

    path: str  # absolute, or URL
    size: int  # bytes as stored (compressed bytes for a compressed file)
    modified: float  # seconds since 1970
    generation: int = 0  # of an object of Cloud Storage, new with each write; else 0
    etag: str = ""  # of an object of S3, another one for another content; else empty


def split_address(path: str) -> tuple[str, str]:
    """The bucket and the name of an address in a store; InputError if there is no bucket.

    >>> split_address("gs://bucket/a/b.txt")
    ('bucket', 'a/b.txt')
    """
    scheme, _, place = path.partition("://")
    bucket, _, name = place.partition("/")
    if not bucket:
        raise InputError(f"{path} must be {scheme}://BUCKET/NAME")
    return bucket, name
