"""Loads into tables of BigQuery through the command line, and what a table then holds."""

import json

from tests.support.command import record


def texts(path, prefix, count=4):
    words = ["red", "bank", "seven", "stars"]
    lines = [{"id": f"{prefix}{n}", "text": f"{prefix} {words[n % 4]}"} for n in range(count)]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def count(bigquery, dataset, table="v"):
    return bigquery.rows(f"SELECT COUNT(*) FROM `test-project.{dataset}.{table}`")[0][0]


def ids(bigquery, dataset):
    found = bigquery.rows(f"SELECT id FROM `test-project.{dataset}.v` ORDER BY id")
    return [row[0] for row in found]


def interrupted(output):
    """Puts a finished run back to where a kill between its load job and its record leaves it."""
    unfinished = {**record(output), "status": "running"}
    unfinished.pop("loads", None)
    (output / "run.json").write_text(json.dumps(unfinished))
