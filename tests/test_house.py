"""The house keeps its plan: imports go down only, rooms stay small, doors are documented."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("bert", "transforms", "pipeline")  # from the ground up
PRODUCT = sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))
TRACKED = subprocess.run(
    ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False
).stdout.split()


def tree(path):
    return ast.parse(path.read_text("utf-8"))


def name(path):
    return str(path.relative_to(ROOT))


def imported(path):
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)} has a relative import"
            yield node.module


@pytest.mark.parametrize("path", PRODUCT, ids=name)
def test_imports_go_down_only(path):
    floor = FLOORS.index(path.relative_to(ROOT).parts[0])
    tops = {module.split(".")[0] for module in imported(path)}
    assert not tops & set(FLOORS[floor + 1 :])
    assert "tests" not in tops
    if floor == 0:
        assert "apache_beam" not in tops
    if floor == 2:
        assert not tops & {"tensorflow", "tensorflow_text"}


@pytest.mark.parametrize("path", PRODUCT, ids=name)
def test_rooms_and_functions_stay_small(path):
    assert len(path.read_text("utf-8").splitlines()) <= 400
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 60, f"{node.name} is long"


@pytest.mark.parametrize("path", PRODUCT, ids=name)
def test_doors_are_documented(path):
    module = tree(path)
    if module.body:
        assert ast.get_docstring(module)
    for node in module.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            assert ast.get_docstring(node), node.name


@pytest.mark.parametrize("path", PRODUCT, ids=name)
def test_beam_can_read_the_types(path):
    """The __future__ import turns annotations into strings, which Beam takes for Any."""
    assert "annotations" not in {
        alias.name
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
        for alias in node.names
    }


def test_no_file_of_the_repository_is_over_long():
    long = {each for each in TRACKED if len((ROOT / each).read_text("utf-8").splitlines()) > 400}
    assert long == set()


@pytest.mark.parametrize("module", ["pipeline.cli", "pipeline.embed_job", "bert", "bert.bundle"])
def test_importing_loads_no_tensorflow(module):
    code = f"import sys, {module}; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_packages_are_installed_as_they_lie():
    """setup.py lists every package folder, or workers would miss a room."""
    setup = (ROOT / "setup.py").read_text("utf-8")
    for path in PRODUCT:
        package = ".".join(path.relative_to(ROOT).parts[:-1])
        assert f'"{package}"' in setup
