"""Runs quick tests where much is unlike a developer's machine: `make test-elsewhere`.

All at once, as each alone passes if all together do: a folder whose name has blanks, another user
without a home of its own, one core, the C locale, and the files of an NVIDIA driver without a GPU.
The tests are those of commands, and of what meets the machine: files, caches, engines.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bert_embed.bundle.cache import cache_folder
from tests.support.command import ROOT

_NOBODY = 65534
_TESTS = (
    "tests/cli",
    "tests/unit/backends",
    "tests/unit/base",
    "tests/unit/bundle",
    "tests/unit/storage",
)
# Only this process and its children see the driver's file, which tells that there is a driver.
_DRIVER = (
    "mount -t tmpfs none /proc/driver && mkdir /proc/driver/nvidia && "
    'echo "NVRM version: NVIDIA UNIX x86_64 Kernel Module" > /proc/driver/nvidia/version && '
    'exec "$@"'
)


def copy_tree(dest: Path) -> None:
    """Makes a clone with the files as they are here, those that git does not know yet as well."""
    subprocess.run(["git", "clone", "--quiet", ROOT, dest], check=True)
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    for name in map(os.fsdecode, dict.fromkeys(filter(None, names))):
        (dest / name).parent.mkdir(parents=True, exist_ok=True)
        (dest / name).unlink(missing_ok=True)
        if os.path.lexists(ROOT / name):  # not one that was removed here
            shutil.copy2(ROOT / name, dest / name, follow_symlinks=False)


def python_for(words: list[str]) -> str:
    """Returns an interpreter that may be started behind these words, ours if they let it be.

    Root's own may lie in a folder that others cannot enter.
    """
    names = [sys.executable, *(f"python3.{minor}" for minor in (13, 12, 11)), "python3"]
    folders = f"/usr/local/bin{os.pathsep}/usr/bin"
    asked = "import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))"
    for found in filter(None, (shutil.which(name, path=folders) for name in names)):
        # `env`, because setpriv itself starts a program with the rights of before.
        asks = [*words, "env", found, "-c", asked]
        if not subprocess.run(asks, capture_output=True, check=False).returncode:
            return found
    sys.exit("no Python 3.11, 3.12 or 3.13 in /usr/bin or /usr/local/bin, which others can start")


def main() -> int:
    """Returns pytest's exit code."""
    root = os.geteuid() == 0
    as_nobody = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
    with tempfile.TemporaryDirectory() as made:
        tree, home = Path(made, "a folder with blanks"), Path(made, "home")
        copy_tree(tree)
        # Others than root are another user already.
        python = python_for(as_nobody if root else [])
        make = ["make", "-C", tree, ".venv/dev", f"PYTHON={python}"]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        (home / "tmp").mkdir(parents=True)
        shutil.copytree(cache_folder(), home / "cache")
        if root:
            os.chmod(made, 0o755)
            subprocess.run(["chown", "-R", f"{_NOBODY}:{_NOBODY}", tree, home], check=True)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "TMPDIR": str(home / "tmp"),
            "BERT_EMBED_CACHE": str(home / "cache"),
            "LC_ALL": "C",
        }
        one_core = ["taskset", "--cpu-list", str(min(os.sched_getaffinity(0)))]
        driver = ["unshare", "--mount", *([] if root else ["--map-root-user"])]
        tests = ["-m", "pytest", "-q", "-m", "not slow"]
        user = as_nobody if root else []
        seen = [*driver, "sh", "-c", _DRIVER, "sh", *user, *one_core, ".venv/bin/python"]
        done = subprocess.run(
            [*seen, *tests, *_TESTS, *sys.argv[1:]], cwd=tree, env=environment, check=False
        )
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
