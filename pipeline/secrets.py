"""Removes passwords, keys and tokens from text that is shown or stored."""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

HIDDEN = "***"

_PLAIN_NAME = (
    r"(?:(?!credentials?(?![\w.-]))[\w.-]*(?:password|passwd|passphrase|secret"
    r"|private[_-]?key|api[_-]?key|access[_-]?key|account[_-]?key|signature|credentials?)[\w.-]*"
    r"|[\w.-]*[_-](?:token|key|pwd|sig))"
)
_SECRET_NAME = rf"(?:{_PLAIN_NAME}|credentials?|token|key|pwd|sig)"
# Names of keys and paths of credentials are not secrets.
_NO_SECRET = re.compile(
    r"(?i).*(kms[_-]?key|(key|credentials?)[_-]?(name|ring|file|path)|secret[_-]?name).*"
)
_SECRET_FLAG = re.compile(rf"(?i)-*{_SECRET_NAME}")
_PATTERNS = (
    # https://user:password@host
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^\s/?#@'\"]+@"), rf"\1{HIDDEN}@"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[\w+/=.~-]{8,}"), rf"\1 {HIDDEN}"),
    (re.compile(r"\bya29\.[\w.-]+"), HIDDEN),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END[^-]*-----|$)", re.S), HIDDEN),
)
# In a signed address (?X-Goog-Signature=…), a connection string (AccountKey=…), a header, or JSON
# in a message ("client_secret": "…"). In a sentence, "key: …" or "credentials: …" may be harmless,
# and "/key=5/" in a path is a partition.
_ASSIGNED = re.compile(
    rf"(?i)(?<![\w./-])(-*{_PLAIN_NAME}(?=['\"]?\s*[=:])|-*{_SECRET_NAME}(?==|['\"]\s*:))"
    r"(['\"]?\s*[=:]\s*['\"]?)([^\s&;,'\"}\]]+)"
)


def hide_secrets(text: str) -> str:
    """A text with its secrets replaced by `***`.

    >>> hide_secrets("https://me:pass@host/a?X-Goog-Signature=ab12&x=1")
    'https://***@host/a?X-Goog-Signature=***&x=1'
    >>> hide_secrets("--kms_key=projects/p/keys/k --db_password=hunter2")
    '--kms_key=projects/p/keys/k --db_password=***'
    """
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return _ASSIGNED.sub(_hidden_value, text)


def _hidden_value(found: re.Match[str]) -> str:
    name, between, _ = found.groups()
    return found[0] if _NO_SECRET.fullmatch(name) else f"{name}{between}{HIDDEN}"


def is_secret_name(name: str) -> bool:
    """Whether a flag, or a key of JSON, of this name holds a secret.

    >>> [is_secret_name(n) for n in ("--s3_session_token", "--dataflow_kms_key", "--batch_tokens")]
    [True, False, False]
    """
    return bool(_SECRET_FLAG.fullmatch(name)) and not _NO_SECRET.fullmatch(name)


def hide_in_flags(arguments: Sequence[str]) -> list[str]:
    """A command line with its secrets replaced: `--name=value` and `--name value` alike.

    >>> hide_in_flags(["--s3_secret_access_key", "abc", "--region=us"])
    ['--s3_secret_access_key', '***', '--region=us']
    """
    shown: list[str] = []
    secret = False
    for argument in arguments:
        name, given, value = argument.partition("=")
        if secret and not argument.startswith("--"):
            shown.append(HIDDEN)
        elif given and name.startswith("-"):
            shown.append(f"{name}={HIDDEN if is_secret_name(name) else hide_in_value(value)}")
        else:
            shown.append(hide_in_value(argument))
        secret = not given and argument.startswith("-") and is_secret_name(name)
    return shown


def hide_in_value(value: str) -> str:
    """A flag's value without secrets; in JSON, such as --environment_config, without any `env`.

    >>> hide_in_value('{"command": "boot.sh", "env": {"HOME": "/h"}, "token": "t"}')
    '{"command": "boot.sh", "env": {"HOME": "***"}, "token": "***"}'
    """
    if value.lstrip().startswith(("{", "[")):
        try:
            return json.dumps(hide_in(json.loads(value)), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    return hide_secrets(value)


def hide_in(value: Any, name: str = "") -> Any:
    """JSON-able values with their secrets replaced."""
    if isinstance(value, Mapping):
        if name.lower() in ("env", "environment"):
            return dict.fromkeys(value, HIDDEN)
        return {key: hide_in(each, str(key)) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [hide_in(each, name) for each in value]
    if value is None or isinstance(value, (bool, float)):
        return value
    if is_secret_name(name):
        return HIDDEN
    return hide_secrets(value) if isinstance(value, str) else value


class SecretFilter(logging.Filter):
    """Removes secrets from log lines, whoever wrote them."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Keeps every line, without its secrets."""
        shown = record.getMessage()
        hidden = hide_secrets(shown)
        if hidden != shown:
            record.msg, record.args = hidden, None
        if record.exc_info and record.exc_info[0] is not None:
            record.exc_text = hide_secrets(logging.Formatter().formatException(record.exc_info))
        return True
