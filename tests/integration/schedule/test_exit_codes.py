"""The scripts of the daily schedule use the exit codes of the command line."""

import ast
import re

from bert_embed.pipeline.errors import ExitCode
from tests.support.command import ROOT

DEPLOY = ROOT / "deploy"


def test_the_script_has_the_codes_of_the_command_line():
    script = (DEPLOY / "cron" / "embed_daily.sh").read_text("utf-8")
    named = re.search(r"^readonly ((?:[A-Z_]+=\d+ ?)+)$", script, re.MULTILINE)[1]
    codes = dict(word.split("=") for word in named.split())
    assert len(codes) == 5
    assert codes == {name: str(ExitCode[name].value) for name in codes}


def test_airflow_explains_every_code():
    """Airflow runs in an environment of its own, so its file is read, not imported."""
    program = ast.parse((DEPLOY / "airflow" / "embed_dag.py").read_text("utf-8"))
    values = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in program.body
        if isinstance(node, ast.Assign) and node.targets[0].id in ("MEANINGS", "FINAL")
    }
    assert set(values["MEANINGS"]) == set(ExitCode) - {ExitCode.DONE}
    assert values["FINAL"] == (ExitCode.USAGE, ExitCode.TOO_MANY_REJECTED)
