"""deploy/dataflow: its files, and what its script prints."""

import os
import shlex
import subprocess

from tests.support.command import ROOT

DATAFLOW = ROOT / "deploy" / "dataflow"
EXAMPLE = (DATAFLOW / "variables.env.example").read_text("utf-8")


def printed(folder, *replacements, do="submit", more=("--print",), **env):
    """What `make dataflow PRINT=1` does with a file of variables: exit code, commands, errors."""
    text = EXAMPLE.replace("my-project", "acme").replace("my-bucket", "acme-texts")
    for old, new in replacements:
        assert f"\n{old}" in text
        text = text.replace(f"\n{old}", f"\n{new}")
    (folder / "variables.env").write_text(text)
    made = subprocess.run(
        [str(DATAFLOW / "dataflow.sh"), do, str(folder / "variables.env"), *more],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | env,
    )
    return made.returncode, [shlex.split(line) for line in made.stdout.splitlines()], made.stderr
