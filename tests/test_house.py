"""Holds the code to its shape: one name on the import path, documented names, and the like."""

import ast
import re
import subprocess
import sys
import tarfile
import tomllib
from functools import cache
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
# `bert_embed/` holds links to the other two.
PRODUCT = sorted(
    path for top in ("bert_embed", "transforms", "pipeline") for path in (ROOT / top).rglob("*.py")
)
USERS = sorted(path for top in ("tests", "benchmarks") for path in (ROOT / top).rglob("*.py"))
OURS = ("bert_embed", "tests", "benchmarks")
PATCHING = ("setattr", "delattr", "getattr", "hasattr", "patch", "patch.object")
TRACKED = subprocess.run(
    ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False
).stdout.split()


@cache
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


# The folders of the repository, by whose names nothing may be imported.
FOLDERS = {"pipeline", "transforms", "storage", "bert"}


@pytest.mark.parametrize("path", [ROOT / path for path in TRACKED], ids=name)
def test_ours_are_imported_by_the_one_name(path):
    tops = {module.split(".")[0] for module in imported(path)}
    assert not tops & FOLDERS
    if path in PRODUCT:
        assert "tests" not in tops


def test_importing_storage_loads_no_beam():
    code = "import sys, bert_embed.storage.files; sys.exit('apache_beam' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


# The names of an output belong to these two files; elsewhere the same words name weights.
NAME_OWNERS = ("transforms/output_folder.py", "bert_embed/formats/output_files.py")
WEIGHTS = ("bert_embed/graph/", "bert_embed/importers/", "bert_embed/self_test.py")
OUTPUT_NAME = re.compile(
    r"(^|/)(part-|_state(/|$)|run\.json$|examples\.json$)"
    r"|^(embeddings|tokens|words|spans|windows|examples|rejected|removed)/"
)


def output_names(module):
    """Literals that are a name, pattern or path of an output, with their lines.

    Docstrings are no names, and neither are texts with a space, which people read.
    """
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(module)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and ast.get_docstring(node) is not None
    }
    inner = {
        id(part)
        for node in ast.walk(module)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(module):
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                getattr(part, "value", "") if isinstance(part, ast.Constant) else "{}"
                for part in node.values
            )
        elif isinstance(node, ast.Constant) and not {id(node)} & (docstrings | inner):
            text = node.value if isinstance(node.value, str) else ""
        if " " not in text and OUTPUT_NAME.search(text):
            yield node.lineno, text


def test_names_of_outputs_are_found_in_every_form():
    code = """
'''Writes run.json.'''
a = f"{folder}/run.json"
b = "_state", "embeddings/part-*", f"part-{block:07d}"
c = f"{output}/_state/working"
d = "examples.json"
raise ValueError(f"{folder} has no run.json")
"""
    found = [text for _, text in output_names(ast.parse(code))]
    wanted = ["_state", "embeddings/part-*", "examples.json", "part-{}", "{}/_state/working"]
    assert sorted(found) == [*wanted, "{}/run.json"]


@pytest.mark.parametrize("path", PRODUCT, ids=name)
def test_names_of_outputs_have_one_owner(path):
    if name(path) not in NAME_OWNERS and not name(path).startswith(WEIGHTS):
        assert list(output_names(tree(path))) == []


# These see no text: plans, names of streams, models, numbers of reports.
NO_TEXT = {"_Plan", "_Load", "_Batch", "_Compare"} | {
    *("open_streams", "_planned", "_empty_pieces", "_spec_of", "with_listing", "verdict"),
    *("_attach_skips", "_duplicates_fact", "_keyed", "_skipped"),
}
# These are steps of other people's pipelines, whose elements and errors are their own.
ADAPTERS = {"_Place", "_picked", "_placed", "_checked", "_split"}


def steps(path):
    """The DoFns of a file, with their `process`, and the functions that it maps."""
    nodes = list(ast.walk(tree(path)))
    functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "process":
                    yield node.name, method
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("beam.Map", "beam.FlatMap"):
            mapped = ast.unparse(node.args[0])
            if mapped in functions:
                yield mapped, functions[mapped]


@pytest.mark.parametrize("path", (ROOT / "transforms").rglob("*.py"), ids=name)
def test_steps_that_see_texts_redact_errors(path):
    for step, process in steps(path):
        if step not in NO_TEXT | ADAPTERS:
            assert "RedactErrors(" in ast.unparse(process), step


def test_one_step_reads_and_one_writes():
    """Finished parts, crash markers and reports are looked after in one place each."""
    users = {"crash_marker": set(), "write_report": set(), "is_complete": set()}
    for path in PRODUCT:
        for node in ast.walk(tree(path)):
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if (last := called.rpartition(".")[2]) in users:
                users[last].add(name(path))
    assert users == {
        "crash_marker": {"transforms/read/steps.py"},
        "write_report": {"transforms/write/writer.py"},
        "is_complete": {"transforms/read/steps.py"},
    }


@pytest.mark.parametrize("path", PRODUCT, ids=name)
def test_public_names_are_documented(path):
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


