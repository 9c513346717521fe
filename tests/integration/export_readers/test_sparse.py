"""Sparse vectors in Anserini, Elasticsearch and OpenSearch: their scores beside our search's.

These are the real programs, from the jars that `make test-export` fetches with Maven.
"""

import io
import json
import os
import random
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import numpy as np
import pytest

import bert_embed
from bert_embed.importers import import_model
from bert_embed.pipeline.cli import main
from tests.support.command import ROOT, embed
from tests.support.models.heads import VOCABULARY, write_splade
from tests.support.models.tiny import WORDS
from tests.support.outputs import export
from tests.support.servers.gcs import answers, free_port, running


def jars_of(program: str) -> list[Path]:
    """The jars of a program; skips the test if they are not there."""
    jars = sorted((ROOT / "build" / "readers" / program).glob("*.jar"))
    if not jars:
        pytest.skip(f"there are no jars of {program}: make readers, with Maven")
    return jars


def java_command(jars: Sequence[Path], least: int) -> list[str]:
    """Begins a command of Java, `least` or newer, that finds classes in these jars."""
    homes = [Path(os.environ.get("JAVA_HOME", "nowhere")), *sorted(Path("/usr/lib/jvm").glob("*"))]
    paths = [shutil.which("java"), *(shutil.which(home / "bin" / "java") for home in homes)]
    java = next((path for path in paths if path and _version(path) >= least), None)
    if java is None:
        pytest.skip(f"there is no Java {least} or newer here")
    flags = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    return [java, *flags, "-cp", ":".join(map(str, jars))]


def _version(java: str) -> int:
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    number = re.search(r'version "(\d+)', said)
    return int(number[1]) if number else 0


JAVA = ROOT / "tests" / "integration" / "export_readers" / "java"
PAGE = (ROOT / "docs" / "export.md").read_text("utf-8")
QUERIES = ["the river and the bank of money", "how many people find water", "oil"]
# Names that a program could take for a path, for two tokens or for none; every text has them.
ODD = {"[unused7]": "a.b", "[unused8]": "new york", "[unused9]": ""}
NAMES = [ODD.get(name, name) for name in VOCABULARY]
DESCRIPTOR = """name=transport-netty4
description=HTTP
version=8.19.21
elasticsearch.version=8.19.21
java.version=17
classname=org.elasticsearch.transport.netty4.Netty4Plugin
"""
BIAS = "cls.predictions.bias"


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    """A run of 60 texts, its model beside it."""
    folder = tmp_path_factory.mktemp("sparse")
    pooling = {"pooling_strategy": "max", "activation_function": "relu"}
    bias = write_splade(folder / "plain", **pooling)[BIAS] - np.float32(2)
    bias[[VOCABULARY.index(name) for name in ODD]] += 6
    write_splade(folder / "source", changes={BIAS: bias}, **pooling)
    (folder / "source" / "vocab.txt").write_text("".join(f"{name}\n" for name in NAMES))
    words = random.Random(3)
    texts = [" ".join(words.choices(WORDS, k=words.randint(3, 12))) for _ in range(60)]
    (folder / "in.txt").write_text("\n".join(texts))
    model = import_model(str(folder / "source"), str(folder / "bundle")).path
    assert embed(folder / "out", model, folder / "in.txt", keep_text=True) == 0
    return folder / "out"


@pytest.fixture(scope="module")
def queries(output):
    """The weights of each query, by the names that entries have in an export."""
    vectors = bert_embed.load(str(output.parent / "bundle")).encode_query(QUERIES, kind="sparse")
    indices, weights = (
        np.split(part, vectors.splits[1:-1]) for part in (vectors.indices, vectors.values)
    )
    names = [name if [name] == name.split() else f"[{entry}]" for entry, name in enumerate(NAMES)]
    return [
        dict(zip((names[entry] for entry in row), weights_of_row.tolist(), strict=True))
        for row, weights_of_row in zip(indices, weights, strict=True)
    ]


@pytest.fixture(scope="module")
def scores(output):
    """The score of each document by `search --by sparse`, best first, for each query."""
    (output.parent / "queries.txt").write_text("\n".join(QUERIES))
    flags = [f"--queries={output.parent / 'queries.txt'}", "--by=sparse", "--k=60", "--json"]
    with redirect_stdout(io.StringIO()) as printed:
        assert main(["search", str(output), *flags]) == 0
    lines = map(json.loads, printed.getvalue().splitlines())
    return [{hit["id"]: hit["score"] for hit in line["hits"]} for line in lines]


