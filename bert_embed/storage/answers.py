"""Says which errors of the clients of stores, and of BigQuery, pass."""

import errno
import json
import socket
import ssl
from collections.abc import Iterator
from typing import Any

# Of this machine: its disks, and its limits of files and memory.
_HERE = (errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE)
# Of a connection: what clients leave as Python raises it, that of DNS and TLS included.
LOST = (ConnectionError, TimeoutError, socket.gaierror, ssl.SSLError)
_NO_WAY = (
    *(errno.EADDRNOTAVAIL, errno.EAGAIN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EINTR),
    *(errno.ENETDOWN, errno.ENETUNREACH),
)
_PASSING = (408, 409, 425, 429)
_NOT_KNOWN, _OTHER_VERSION = 501, 505  # what the server does not do, however often it is asked


def passes(status: int | None) -> bool:
    """Whether a request may be answered later that is answered with this status now.

    >>> passes(503), passes(520), passes(409), passes(404), passes(None)
    (True, True, True, False, False)
    """
    if status is None or status < 500:
        return status in _PASSING
    return status not in (_NOT_KNOWN, _OTHER_VERSION)


def is_lost(error: BaseException) -> bool:
    """Whether an error of Python is one of a connection, or of this machine, that may pass."""
    return isinstance(error, LOST) or getattr(error, "errno", None) in (*_HERE, *_NO_WAY)


def error_here(error: BaseException | None) -> OSError | None:
    """The error of this machine behind one of a client, such as too many open files."""
    return next((one for one in _causes(error) if getattr(one, "errno", None) in _HERE), None)


def _causes(error: BaseException | None) -> Iterator[Any]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_passing_login(error: BaseException) -> bool:
    """Whether Google's credentials could not be renewed at this moment, by an error of its library.

    That of a metadata server that does not answer is wrapped, and no longer says that it passes;
    that of an account to act as has the answer alone.
    """
    from google.auth.exceptions import GoogleAuthError, RefreshError, TransportError

    if not isinstance(error, GoogleAuthError):
        return False
    if error.retryable or isinstance(error, TransportError):
        return True
    if not isinstance(error, RefreshError):
        return False
    return isinstance(error.__cause__, TransportError) or any(
        passes(_code_in(said)) for said in error.args[1:]
    )


def _code_in(answer: object) -> int | None:
    """The status that the body of an answer of Google's services names."""
    try:
        code = json.loads(str(answer))["error"]["code"]
    except (LookupError, TypeError, ValueError):
        return None
    return code if isinstance(code, int) else None
