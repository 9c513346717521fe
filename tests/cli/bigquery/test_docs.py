"""The commands of docs/bigquery.md, run on emulators."""

import re
import shlex

import pytest

import bert_embed
from bert_embed.pipeline.cli import main
from tests.support.command import ROOT
from tests.support.loads import count

PAGE = (ROOT / "docs" / "bigquery.md").read_text("utf-8")


def commands():
    for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            yield shlex.split(line)


# Instead of VECTOR_SEARCH, which the emulator lacks.
SEARCH = """SELECT id, (
    SELECT SUM(x * y) FROM UNNEST(embedding) AS x WITH OFFSET n
    JOIN UNNEST(@query) AS y WITH OFFSET m ON n = m
  ) AS distance FROM `test-project.vectors.news`"""


def test_every_command_runs(bigquery, gcs, tiny_bundle, monkeypatch, capsys):
    fields = ["id", "body", "lang"]
    rows = [{"id": "a", "body": "a red river", "lang": "en"}]
    schema = [(name, "STRING", "NULLABLE") for name in fields]
    bigquery.fill("test-project.texts.news", schema, rows)
    bigquery.client.create_dataset("test-project.vectors", exists_ok=True)
    bucket = gcs.client.create_bucket("bigquery-docs")
    bucket.blob("texts/1.jsonl").upload_from_string('{"id": "a", "text": "a red river"}\n')
    found = list(commands())
    assert len(found) == 3
    for words in found:
        assert words[0] == ".venv/bin/bert-embed"
        ours = [word.replace("my-project", "test-project") for word in words[1:]]
        ours = [word.replace("gs://bucket/", "gs://bigquery-docs/") for word in ours]
        assert main([*ours, "--model", tiny_bundle]) == 0
    assert count(bigquery, "vectors", "news") == 1
    [search] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    monkeypatch.setattr("google.cloud.bigquery.Client", lambda project: bigquery.client)
    capsys.readouterr()
    search, replaced = re.subn(r'statement = """.*?"""', "", search, flags=re.DOTALL)
    assert replaced == 1
    exec(search.replace("minilm", tiny_bundle), {"statement": SEARCH})
    found, score = capsys.readouterr().out.split()
    question, river = bert_embed.load(tiny_bundle).encode(["a question", "a red river"])
    assert (found, float(score)) == ("a", pytest.approx(float(question @ river), rel=1e-5))
