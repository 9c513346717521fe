"""vocab.txt: a model folder's vocabulary in, its entries out."""

from pathlib import Path

from bert.config import BertConfig


def read_vocabulary(path: Path, config: BertConfig, said_by: str) -> list[str]:
    """Reads the entries, in the order of their ids.

    Args:
        path: The file.
        config: Says how many there must be.
        said_by: The configuration's file, for the message.

    Raises:
        ValueError: The file cannot be read, or has another number of entries.
    """
    vocabulary = read_entries(path)
    if len(vocabulary) != config.vocab_size:
        raise ValueError(
            f"{path}: must have {config.vocab_size} entries as {said_by} says, "
            f"has {len(vocabulary)}"
        )
    return vocabulary


def read_entries(path: Path) -> list[str]:
    """Reads the entries, however many there are; ValueError if the file cannot be read."""
    try:
        # Not by lines of text mode: an entry may itself be one of Unicode's line separators.
        lines = path.read_bytes().decode("utf-8").split("\n")
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: is not UTF-8") from error
    vocabulary = [line.removesuffix("\r") for line in lines]
    if vocabulary[-1] == "":
        vocabulary.pop()
    return vocabulary
