"""Corpora of several days, the daily runs of deploy/, their script and settings, and Airflow.

Airflow is a program here, never imported: its environment and that of the pipeline stay apart.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.support.command import ROOT, embed, ran, record, write_json

SCRIPT = ROOT / "deploy" / "cron" / "embed_daily.sh"
DAYS = ("2024-02-28", "2024-02-29", "2024-03-01")


def write_day(folder: Path, day: str, texts: dict[str, str]) -> Path:
    path = folder / day / "part.jsonl"
    path.parent.mkdir(parents=True)
    return write(path, texts)


def write_settings(folder: Path, model: str, *more: str, **changes: str) -> Path:
    """A file of settings for what lies in `folder`; `more` are flags of embed."""
    values = {
        "INPUT": f"{folder}/texts/{{day}}",
        "OUTPUT": f"{folder}/vectors",
        "STATE": f"{folder}/state",
        "PYTHON": sys.executable,
    } | changes
    lines = [f"{name}='{value}'" for name, value in values.items()]
    flags = " ".join(f"'{flag}'" for flag in (f"--model={model}", *more))
    path = folder / "settings.sh"
    path.write_text("\n".join([*lines, f"FLAGS=({flags})"]) + "\n", encoding="utf-8")
    return path


def start_daily(settings: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    """The daily run as a process of its own, in a session of its own as cron starts it."""
    return subprocess.Popen(
        [SCRIPT, settings, *words],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"} | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )


def daily(settings: Path, *words: str) -> tuple[int, str]:
    """Runs it to its end; returns its exit code and what it said, not the log."""
    process = start_daily(settings, *words)
    out, errors = process.communicate(timeout=300)
    return process.returncode, out + errors


def log(folder: Path) -> str:
    paths = sorted((folder / "state" / "logs").glob("*.log"))
    return "".join(path.read_text("utf-8") for path in paths)


def state_of(output: Path) -> dict[Path, tuple[int, bytes]]:
    """Time and bytes of everything in a folder."""
    paths = (path for path in output.rglob("*") if path.is_file())
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}


THREE_DAYS = {
    "monday": {1: "the first of all", 2: "two", 3: "three"},
    "tuesday": {1: "the first, written again", 2: "two", 3: "three"},
    "wednesday": {1: "the first of all", 2: "two", 3: "three, written again", 4: "four"},
}
WORDS = ["red", "river", "bank", "of", "seven", "stars", "money", "vault"]


def write(path, texts, ids=None):
    """JSON lines of texts by id, in the order given."""
    return write_json(path, *({"id": each, "text": text} for each, text in ids or texts.items()))


def some_texts(count):
    chosen = np.random.default_rng(0).choice(WORDS, (count, 5))
    return {f"d{n}": " ".join(row) for n, row in enumerate(chosen)}


def counts(output):
    found = record(output)["counts"]
    return tuple(found[name] for name in ("records", "embedded", "skipped", "rejected"))


def two_days(tmp_path):
    """Two states of a corpus: unchanged, changed, deleted and new documents, and a blank one."""
    first = some_texts(60)
    second = dict(first) | {"d3": "seven new stars", "d40": "", "new1": "money", "new2": "vault"}
    del second["d7"], second["d59"]
    return write(tmp_path / "day1.jsonl", first), write(tmp_path / "day2.jsonl", second)


def embed_days(folder, model, days=THREE_DAYS, **flags):
    """Writes the inputs of days, and in `out` an output a day, each of what the days before lack.

    Returns the folder of the outputs.
    """
    outputs = folder / "out"
    for day, texts in days.items():
        source = write(folder / f"{day}.jsonl", texts)
        earlier = {"skip_existing": outputs} if outputs.exists() else {}
        assert embed(outputs / day, model, source, **flags, **earlier) == 0
    return outputs


DATAFLOW = ROOT / "deploy" / "dataflow"
EXAMPLE = (DATAFLOW / "variables.env.example").read_text("utf-8")


def printed(folder, *replacements, do="submit", more=("--print",), **env):
    """What `make dataflow PRINT=1` does with a file of variables: exit code, commands, errors."""
    text = EXAMPLE.replace("my-project", "acme").replace("my-bucket", "acme-texts")
    for old, new in replacements:
        assert f"\n{old}" in text
        text = text.replace(f"\n{old}", f"\n{new}")
    (folder / "variables.env").write_text(text)
    made = ran([str(DATAFLOW / "dataflow.sh"), do, str(folder / "variables.env"), *more], **env)
    return made.returncode, [shlex.split(line) for line in made.stdout.splitlines()], made.stderr


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
