"""Removes passwords, keys and tokens from text that is shown or stored."""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

HIDDEN = "***"

_QUERY = ("?", "&", ";")  # before the names in an address or a connection string
# What a name with one of these in it holds is a secret.
_OPEN = re.compile(
    r"(?i)password|passwd|passphrase|secret|private[_-]?key|api[_-]?key|access[_-]?key"
    r"|account[_-]?key|signature|credential"
)
_TOKEN = re.compile(r"(?i)(?:^|[_-])(?:token|pwd|sig)$")
_KEY = re.compile(r"(?i)(?:^|[_-])key$")
_CREDENTIALS = ("credential", "credentials")
# Names of keys and paths of credentials are not secrets.
_NO_SECRET = re.compile(
    r"(?i)kms[_-]?key|(?:key|credentials?)[_-]?(?:name|ring|file|path)|secret[_-]?name"
)
# What is a secret by its form, whatever stands before it. All patterns here take linear time: every
# log line passes them.
_PATTERNS = (
    # https://user:password@host
    (re.compile(r"://[^\s/?#@'\"]++@"), f"://{HIDDEN}@"),
    (
        re.compile(
            r"(?i)(authorization['\"]?\s*+[:=,]\s*+['\"]?(?:bearer|basic|digest|negotiate|token)"
            r"\s++)[^\s'\",;]++"
        ),
        rf"\1{HIDDEN}",
    ),
    # Of Google, any JSON Web Token, Hugging Face, GitHub
    (re.compile(r"\bya29\.[\w.-]+"), HIDDEN),
    (re.compile(r"(?<![\w-])eyJ[\w-]{8,}+\.[\w-]++\.[\w-]++"), HIDDEN),
    (re.compile(r"(?<!\w)AIza[\w-]{35}(?![\w-])"), HIDDEN),
    (re.compile(r"(?<!\w)(?:hf|gh[pousr])_[A-Za-z0-9]{30,}+"), HIDDEN),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END[^-]*-----|$)", re.S), HIDDEN),
)
# "/key=5/" in a path is a partition.
_ASSIGNED = re.compile(r"(?<![\w./-])([\w.-]++)(['\"]?\s*+[=:]\s*+['\"]?)")
_VALUE = re.compile(r"[^\s&;,'\"}\]]++")


def hide_secrets(text: str) -> str:
    """A text with its secrets replaced by `***`.

    >>> hide_secrets("https://me:pass@host/a?X-Goog-Signature=ab12&x=1")
    'https://***@host/a?X-Goog-Signature=***&x=1'
    >>> hide_secrets("--kms_key=projects/p/keys/k --db_password=hunter2")
    '--kms_key=projects/p/keys/k --db_password=***'
    """
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    shown, end = [], 0
    for name in _ASSIGNED.finditer(text):
        if name.start() >= end and _opens(
            name[1], name[2], text[max(name.start() - 1, 0) : name.start()]
        ):
            value = _VALUE.match(text, name.end())
            if value is not None:
                shown += [text[end : value.start()], HIDDEN]
                end = value.end()
    return "".join([*shown, text[end:]])


def _opens(name: str, between: str, before: str) -> bool:
    """Whether a value is a secret, by its name, what joins the two, and the character before.

    In a signed address (?X-Goog-Signature=…), a connection string (AccountKey=…), a header, or JSON
    in a message ("client_secret": "…"). In a sentence, "key: …" or "credentials: …" may be
    harmless, and in SQL "primary_key = …" is.
    """
    bare = name.lstrip("-")
    if _NO_SECRET.search(bare):
        return False
    if bare.lower() not in _CREDENTIALS and _OPEN.search(bare):
        return True
    if not between.startswith(("=", "'", '"')):
        return False
    if _KEY.search(bare):
        return name.startswith("--") or before in _QUERY
    return bare.lower() in _CREDENTIALS or _TOKEN.search(bare) is not None


def is_secret_name(name: str) -> bool:
    """Whether a flag, or a key of JSON, of this name holds a secret.

    >>> [is_secret_name(n) for n in ("--s3_session_token", "--dataflow_kms_key", "--batch_tokens")]
    [True, False, False]
    """
    bare = name.lstrip("-")
    found = any(each.search(bare) for each in (_OPEN, _TOKEN, _KEY))
    return found and _NO_SECRET.search(bare) is None


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
