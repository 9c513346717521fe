"""The fixture by which tests of the command line run `embed`."""

import gzip
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from bert_embed.pipeline.cli import main
from tests.support.command import as_flags, embed
from tests.support.servers.bigquery import BigQueryServer

_NUMBERS = itertools.count()
# A path, several, or what files hold by their names.
Source = Path | str | Sequence[Path | str] | Mapping[str, str | bytes | list[Any]]


class Runs:
    """Runs `embed` of the tiny model in the folder of a test.

    Attributes:
        out: What the last run wrote to stdout.
        err: What it wrote to stderr.
    """

    def __init__(self, folder: Path, model: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder, self._model, self._capsys = folder, model, capsys
        self.out = self.err = ""

    @property
    def said(self) -> str:
        """What the last run wrote, with a blank for each end of a line."""
        return (self.out + self.err).replace("\n", " ")

    def __call__(
        self, source: Source = (), to: str = "out", code: int = 0, model: Any = None, **flags: Any
    ) -> Any:
        """Runs it; returns the place of its output: below the test's folder, or in a store."""
        self._capsys.readouterr()
        output = to if str(to).startswith("gs://") else self._folder / to
        done = embed(output, str(model or self._model), *self.written(source), **flags)
        self.out, self.err = self._capsys.readouterr()
        assert done == code, self.out + self.err
        assert code == 1 or "Traceback" not in self.err
        return output

    def refused(self, source: Source, message: str, to: str = "out", **flags: Any) -> None:
        """Runs what is refused before work starts: in one sentence, and nothing is written."""
        kept = sorted((self._folder / to).rglob("*"))
        self(source, to, code=2, **flags)
        (line,) = [line for line in self.err.splitlines() if line.startswith("error: ")]
        assert message in line
        assert sorted((self._folder / to).rglob("*")) == kept

    def written(self, source: Source) -> list[Path | str]:
        """Writes what is to be read; returns the files, or the folders that they are in."""
        if isinstance(source, Path | str):
            return [source]
        if not isinstance(source, Mapping):
            return list(source)
        for name, content in source.items():
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, list):
                content = "".join(f"{json.dumps(each)}\n" for each in content).encode()
            elif isinstance(content, str):
                content = content.encode()
                content = gzip.compress(content) if name.endswith(".gz") else content
            if not path.exists() or path.read_bytes() != content:  # its time is that of the run
                path.write_bytes(content)
        return [self._folder / name for name in dict.fromkeys(n.split("/")[0] for n in source)]


@pytest.fixture
def run(tmp_path: Path, tiny_bundle: str, capsys: pytest.CaptureFixture[str]) -> Runs:
    """Runs `embed`: `run({"in.txt": "the bank\\n"}, dim=3)` returns the output's folder."""
    return Runs(tmp_path, tiny_bundle, capsys)


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs any command here, which ends with a `code`; returns what it printed.

    `command("search", out, "a bank", k=3, json=True)`: words, and then flags.
    """

    def ran(*words: Any, code: int = 0, **flags: Any) -> Any:
        capsys.readouterr()
        found = main([*map(str, words), *as_flags(flags)])
        said = capsys.readouterr()
        assert found == code, said.err
        return said

    return ran


@pytest.fixture
def export(command):
    """Exports, and returns what is said; `refused` is what the one sentence must hold instead."""

    def exported(source, dest, to="npy", refused=None, **flags):
        said = command("export", source, dest, to=to, code=0 if refused is None else 2, **flags)
        if refused is not None:
            assert refused in said.err
            assert said.err.count("\n") == 1
        return said.out

    return exported


@pytest.fixture
def dataset(bigquery: BigQueryServer) -> str:
    """The name of a data set of the test's own."""
    name = f"of_test_{next(_NUMBERS)}"
    bigquery.client.create_dataset(f"test-project.{name}")
    return name


@pytest.fixture
def load(run, dataset):
    """Embeds into the table `v` of the test's data set, unless another one is named."""

    def loaded(source, to="out", code=0, table=f"test-project:{dataset}.v", **flags):
        return run(source, to, code, output_format="bigquery", output_table=table, **flags)

    return loaded
