"""Airflow as a program, never imported: its environment and that of the pipeline stay apart."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.daily import DAYS, ROOT

DAGS = ROOT / "deploy" / "airflow"
BIN = ROOT / "build" / "airflow-venv" / "bin"
# One process for several commands: its imports take most of a command's time.
_COMMANDS = """
import sys
from airflow.__main__ import main
for words in {commands!r}:
    print("$ airflow", *words, flush=True)
    sys.argv = ["airflow", *words]
    main()
"""


@dataclass(frozen=True)
class Airflow:
    """An Airflow with a database of its own.

    Attributes:
        home: Its folder.
        dags: The folder that it reads.
    """

    home: Path
    dags: Path = DAGS

    def environment(self) -> dict[str, str]:
        """What its programs must have set."""
        return {
            "AIRFLOW_HOME": str(self.home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.dags),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home}/airflow.db",
            "AIRFLOW_VAR_BERT_EMBED_HOME": str(ROOT),
            "BERT_EMBED_FIRST_DAY": DAYS[0],
        }

    def python(self, program: str, **env: str) -> tuple[int, str]:
        """Runs a program in its environment; returns the exit code and all it said."""
        done = subprocess.run(
            # Not with the clone on the path, whose packages an installation does not have.
            [BIN / "python", "-P", "-c", program],
            env={**os.environ, **self.environment(), **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout

    def run(self, *commands: Sequence[str], **env: str) -> tuple[int, str]:
        """Runs commands of Airflow up to the first that fails; likewise."""
        return self.python(_COMMANDS.format(commands=commands), **env)

    def migrated(self) -> "Airflow":
        """Makes the database."""
        code, said = self.run(("db", "migrate"))
        assert code == 0, said
        return self

    def copied(self, home: Path, *files: str) -> "Airflow":
        """Another one, with the database as it is, which reads these of our DAGs or all."""
        shutil.copytree(self.home, home)
        if not files:
            return Airflow(home)
        dags = home / "dags"
        dags.mkdir()
        for file in files:
            shutil.copy(DAGS / file, dags)
        return Airflow(home, dags)


def fields_of(said: str) -> list[dict[str, str]]:
    """The fields of a task for each `tasks render` of what Airflow said."""
    pattern = re.compile(r"^# property: (\w+)\n# -+\n(.*)", re.MULTILINE)
    return [dict(pattern.findall(each)) for each in said.split("$ airflow tasks render ")[1:]]
