"""What no linter can say: names of outputs, redacted errors, one console."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from bert_embed.pipeline.options.embed import FLAGS

ROOT = Path(__file__).resolve().parents[1]
# These own the names of an output; in the other places the same words name weights.
NAME_OWNERS = ("transforms/output_folder.py", "bert_embed/results/names.py")
WEIGHTS = (
    "bert_embed/backends/",
    "bert_embed/importers/",
    "bert_embed/models/",
)
OUTPUT_NAME = re.compile(
    r"(^|/)(part-|_state(/|$)|run\.json$|examples\.json$)"
    r"|^(embeddings|tokens|words|windows|sparse|multi|scores|examples|rejected|removed|deleted)/"
)


@pytest.fixture(scope="module")
def product():
    """The parsed files; `bert_embed/` holds links to the other two."""
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8"))
        for top in ("bert_embed", "transforms", "pipeline")
        for path in (ROOT / top).rglob("*.py")
    }


def output_names(module):
    """Literals that are or begin the name of an output; a text with a space is for people."""
    nodes = list(ast.walk(module))
    texts = {id(node): node.value for node in nodes if isinstance(node, ast.Constant)}
    for joined in (node for node in nodes if isinstance(node, ast.JoinedStr)):
        parts = [part for part in joined.values if isinstance(part, ast.Constant)]
        if any(" " in part.value for part in parts):
            texts |= {id(part): " " for part in parts}
    names = [text for text in texts.values() if isinstance(text, str) and " " not in text]
    return [name for name in names if OUTPUT_NAME.search(name)]


def test_names_of_outputs_are_found_in_every_form():
    code = """
'''Writes run.json.'''
f"{folder}/run.json", "_state", f"part-{block:07d}", f"{output}/_state/listed", "embeddings/a-*"
raise ValueError(f"{folder} has no run.json")
"""
    wanted = ["/_state/listed", "/run.json", "_state", "embeddings/a-*", "part-"]
    assert sorted(output_names(ast.parse(code))) == wanted


def test_names_of_outputs_have_one_owner(product):
    others = [name for name in product if name not in NAME_OWNERS and not name.startswith(WEIGHTS)]
    assert {name: names for name in others if (names := output_names(product[name]))} == {}


# These see no text: plans, names of streams, models, numbers of reports.
NO_TEXT = {"_Plan", "_opened", "_specs", "_keyed", "_attach_skips", "earlier_files"}
NO_TEXT |= {"_SumBundle", "_is_marked", "_written_pieces", "_with_files"}
# These are steps of other people's pipelines, whose elements and errors are their own.
ADAPTERS = {"_Place", "_row", "_picked", "item_document", "_placed", "_checked", "_split"}
ADAPTERS |= {"_lacking", "_check_column"}


def steps(module):
    """The `process` of each DoFn of a file by the DoFn's name, and the functions that it maps."""
    nodes = list(ast.walk(module))
    functions = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef)}
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            yield from ((node.name, each) for each in methods if each.name == "process")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("beam.Map", "beam.FlatMap"):
            mapped = ast.unparse(node.args[0])
            if mapped in functions:
                yield mapped, functions[mapped]


def test_steps_that_see_texts_redact_errors(product):
    transforms = [product[name] for name in product if name.startswith("transforms/")]
    found = [(name, ast.unparse(body)) for module in transforms for name, body in steps(module)]
    assert len(found) > 20
    assert {name for name, body in found if "RedactErrors(" not in body} <= NO_TEXT | ADAPTERS


def test_all_that_people_read_is_written_by_the_console(product):
    """It shows control characters; who writes past it lets ids move the cursor."""
    past = re.compile(r"(sys\.std(out|err)\.write|print_exc|print_help|print_usage)$")
    for name in product:
        if name.startswith("pipeline/") and name != "pipeline/console.py":
            calls = [node for node in ast.walk(product[name]) if isinstance(node, ast.Call)]
            assert not [call for call in calls if past.search(ast.unparse(call.func))], name


# What Beam wants as a dict of collections, and type checkers as a named tuple.
NAMED_TWICE = {"Embedded"}


def test_no_class_name_stands_for_two_things(product):
    classes = [
        node.name.lstrip("_")
        for module in product.values()
        for node in ast.walk(module)
        if isinstance(node, ast.ClassDef)
    ]
    assert {name for name, count in Counter(classes).items() if count > 1} <= NAMED_TWICE


def test_no_layer_below_the_front_ends_knows_a_flag(product):
    """They name settings; the command line, YAML and Python each spell them their way."""
    flag = re.compile(rf"(?<!bq query )--(no_)?({'|'.join(FLAGS)})\b")
    named = [
        f"{path}:{node.lineno}"
        for path, module in product.items()
        if path.startswith(("bert_embed/", "transforms/"))
        for node in ast.walk(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if flag.search(node.value)
    ]
    assert named == []