def test_anserini_finds_what_search_finds(tmp_path, output, queries, scores):
    anserini = java_command(jars_of("anserini"), least=21)
    assert export(output, tmp_path / "build" / "books-pyserini", "pyserini") == 0
    command = re.search(r"python -m pyserini\.index\.lucene(.*?)\n```", PAGE, re.DOTALL)[1]
    words = [word.replace("--", "-") for word in command.replace("\\\n", "").split()]
    index = [*anserini, "io.anserini.index.IndexCollection", *words]
    subprocess.run(index, cwd=tmp_path, check=True, capture_output=True)
    # A query names a token as often as its weight is, as it is for documents.
    lines = [
        f"{number}\t" + " ".join(f"{name} " * round(weight * 100) for name, weight in query.items())
        for number, query in enumerate(queries)
    ]
    (tmp_path / "topics.tsv").write_text("\n".join(lines))
    flags = "-index build/books-index -topics topics.tsv -topicReader TsvInt -output hits.txt"
    search = [*anserini, "io.anserini.search.SearchCollection", *flags.split()]
    subprocess.run(
        [*search, "-impact", "-pretokenized"], cwd=tmp_path, check=True, capture_output=True
    )
    hits = [line.split() for line in (tmp_path / "hits.txt").read_text().splitlines()]
    for number, expected in enumerate(scores):
        found = {hit[2]: float(hit[4]) / 100**2 for hit in hits if hit[0] == str(number)}
        assert next(iter(found)) == next(iter(expected))
        assert found == pytest.approx(expected, rel=0.005)


@contextmanager
def search_node(program, folder):
    """The address of an OpenSearch or Elasticsearch of one node."""
    name = {"opensearch": "OpenSearchNode", "elasticsearch": "ElasticsearchNode"}[program]
    jars = jars_of(program)
    if program == "elasticsearch":  # which loads what speaks HTTP as a module
        module = folder / "modules" / "transport-netty4"
        module.mkdir(parents=True)
        (module / "plugin-descriptor.properties").write_text(DESCRIPTOR)
        for jar in jars:
            if "netty" in jar.name:
                shutil.copy(jar, module)
        jars = [jar for jar in jars if "netty" not in jar.name]
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    words = [*java_command(jars, least=17), str(JAVA / f"{name}.java"), str(folder), str(port)]
    with running(words, folder / "log", lambda: answers(f"{url}/_cluster/health"), patience=120):
        yield url


def send(url, method, body, kind="application/json"):
    request = urllib.request.Request(url, data=body, method=method, headers={"Content-Type": kind})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def rank_feature(name, weight):
    return {"rank_feature": {"field": f"sparse.{name}", "linear": {}, "boost": weight}}


def term(name, weight):
    return {"term": {"sparse": {"value": name, "boost": weight}}}


@pytest.mark.parametrize(
    ("program", "field", "clause"),
    [("opensearch", "rank_features", rank_feature), ("elasticsearch", "sparse_vector", term)],
)
def test_a_node_finds_what_search_finds(tmp_path, output, queries, scores, program, field, clause):
    assert export(output, tmp_path / "dest", "opensearch") == 0
    mapping = json.loads(re.search(r"-d '(.*?)'", PAGE, re.DOTALL)[1])
    properties = mapping["mappings"]["properties"]
    assert properties["sparse"]["type"] == "rank_features"
    properties["sparse"]["type"] = field
    del properties["embedding"], mapping["settings"]["index.knn"]  # they are a plugin's
    with search_node(program, tmp_path) as node:
        send(f"{node}/books", "PUT", json.dumps(mapping).encode())
        for path in sorted((tmp_path / "dest").glob("bulk_*.jsonl")):
            kind = "application/x-ndjson"
            answer = send(f"{node}/books/_bulk?refresh=true", "POST", path.read_bytes(), kind)
            assert {item["index"]["status"] for item in answer["items"]} == {201}, answer
        for query, expected in zip(queries, scores, strict=True):
            clauses = [clause(name.replace(".", "__"), query[name]) for name in query]
            body = {"size": 60, "query": {"bool": {"should": clauses}}}
            answer = send(f"{node}/books/_search", "POST", json.dumps(body).encode())
            found = {hit["_id"]: hit["_score"] for hit in answer["hits"]["hits"]}
            assert next(iter(found)) == next(iter(expected))
            assert set(found) == set(expected)
            # A feature keeps 9 of a number's 24 significant bits, and leaves out the others.
            for document, score in found.items():
                assert (1 - 2**-8) * expected[document] <= score <= expected[document] * 1.000001