@pytest.mark.parametrize("path", (ROOT / "pipeline").rglob("*.py"), ids=name)
def test_all_that_people_read_is_written_by_the_console(path):
    """It shows control characters; who writes past it lets ids move the cursor."""
    if path.name in ("console.py", "__main__.py"):
        return
    calls = [ast.unparse(node.func) for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
    past = ("print", "sys.stdout.write", "sys.stderr.write", "traceback.print_exc")
    assert not set(calls) & set(past)
    assert not any(call.endswith((".print_help", ".print_usage")) for call in calls)


def private_names(module):
    """Private names that a file takes from elsewhere, with their lines.

    `self._x` and `cls._x` are a class's own; `_asdict` and `_replace` are public, of named tuples.
    """

    def is_private(text):
        last = text.rpartition(".")[2]
        return last.startswith("_") and not last.endswith("__") and last.isidentifier()

    for node in ast.walk(module):
        if isinstance(node, ast.Attribute):
            own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if is_private(node.attr) and not own and node.attr not in ("_asdict", "_replace"):
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in OURS:
            yield from ((node.lineno, each.name) for each in node.names if is_private(each.name))
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(PATCHING):
            texts = (each.value for each in node.args if isinstance(each, ast.Constant))
            yield from ((node.lineno, text) for text in texts if is_private(str(text)))


def test_private_names_are_found_in_every_form():
    code = """
from bert_embed.engines.choose import _a
from jaxlib import _jax
module._b = module.thing._c
monkeypatch.setattr(module, "_d")
monkeypatch.setattr("module._e", 3)
getattr(module, "_f")
super()._g()
self._own, cls._own, row._asdict(), row._replace(), module.__name__, module.public
"""
    found = {name for _, name in private_names(ast.parse(code))}
    assert found == {"_a", "_b", "_c", "_d", "module._e", "_f", "_g"}


@pytest.mark.parametrize("path", USERS, ids=name)
def test_tests_and_benchmarks_use_public_names_only(path):
    assert list(private_names(tree(path))) == []


@pytest.mark.parametrize(
    "module", ["bert_embed", "bert_embed.bundle.bundle", "bert_embed.pipeline.graph"]
)
def test_importing_loads_no_tensorflow(module):
    code = f"import sys, {module}; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def test_a_package_of_the_sources_has_every_file(tmp_path):
    """What Beam's --setup_file gives to workers."""
    command = [sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", str(tmp_path)]
    subprocess.run([*command, "egg_info", "--egg-base", str(tmp_path)], cwd=ROOT, check=True)
    with tarfile.open(*tmp_path.glob("bert_embed-*.tar.gz")) as archive:
        packed = {member.partition("/")[2] for member in archive.getnames()}
    assert {*map(packed_name, PRODUCT), "src/bert_embed/py.typed"} <= packed
    assert {"setup.py", "pyproject.toml", "LICENSE"} <= packed
    assert not [each for each in packed if each.startswith(("benchmarks", "examples"))]


def packed_name(path):
    """A package of the sources has files where the links of the repository lead."""
    home = "src" if name(path).startswith("bert_embed/") else "src/bert_embed"
    return f"{home}/{name(path)}"


def pins(path):
    found = re.findall(r"^([\w.-]+)(?:\[\w+\])?==([^\s;]+)", path.read_text("utf-8"), re.MULTILINE)
    return {(canonicalize_name(package), version) for package, version in found}


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
LOCK = (ROOT / "uv.lock").read_text("utf-8")


def exported(*flags):
    """The lock's packages of extras or a group, with their hashes."""
    words = ["export", "--frozen", "--quiet", "--no-emit-project", "--no-annotate", *flags]
    done = subprocess.run(
        [sys.executable, "-m", "uv", *words], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_pins_and_the_lock_are_those_of_the_ranges(tmp_path):
    """Otherwise `make lock` was forgotten."""
    extras = PROJECT["project"]["optional-dependencies"]
    locked = {
        (canonicalize_name(each["name"]), each.get("version"))
        for each in tomllib.loads(LOCK)["package"]
    }
    groups = [each for group in PROJECT["dependency-groups"].values() for each in group]
    ranges = [*PROJECT["project"]["dependencies"], *chain.from_iterable(extras.values()), *groups]
    for each in map(Requirement, ranges):
        needed = canonicalize_name(each.name)
        versions = [version for package, version in locked if package == needed and version]
        assert needed == "bert-embed" or any(map(each.specifier.contains, versions)), each
    (tmp_path / "runtime.txt").write_text(exported("--extra", "gcp", "--extra", "tensorflow"))
    (tmp_path / "build.txt").write_text(exported("--only-group", "build"))
    assert pins(tmp_path / "runtime.txt") == pins(ROOT / "requirements.txt")
    assert pins(tmp_path / "build.txt") == pins(ROOT / "locks" / "build.txt")


@pytest.mark.parametrize("group", ["", *PROJECT["dependency-groups"]])
def test_every_pin_of_the_lock_has_a_hash(group):
    flags = ["--only-group", group] if group else ["--extra", "gcp", "--extra", "tensorflow"]
    lines = [line for line in exported(*flags).splitlines() if not line.startswith("#")]
    starts = [at for at, line in enumerate(lines) if not line.startswith(" ")]
    assert starts
    for at in starts:
        assert "==" in lines[at]
        assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", lines[at + 1]), lines[at]


def test_the_lock_names_no_package_index():
    assert "://" not in LOCK


@pytest.mark.parametrize(
    "package",
    ["apache-beam", "tensorflow", "tensorflow-hub", "tensorflow-text", "google-cloud-storage"],
)
def test_the_complete_list_pins(package):
    assert package in dict(pins(ROOT / "requirements.txt"))
