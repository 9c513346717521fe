"""Reads the flags in a YAML file."""

from typing import Any

from pipeline.errors import UsageError

MOST_CONFIG = 1 << 20  # characters of a --config file


def parse_config(path: str, text: str) -> dict[str, Any]:
    """The flags in a YAML file; each has one value, or a list of them.

    Raises:
        UsageError: It is not such a file, is too large, or holds references: a few lines of them
            can stand for any number of values.
    """
    import yaml

    expected = f"--config {path} must hold flags, one `name: value` a line"
    if len(text) > MOST_CONFIG:
        raise UsageError(f"{expected}, and not more than {MOST_CONFIG:,} characters")
    depth = 0
    try:
        for event in yaml.parse(text, yaml.SafeLoader):
            if isinstance(event, yaml.AliasEvent):
                raise UsageError(f"{expected}, without references to each other (*{event.anchor})")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > 2:
                raise UsageError(f"{expected}, the value a list at most")
        settings = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise UsageError(f"--config {path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(settings, dict) or "config" in settings:
        raise UsageError(expected)
    return settings
