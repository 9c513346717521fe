"""The reasons for which a test may be skipped where everything should run: `--listed-skips`.

A test that is skipped for a reason nobody wrote down here fails the run: it may have been skipped
for months because a tool went missing.
"""

import re
from collections.abc import Iterable

# Each names what the machine lacks and no target of the Makefile brings, or has and tests do
# without.
LISTED = (
    r"needs root, for unshare",
    r"no Chromium here: apt-get install chromium",  # 400 MB, from a host of Playwright's
    r"systemd is not installed",
    r"uv is not installed",
    r"there is no Python 3\.\d+(\.\d+)? here",
    r"no PostgreSQL with pgvector",
    r"there is no Java \d+ or newer here",
    r"there are no jars of \w+: make readers, with Maven",
    r"glibc's allocator",
    r"this processor has no products in bfloat16",
    r"OpenVINO is for x86",
    r"this machine has one( that it sees)?",  # a GPU
)


def unlisted(reasons: Iterable[str]) -> list[str]:
    """Returns the reasons that `LISTED` does not have, each once, in their order."""
    found = (reason.removeprefix("Skipped: ") for reason in reasons)
    return [
        reason
        for reason in dict.fromkeys(found)
        if not any(re.fullmatch(pattern, reason) for pattern in LISTED)
    ]
