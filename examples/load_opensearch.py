"""Load an output into an index of OpenSearch or Elasticsearch, through its `_bulk` API.

Usage, from the clone's folder: python -m examples.load_opensearch OUTPUT http://HOST:9200/INDEX
The index must be there, with its mapping. Outputs that continue others are loaded in their order:
documents are replaced by their key, or deleted. The first error ends it; the same command loads the
rest.
"""

import json
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from typing import Any

from examples.output_rows import as_json, bodies, deleted, vectors


def actions(output: str) -> Iterator[bytes]:
    """What is to be done, an action each; an update leaves a document that is the same as it is."""
    for key in deleted(output):
        yield json.dumps({"delete": {"_id": key}}).encode() + b"\n"
    for document in as_json(vectors(output).to_batches()):
        action = json.dumps({"update": {"_id": json.loads(document)["key"]}}).encode() + b"\n"
        yield action + b'{"doc_as_upsert": true, "doc": ' + document[:-1] + b"}\n"


def send(url: str, body: bytes) -> list[dict[str, Any]]:
    """Sends actions, and returns what came of each."""
    headers = {"Content-Type": "application/x-ndjson"}
    request = urllib.request.Request(f"{url}/_bulk?refresh=true", body, headers)
    try:
        with urllib.request.urlopen(request) as answer:
            items = json.load(answer)["items"]
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{url} refuses {len(body)} bytes: {error.code} {error.reason}") from None
    except urllib.error.URLError as error:
        raise SystemExit(f"{url} does not answer: {error.reason}") from None
    done = [next(iter(item.values())) for item in items]
    for failed in (one for one in done if "error" in one):
        raise SystemExit(f"{url} refuses the document {failed['_id']}: {failed['error']['reason']}")
    return done


def load(output: str, url: str) -> str:
    """Loads an output; says how many documents changed."""
    results = Counter(
        one["result"] for body in bodies(actions(output)) for one in send(url, b"".join(body))
    )
    written = results["created"] + results["updated"]
    return f"{url}: {written} documents written, {results['deleted']} deleted"


if __name__ == "__main__":
    print(load(*sys.argv[1:]))
