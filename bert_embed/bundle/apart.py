"""Calls functions in a process of their own, so that the caller's never imports TensorFlow."""

import logging
import os
import pickle
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from bert_embed.storage.errors import InputError

_REFUSED = 2  # exit code: the function raised an InputError, which is pickled on stdout
_LINES = 20


def package_variables() -> dict[str, str]:
    """Returns the variables with which another Python finds these packages, in any folder."""
    home = str(Path(__file__).absolute().parents[2])
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    # The current folder may hold a package of the same name, such as a clone of Google's bert.
    return {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def call_apart(what: str, function: str, *arguments: Any, **options: Any) -> None:
    """Calls a function of ours in a new process, and waits for it; logs its warnings here."""
    # TensorFlow prints notes at every start, so stderr is shown only if the process fails.
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=pickle.dumps((function, arguments, options)),
        env={**os.environ, **package_variables(), "CUDA_VISIBLE_DEVICES": "-1"},
        capture_output=True,
        check=False,
    )
    if done.returncode == _REFUSED and done.stdout:
        raise pickle.loads(done.stdout)
    for name, message in pickle.loads(done.stdout) if done.stdout else ():
        logging.getLogger(name).warning("%s", message)
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()[-_LINES:]
        raise RuntimeError("\n".join([f"{what} ended with code {done.returncode}:", *lines]))


def import_apart(source: str | Path, dest: Path, **options: Any) -> None:
    """Calls `bert_embed.importers.import_model` in a new process; raises as `call_apart`."""
    call_apart(
        f"{source}: the import",
        "bert_embed.importers:import_model",
        str(source),
        str(dest),
        **options,
    )


class _Warnings(logging.Handler):
    """Keeps what our packages warn of, by the names of their loggers."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.kept: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps the text, which pickles whatever its arguments are."""
        self.kept.append((record.name, record.getMessage()))


def _main() -> int:
    answer, warned = os.dup(1), _Warnings()
    logging.getLogger("bert_embed").addHandler(warned)
    os.dup2(2, 1)  # what libraries print must not mix with the answer
    function, arguments, options = pickle.load(sys.stdin.buffer)
    try:
        pkgutil.resolve_name(function)(*arguments, **options)
    except (InputError, OSError) as error:
        refusal = error if isinstance(error, InputError) else InputError(str(error))
        with open(answer, "wb") as file:
            pickle.dump(refusal, file)
        return _REFUSED
    with open(answer, "wb") as file:
        pickle.dump(warned.kept, file)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
