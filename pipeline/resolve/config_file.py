"""Reads the flags in a YAML file."""

from typing import Any

from bert_embed.pipeline.errors import UsageError

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
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        names = [key.value for key, _ in root.value] if isinstance(root, yaml.MappingNode) else []
        settings = (loader.construct_document(root) if root else None) or {}
    except UsageError:
        raise
    except (yaml.YAMLError, ValueError) as error:  # such as 2026-02-30
        raise UsageError(f"--config {path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(settings, dict) or "config" in settings:
        raise UsageError(expected)
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"--config {path} names {twice} twice; give several values as a list")
    return settings
