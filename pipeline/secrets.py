"""Removes passwords, keys and tokens from what is shown or stored: by names, and in addresses.

Texts of people, such as paths, prompts and SQL, stay as they are.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

HIDDEN = "***"
_SECRET = re.compile(
    r"(?i)password|passwd|passphrase|secret|private[_-]?key|api[_-]?key|access[_-]?key"
    r"|account[_-]?key|signature|credentials?$|(?:^|[_-])(?:token|pwd|sig|key)$"
)
# Names of keys and paths of credentials are not secrets.
_NO_SECRET = re.compile(
    r"(?i)kms[_-]?key|(?:key|credentials?)[_-]?(?:name|ring|file|path)|secret[_-]?name"
)
_USER = re.compile(r"://[^\s/?#@'\"]++@")  # https://user:password@host
_PARAMETER = re.compile(r"(?<=[?&])([\w-]++)=[^\s&;,'\"}\]]++")  # ?X-Goog-Signature=…


def hide_secrets(text: str) -> str:
    """A text with the secrets in its addresses replaced by `***`, in linear time."""
    return _PARAMETER.sub(
        lambda pair: f"{pair[1]}={HIDDEN}" if is_secret_name(pair[1]) else pair[0],
        _USER.sub(f"://{HIDDEN}@", text),
    )


def is_secret_name(name: str) -> bool:
    """Whether a flag, or a key of JSON, of this name holds a secret.

    >>> [is_secret_name(n) for n in ("--s3_session_token", "--dataflow_kms_key", "--batch_tokens")]
    [True, False, False]
    """
    return _SECRET.search(name.lstrip("-")) is not None and _NO_SECRET.search(name) is None


def hide_in_flags(arguments: Sequence[str]) -> list[str]:
    """A command line with its secrets replaced: `--name=value` and `--name value` alike.

    Of JSON, such as --environment_config, no `env` is shown.

    >>> hide_in_flags(["--s3_secret_access_key", "abc", "--region=us", '--x={"env": {"A": "b"}}'])
    ['--s3_secret_access_key', '***', '--region=us', '--x={"env": {"A": "***"}}']
    """
    shown: list[str] = []
    name = ""
    for argument in arguments:
        if argument.startswith("--"):
            name, equals, value = argument.partition("=")
            shown.append(f"{name}={_hide_in_word(name, value)}" if equals else argument)
            name = "" if equals else name
        else:
            shown.append(_hide_in_word(name, argument))
            name = ""
    return shown


def _hide_in_word(name: str, value: str) -> str:
    if value.lstrip().startswith(("{", "[")):
        try:
            return json.dumps(hide_in(json.loads(value), name), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    return str(hide_in(value, name))


def hide_in(value: Any, name: str = "") -> Any:
    """JSON-able values with their secrets replaced."""
    if isinstance(value, Mapping):
        if name.lower() in ("env", "environment"):
            return dict.fromkeys(value, HIDDEN)
        return {key: hide_in(inner, str(key)) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [hide_in(inner, name) for inner in value]
    if value is None or isinstance(value, (bool, float)):
        return value
    if is_secret_name(name):
        return HIDDEN
    return hide_secrets(value) if isinstance(value, str) else value


class SecretFilter(logging.Filter):
    """Removes the secrets in addresses from log lines, whoever wrote them."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keeps every line, without its secrets."""
        line = record.getMessage()
        if (hidden := hide_secrets(line)) != line:
            record.msg, record.args = hidden, None
        if record.exc_info and record.exc_info[0] is not None:
            record.exc_text = hide_secrets(logging.Formatter().formatException(record.exc_info))
        return True
